/**
 * The usage log: a line for each record of a journal that a flush counts, appended to the file that the
 * settings name. call-lines.ts makes the lines. accounting-base.ts makes the log, store/flush.ts calls it, on
 * the main thread of a gateway process.
 *
 * Must hold: lines wait for the end of the flush that counts their records, unless there are more than
 * USAGE_LINES_WAITING_MAX (test/unit/gateway/gateway-logs.test.ts).
 */
import type { Settings } from '../config/schema.js';
import type { JournalRecord } from '../ledger/journal-layout.js';
import type { UsageKey } from '../registry/usage-report.js';
import { LineFile } from '../telemetry/line-file.js';
import type { Log } from '../telemetry/log.js';
import { usageLine, type CallNames } from './call-lines.js';

/** Lines that wait for the end of a flush: about 5 MB, from a fraction of a second of the busiest gateway. */
const USAGE_LINES_WAITING_MAX = 20_000;

/** store/flush.ts calls `add` for each record, and `write` after each transaction. */
export class UsageLog {
  readonly #names: CallNames;
  readonly #file: Pick<LineFile, 'append' | 'close'>;
  #lines: string[] = [];

  constructor(names: CallNames, file: Pick<LineFile, 'append' | 'close'>) {
    this.#names = names;
    this.#file = file;
  }

  /**
   * Adds a line for a record that was counted in the usage row `row`. The listener's `requestPrefix` and the
   * record's number make the request id.
   */
  add(requestPrefix: string, record: JournalRecord, row: Pick<UsageKey, 'keyId' | 'modelId'>): void {
    this.#lines.push(usageLine(this.#names, requestPrefix, record, row));
    if (this.#lines.length >= USAGE_LINES_WAITING_MAX) this.write();
  }

  /** Gives the lines to the file, even if the store rejected the transaction: the calls were made anyway. */
  write(): void {
    if (this.#lines.length === 0) return;
    this.#file.append(this.#lines);
    this.#lines = [];
  }

  close(): void {
    this.write();
    this.#file.close();
  }
}

/** Returns undefined if the settings have no usage log. */
export function usageLogOf(
  { usage_log: usageLog }: Settings,
  names: CallNames,
  log: Log,
): UsageLog | undefined {
  if (usageLog === undefined) return undefined;
  const { path, rotate_bytes: rotateBytes, keep } = usageLog;
  return new UsageLog(names, new LineFile({ name: 'usage log', path, rotateBytes, keep, log }));
}
