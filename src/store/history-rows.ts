/**
 * The history on disk: a row for each span of telemetry/history.ts, ended or running.
 * gateway/history-recorder.ts reads the rows when it starts and writes them as spans end, on the main thread
 * of the process with the admin interface. The rows are no part of the accounting: the audit does not read
 * them, and their loss costs a chart.
 *
 *     [seconds of the ring's spans, position]              → the span, as JSON
 *     ['accounts', seconds of the ring's spans, position]  → the span by account, as JSON
 *
 * A span overwrites the span that began `spans` spans earlier, so the table does not grow. Rows that are too
 * old stay after a long stop, or if a later version gives a ring fewer spans: `read` returns them, and
 * Rings.restore of telemetry/history.ts drops them. Rows of a ring whose `seconds` were changed are never
 * read again.
 *
 * Must hold: `read` skips rows that it cannot read and never throws because of a row, so that a later format
 * of spans needs no migration (test/unit/store/history-rows.test.ts).
 */
import { parsedJson } from '../core/json.js';
import { noStats, type AccountSpan, type AccountSpanOfRing } from '../telemetry/account-history.js';
import {
  HISTORY_RINGS,
  type EndedSpan,
  type HistorySpan,
  type RingName,
  type Span,
} from '../telemetry/history.js';
import { AFTER_ALL_NUMBERS } from './record-codec.js';
import type { Tables } from './tables.js';

type RingPosition = [seconds: number, position: number];

export class HistoryRows {
  readonly #tables: Pick<Tables, 'environment' | 'history'>;

  constructor(tables: Pick<Tables, 'environment' | 'history'>) {
    this.#tables = tables;
  }

  /** Returns the readable spans of a ring, the oldest first. Takes some milliseconds. */
  read(ring: RingName): HistorySpan[] {
    return this.#read<HistorySpan>([], ring, ({ in_flight: inFlight }) => typeof inFlight === 'number');
  }

  /** As `read`, for the spans of what each account called. */
  readAccounts(ring: RingName): AccountSpan[] {
    return this.#read<AccountSpan>(['accounts'], ring, ({ accounts }) => isStatsById(accounts));
  }

  /**
   * Writes the spans in one transaction, each in place of its former row. Costs an fsync; nothing if
   * there is no span. Never throws: if the store cannot be written, the spans are missing on disk.
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
      // flush.ts writes to the same store: it fails too, and logs the error.
    }
  }

  /** `prefix`: how the keys of the rows begin. `isWhole` checks the fields besides `start`. */
  #read<Stored extends Span>(
    prefix: [] | ['accounts'],
    ring: RingName,
    isWhole: (span: Partial<Stored>) => boolean,
  ): Stored[] {
    const { seconds } = HISTORY_RINGS[ring];
    const rows = this.#tables.history.getRange({
      start: [...prefix, seconds, 0],
      end: [...prefix, seconds, AFTER_ALL_NUMBERS],
    });
    return Array.from(rows, ({ value }) => parsedSpan<Stored>(value))
      .filter((span): span is Stored => typeof span?.start === 'number' && isWhole(span))
      .sort((span, otherSpan) => span.start - otherSpan.start);
  }
}

/** `start` is in Unix seconds, a multiple of the ring's `seconds`, so the position is a whole number. */
function positionOf(ring: RingName, { start }: Span): RingPosition {
  const { seconds, spans } = HISTORY_RINGS[ring];
  return [seconds, (start / seconds) % spans];
}

/** Any field may be missing: `#read` checks them. Undefined, or null, if the value is no span's text. */
function parsedSpan<Stored>(value: unknown): Partial<Stored> | null | undefined {
  return typeof value === 'string' ? (parsedJson(value) as Partial<Stored> | null | undefined) : undefined;
}

/** Whether each value is the stats of an account, with a number for each count of `noStats`. */
function isStatsById(accounts: unknown): boolean {
  if (typeof accounts !== 'object' || accounts === null) return false;
  const countNames = Object.keys(noStats());
  return Object.values(accounts as Readonly<Record<string, Readonly<Record<string, unknown>> | null>>).every(
    (stats) => countNames.every((name) => typeof stats?.[name] === 'number'),
  );
}
