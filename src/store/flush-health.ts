/**
 * Whether the disk takes the books, and what follows where it does not: new calls are refused where they should be, and an
 * operator is told. Main thread.
 */
import type { Clock } from '../core/clock.js';
import { ACCOUNTING_ROWS_WAITING_MAX } from '../core/limits.js';
import type { JournalReader } from '../ledger/journal.js';
import type { Log } from '../telemetry/log.js';

/** A disk that stays full is told so often, not at every flush. */
const LOG_PERIOD_MS = 10_000;

export interface FlushHealthOptions {
  /** One a listener: by it a listener is told to refuse. */
  readonly journals: readonly Pick<JournalReader, 'setRefusing'>[];
  /** Whether new calls are refused while the store fails, as the settings say at the moment. */
  readonly refuseOnError: () => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

/** What waits in memory. */
export interface RowsWaiting {
  readonly accounts: number;
  /** Of accounts, of usage and of keys. */
  readonly rows: number;
}

export class FlushHealth {
  readonly #options: FlushHealthOptions;
  #lastError: string | undefined;
  #loggedAtMs = -Infinity;

  constructor(options: FlushHealthOptions) {
    this.#options = options;
  }

  /** Undefined while all is well. */
  get lastError(): string | undefined {
    return this.#lastError;
  }

  /** The store did not take them. */
  noteFailed(error: unknown, { accounts, rows }: RowsWaiting): void {
    const { refuseOnError, clock, log } = this.#options;
    this.#lastError = error instanceof Error ? error.message : String(error);
    const refusing = refuseOnError() || rows > ACCOUNTING_ROWS_WAITING_MAX;
    this.#setRefusing(refusing);
    if (clock.monotonicMs() - this.#loggedAtMs < LOG_PERIOD_MS) return;
    this.#loggedAtMs = clock.monotonicMs();
    log.error('the books cannot be written: is the disk full or read-only? they are kept and tried again', {
      error: this.#lastError,
      accounts,
      newCalls: refusing ? 'refused' : 'served',
    });
  }

  /** All that there was is on disk. */
  noteWritten(): void {
    if (this.#lastError === undefined) return;
    this.#lastError = undefined;
    this.#loggedAtMs = -Infinity;
    this.#setRefusing(false);
    this.#options.log.warn('the books are written again; nothing was lost');
  }

  #setRefusing(refusing: boolean): void {
    for (const journal of this.#options.journals) journal.setRefusing(refusing);
  }
}
