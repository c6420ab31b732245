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
import type { Clock } from '../core/clock.js';
import { decimalOf } from '../core/money.js';
import type { AccountIndex, KeyIndex } from '../core/units.js';
import type { JournalOutcome, JournalRecord } from '../ledger/journal-layout.js';
import { USAGE_SOURCES } from '../protocol/usage.js';
import type { UsageKey } from '../registry/usage-report.js';

/*
 * Identifiers of accounts and keys by their slots, for the logs: kept in memory, so that a busy gateway does not look each up
 * for each line. Main thread of a gateway process.
 */

/** Identifiers of each kind that are remembered; a gateway with more in use looks them up again. */
const IDS_MAX = 100_000;
/** A key's slot rests for a day after its key was deleted, so what is known of it is forgotten before. */
const KEPT_MS = 3_600_000;

export interface IdSource {
  /** May throw what a store throws. */
  findAccountId(account: AccountIndex): string | undefined;
  findKeyId(key: KeyIndex): string | undefined;
}

export class IdNames {
  readonly #source: IdSource;
  readonly #clock: Clock;
  readonly #accounts = new Map<AccountIndex, string>();
  readonly #keys = new Map<KeyIndex, string>();
  #sinceMs: number;

  constructor(source: IdSource, clock: Clock) {
    this.#source = source;
    this.#clock = clock;
    this.#sinceMs = clock.monotonicMs();
  }

  /** Null where it cannot be read: a line of a log is not worth an exception. */
  accountIdOf(account: AccountIndex): string | null {
    return this.#idOf(this.#accounts, account, () => this.#source.findAccountId(account));
  }

  /** The same of a key: who has the slot, or had it last. */
  keyIdOf(key: KeyIndex): string | null {
    return this.#idOf(this.#keys, key, () => this.#source.findKeyId(key));
  }

  #idOf<Index>(ids: Map<Index, string>, index: Index, find: () => string | undefined): string | null {
    this.#forgetOld();
    const known = ids.get(index);
    if (known !== undefined) return known;
    try {
      const id = find();
      if (id === undefined) return null;
      if (ids.size >= IDS_MAX) ids.clear();
      ids.set(index, id);
      return id;
    } catch {
      return null;
    }
  }

  #forgetOld(): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#sinceMs < KEPT_MS) return;
    this.#sinceMs = nowMs;
    this.#accounts.clear();
    this.#keys.clear();
  }
}

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
