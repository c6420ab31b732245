/**
 * The history on disk (telemetry/history.ts): one row a span. A span overwrites the one that is a ring's
 * length older, so the table does not grow. It is no part of the accounting: the audit does not read it, and
 * losing it costs a chart. The history recorder calls it on the main thread.
 */
import type { Database } from 'lmdb';
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

/**
 * [seconds of a span, position in the ring] → span as JSON; the same after `accounts` → span of the accounts.
 */
export type HistoryTable = Database<unknown, RingPosition | ['accounts', ...RingPosition]>;

export class HistoryRows {
  readonly #tables: Pick<Tables, 'environment' | 'history'>;

  constructor(tables: Pick<Tables, 'environment' | 'history'>) {
    this.#tables = tables;
  }

  /** Returns the readable spans of a ring by their starts. Some milliseconds. */
  read(ring: RingName): HistorySpan[] {
    return this.#read<HistorySpan>([], ring, ({ in_flight: inFlight }) => typeof inFlight === 'number');
  }

  /** The same of accounts. */
  readAccounts(ring: RingName): AccountSpan[] {
    return this.#read<AccountSpan>(['accounts'], ring, ({ accounts }) => isStatsById(accounts));
  }

  /**
   * On disk when it returns, by one disk flush; none if there is no span. If the disk takes nothing, the
   * spans are lost.
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
