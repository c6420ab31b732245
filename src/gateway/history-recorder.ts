/**
 * Records the history that the admin interface shows. admin-service.ts makes a recorder whenever this gateway
 * gets the interface; main thread of a gateway process.
 *
 * Must hold: after `close` nothing is recorded, because another gateway may record by then
 * (test/unit/gateway/admin-service.test.ts). Tests of what is recorded: test/unit/telemetry/history.test.ts,
 * test/e2e/account-history.test.ts.
 */
import type { LiveSource, LiveWatcher } from '../admin/live-feed.js';
import { type Clock, onEachTick } from '../core/clock.js';
import type { HistoryRows } from '../store/history-rows.js';
import { AccountHistory, type AccountReport } from '../telemetry/account-history.js';
import {
  HISTORY_PERIOD_SECONDS,
  HISTORY_RINGS,
  History,
  RING_NAMES,
  type RingName,
} from '../telemetry/history.js';
import type { Log } from '../telemetry/log.js';
import type { StatusDocument } from '../telemetry/status-document.js';

const MS_PER_SECOND = 1_000;

interface HistoryRecorderOptions {
  /** Reads the status of all processes. Rejects if the supervisor does not reply in time (stats.ts). */
  readonly status: () => Promise<StatusDocument>;
  /** Reads the report of each process. Rejects as `status` does. */
  readonly accountReports: () => Promise<readonly AccountReport[]>;
  /** The history on disk. */
  readonly rows: HistoryRows;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Reads the status each HISTORY_PERIOD_SECONDS, adds it to the history in memory and on disk, and passes it
 * to the live feed. If that fails, an error is logged once, until it works again. The sums of the next status
 * have the calls of both periods.
 */
export class HistoryRecorder implements LiveSource {
  readonly history = new History();
  readonly accounts = new AccountHistory();
  readonly #options: HistoryRecorderOptions;
  readonly #watchers = new Set<LiveWatcher>();
  readonly #stopTimer: () => void;
  #isReading = false;
  #hasLoggedFailure = false;
  #isClosed = false;

  constructor(options: HistoryRecorderOptions) {
    this.#options = options;
    const nowSeconds = this.#nowSeconds();
    for (const ring of RING_NAMES) {
      if (!HISTORY_RINGS[ring].onDisk) continue;
      // Damaged rows are skipped (`read` of HistoryRows).
      this.history.restore(ring, options.rows.read(ring), nowSeconds);
      this.accounts.restore(ring, options.rows.readAccounts(ring), nowSeconds);
    }
    this.#stopTimer = onEachTick(HISTORY_PERIOD_SECONDS * MS_PER_SECOND, () => void this.#record());
    // Spans count from the first read on, so a later first read would miss the first calls of a gateway.
    void this.#record();
  }

  /**
   * Calls `watcher` after each read, until the returned function is called. The only watcher is the live feed
   * of the admin server.
   */
  watch(watcher: LiveWatcher): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  /** Idempotent. A read that has begun is not recorded. */
  close(): void {
    this.#isClosed = true;
    this.#stopTimer();
  }

  /** Does nothing if the previous read is not done. */
  async #record(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    const { status, accountReports, rows, log } = this.#options;
    try {
      const document = await status();
      // Both are read before the first `add`, which returns an ended span only once: nothing may fail between
      // `add` and `put`. `put` itself never throws; if the store cannot be written, disk lacks the spans.
      const reports = await accountReports();
      // From here on nothing is awaited, so `close` cannot be called before `put`.
      if (this.#isClosed) return;
      const nowSeconds = this.#nowSeconds();
      const endedSpans = this.history.add(document, nowSeconds);
      const endedAccountSpans = this.accounts.add(reports, nowSeconds);
      const spansToWrite = endedSpans.filter(isOnDisk);
      // Running spans are written only with ended ones: alone they are not worth a flush of the disk. There
      // are none of accounts: a process that still runs reports only its ended ones (top-accounts.ts).
      if (spansToWrite.length > 0)
        spansToWrite.push(...this.history.running(document, nowSeconds).filter(isOnDisk));
      rows.put(spansToWrite, endedAccountSpans.filter(isOnDisk));
      for (const watcher of this.#watchers) watcher(document, endedSpans);
      if (this.#hasLoggedFailure) log.warn('the history is recorded again');
      this.#hasLoggedFailure = false;
    } catch (error) {
      if (!this.#hasLoggedFailure)
        log.error('the history was not recorded, or not shown', { error: String(error) });
      this.#hasLoggedFailure = true;
    } finally {
      this.#isReading = false;
    }
  }

  #nowSeconds(): number {
    return Math.floor(this.#options.clock.wallMs() / MS_PER_SECOND);
  }
}

function isOnDisk({ ring }: { readonly ring: RingName }): boolean {
  return HISTORY_RINGS[ring].onDisk;
}
