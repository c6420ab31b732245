/**
 * The history on disk, a round-robin table: one row for each span of telemetry/history.ts. A span overwrites
 * the span that is one length of the ring older, so the table does not grow. The history recorder calls it on
 * the main thread. It is no part of the accounting: the audit does not read it, and its loss costs a chart.
 *
 * Must hold: `read` skips rows that it cannot read and never throws for one, so that a later format of spans
 * needs no migration (test/unit/store/history-rows.test.ts).
 */
import { noStats, type AccountSpan, type AccountSpanOfRing } from '../telemetry/account-history.js';
import {
  HISTORY_RINGS,
  type EndedSpan,
  type HistorySpan,
  type RingName,
  type Span,
} from '../telemetry/history.js';
import type { Tables } from './tables.js';

type RingPosition = [seconds: number, position: number];

export class HistoryRows {
  readonly #tables: Pick<Tables, 'environment' | 'history'>;

  constructor(tables: Pick<Tables, 'environment' | 'history'>) {
    this.#tables = tables;
  }

  /** Returns the readable spans of a ring by their starts. Some milliseconds. */
  read(ring: RingName): HistorySpan[] {
    return this.#read<HistorySpan>([], ring, ({ in_flight: inFlight }) => typeof inFlight === 'number');
  }

  /** As `read`, for the spans by account. */
  readAccounts(ring: RingName): AccountSpan[] {
    return this.#read<AccountSpan>(['accounts'], ring, ({ accounts }) => isStatsById(accounts));
  }

  /**
   * Writes the spans by one disk flush, and none if there is no span. If the disk takes nothing, the spans
   * are lost.
   */
  put(spans: readonly EndedSpan[], accounts: readonly AccountSpanOfRing[]): void {
    if (spans.length + accounts.length === 0) return;
    const { environment, history } = this.#tables;
    try {
      environment.write(() => {
        for (const { ring, span } of spans) history.putSync(positionOf(ring, span), JSON.stringify(span));
        for (const { ring, span } of accounts) {
          history.putSync(['accounts', ...positionOf(ring, span)], JSON.stringify(span));
        }
      });
    } catch {
      // The flush meets the same disk, and logs it.
    }
  }

  #read<Held extends Span>(
    prefix: [] | ['accounts'],
    ring: RingName,
    isWhole: (span: Partial<Held>) => boolean,
  ): Held[] {
    const { seconds } = HISTORY_RINGS[ring];
    const rows = this.#tables.history.getRange({
      start: [...prefix, seconds, 0],
      end: [...prefix, seconds, Infinity],
    });
    return Array.from(rows, ({ value }) => parsed<Held>(value))
      .filter((span): span is Held => typeof span?.start === 'number' && isWhole(span))
      .sort((left, right) => left.start - right.start);
  }
}

function positionOf(ring: RingName, { start }: Span): RingPosition {
  const { seconds, spans } = HISTORY_RINGS[ring];
  return [seconds, (start / seconds) % spans];
}

function parsed<Held>(value: unknown): Partial<Held> | null {
  try {
    return typeof value === 'string' ? (JSON.parse(value) as Partial<Held> | null) : null;
  } catch {
    return null;
  }
}

function isStatsById(accounts: unknown): boolean {
  if (typeof accounts !== 'object' || accounts === null) return false;
  const names = Object.keys(noStats());
  return Object.values(accounts as Readonly<Record<string, Readonly<Record<string, unknown>> | null>>).every(
    (stats) => names.every((name) => typeof stats?.[name] === 'number'),
  );
}
