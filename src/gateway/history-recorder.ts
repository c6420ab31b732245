/**
 * Reads the status every two seconds, adds it to the history in memory and on disk, and passes it to the
 * watchers of the live feed. AdminService creates it in the gateway that has the admin interface. Runs on the
 * main thread of a gateway process. If the status cannot be read, the history lacks these two seconds, and an
 * error is logged.
 *
 * Tests: test/unit/telemetry/history.test.ts, test/e2e/account-history.test.ts.
 */
import type { LiveSource } from '../admin/live-feed.js';
import { type Clock, onEachTick } from '../core/clock.js';
import type { HistoryRows } from '../store/history-rows.js';
import { AccountHistory } from '../telemetry/account-history.js';
import type { AccountReport } from '../telemetry/top-accounts.js';
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

export interface HistoryRecorderOptions {
  readonly status: () => Promise<StatusDocument>;
  readonly accounts: () => Promise<readonly AccountReport[]>;
  readonly rows: HistoryRows;
  readonly clock: Clock;
  readonly log: Log;
}

export class HistoryRecorder implements LiveSource {
  readonly history = new History();
  readonly accounts = new AccountHistory();
  readonly #options: HistoryRecorderOptions;
  readonly #watchers = new Set<Parameters<LiveSource['watch']>[0]>();
  readonly #stop: () => void;
  #isReading = false;

  constructor(options: HistoryRecorderOptions) {
    this.#options = options;
    for (const ring of RING_NAMES) {
      if (!HISTORY_RINGS[ring].onDisk) continue;
      this.history.restore(ring, options.rows.read(ring), this.#nowSeconds());
      this.accounts.restore(ring, options.rows.readAccounts(ring), this.#nowSeconds());
    }
    this.#stop = onEachTick(HISTORY_PERIOD_SECONDS * MS_PER_SECOND, () => void this.#record());
  }

  /** Calls `watcher` after each read. Returns a function that ends this. */
  watch(watcher: Parameters<LiveSource['watch']>[0]): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  close(): void {
    this.#stop();
  }

  /** Does nothing if the previous read is not done. */
  async #record(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    const { status, accounts, rows, log } = this.#options;
    try {
      const document = await status();
      const ended = this.history.add(document, this.#nowSeconds());
      const complete = this.accounts.add(await accounts(), this.#nowSeconds());
      rows.put(ended.filter(isOnDisk), complete.filter(isOnDisk));
      for (const watcher of this.#watchers) watcher(document, ended);
    } catch (error) {
      log.error('the history was not recorded', { error: String(error) });
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
