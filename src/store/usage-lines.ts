/**
 * From records of the journal to lines of the usage log. Main thread of a gateway process.
 *
 *     {"time":"2025-01-31T12:00:00.000Z","request_id":"req_3fQx0aZcW8Lk-1c","account":"acct_…","key":"key_…",
 *      "model":"gpt-4o-mini","outcome":"served","prompt_tokens":9,"cached_tokens":0,"completion_tokens":12,
 *      "source":"reported","cost":"0.00000855","uncovered":"0.00","duration_ms":640}
 *
 * `time` is when the call ended; `outcome` is `served`, the code of an error, or `reversed`, whose line takes back the figures
 * of an earlier one of the same request, or `collected`, whose line charges what an earlier one has left uncovered. `source` is null
 * where nothing was served.
 */
import { decimalOf } from '../core/money.js';
import type { JournalOutcome, JournalRecord } from '../ledger/journal-layout.js';
import { USAGE_SOURCES } from '../protocol/usage.js';
import type { UsageKey } from '../registry/usage-record.js';
import type { IdNames } from './id-names.js';

/** Lines that wait for the end of a flush: about 5 MB, a fraction of a second of the busiest gateway. */
const LINES_WAITING_MAX = 20_000;

const SERVED_OUTCOMES: readonly JournalOutcome[] = ['served', 'reversed', 'collected'];

export interface UsageLinesOptions {
  /** LineFile's. */
  readonly append: (lines: readonly string[]) => void;
  readonly names: Pick<IdNames, 'accountIdOf'>;
  /** Of a request of the listener that appends to the journal of that index. */
  readonly requestIdOf: (journal: number, request: number) => string;
}

export class UsageLines {
  readonly #options: UsageLinesOptions;
  #lines: string[] = [];

  constructor(options: UsageLinesOptions) {
    this.#options = options;
  }

  /** Notes a call whose record came from the journal of that index; `row` is the usage row that it was counted in. */
  note(journal: number, record: JournalRecord, row: Pick<UsageKey, 'keyId' | 'modelId'>): void {
    const served = SERVED_OUTCOMES.includes(record.outcome);
    const line = {
      time: new Date(record.endedMs).toISOString(),
      request_id: this.#options.requestIdOf(journal, record.request),
      account: this.#options.names.accountIdOf(record.account),
      key: row.keyId,
      model: row.modelId,
      outcome: record.outcome,
      prompt_tokens: record.promptTokens,
      cached_tokens: record.cachedTokens,
      completion_tokens: record.completionTokens,
      source: served ? USAGE_SOURCES[record.source] : null,
      cost: decimalOf(record.charged),
      uncovered: decimalOf(record.uncovered),
      duration_ms: record.durationMs,
    };
    this.#lines.push(JSON.stringify(line));
    if (this.#lines.length >= LINES_WAITING_MAX) this.handOver();
  }

  /** After each flush, whether the store took it or not: the calls were made. */
  handOver(): void {
    if (this.#lines.length === 0) return;
    this.#options.append(this.#lines);
    this.#lines = [];
  }
}
