/**
 * The course of the figures on disk: one row a span, each in the place of the one that is a ring's length older, so the table
 * does not grow. It is no part of the books: the audit does not read it, and losing it costs a chart. Main thread.
 */
import type { Database } from 'lmdb';
import { noStats, type AccountSpan, type AccountSpanOfRing } from '../telemetry/account-history.js';
import { HISTORY_RINGS, type EndedSpan, type HistorySpan, type RingName } from '../telemetry/history.js';
import type { Tables } from './tables.js';

type RingPosition = [seconds: number, place: number];

/** [seconds of a span, place in the ring] → JSON of the span; the same after `accounts` → of the accounts' one. */
export type HistoryTable = Database<unknown, RingPosition | ['accounts', ...RingPosition]>;

export class HistoryRows {
  readonly #tables: Pick<Tables, 'environment' | 'history'>;

  constructor(tables: Pick<Tables, 'environment' | 'history'>) {
    this.#tables = tables;
  }

  /** Those of a ring that can be read, by their starts. Some milliseconds. */
  read(ring: RingName): HistorySpan[] {
    const { seconds } = HISTORY_RINGS[ring];
    const rows = this.#tables.history.getRange({ start: [seconds, 0], end: [seconds, Infinity] });
    return spansOf(rows, (span: Partial<HistorySpan>) => typeof span.in_flight === 'number');
  }

  /** The same of accounts. */
  readAccounts(ring: RingName): AccountSpan[] {
    const { seconds } = HISTORY_RINGS[ring];
    const rows = this.#tables.history.getRange({
      start: ['accounts', seconds, 0],
      end: ['accounts', seconds, Infinity],
    });
    return spansOf(rows, ({ accounts }: Partial<AccountSpan>) => isStatsById(accounts));
  }

  /** On disk when it returns; a disk that takes nothing loses the spans. Costs a disk flush, none where there is no span. */
  put(spans: readonly EndedSpan[], accounts: readonly AccountSpanOfRing[]): void {
    if (spans.length + accounts.length === 0) return;
    const { environment, history } = this.#tables;
    try {
      environment.write(() => {
        for (const { ring, span } of spans)
          history.putSync(positionOf(ring, span.start), JSON.stringify(span));
        for (const { ring, span } of accounts) {
          history.putSync(['accounts', ...positionOf(ring, span.start)], JSON.stringify(span));
        }
      });
    } catch {
      // The flush of the books meets the same disk and tells of it.
    }
  }
}

function positionOf(ring: RingName, start: number): RingPosition {
  const { seconds, spans } = HISTORY_RINGS[ring];
  return [seconds, (start / seconds) % spans];
}

interface Row {
  readonly value: unknown;
}

/** What can be read, by its start. `isWhole` is asked of what has one. */
function spansOf<Span extends { readonly start: number }>(
  rows: Iterable<Row>,
  isWhole: (span: Partial<Span>) => boolean,
): Span[] {
  return Array.from(rows, ({ value }) => spanIn(value, isWhole))
    .filter((span) => span !== undefined)
    .sort((left, right) => left.start - right.start);
}

function spanIn<Span extends { readonly start: number }>(
  value: unknown,
  isWhole: (span: Partial<Span>) => boolean,
): Span | undefined {
  if (typeof value !== 'string') return undefined;
  try {
    const span = JSON.parse(value) as Partial<Span> | null;
    return typeof span?.start === 'number' && isWhole(span) ? (span as Span) : undefined;
  } catch {
    return undefined;
  }
}

function isStatsById(accounts: unknown): boolean {
  if (typeof accounts !== 'object' || accounts === null) return false;
  const names = Object.keys(noStats());
  return Object.values(accounts as Readonly<Record<string, Readonly<Record<string, unknown>> | null>>).every(
    (stats) => names.every((name) => typeof stats?.[name] === 'number'),
  );
}
