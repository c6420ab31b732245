/**
 * The usage log: a line for each call that a flush counts, appended to the file that the settings name.
 * accounting-base.ts makes it, store/flush.ts calls it, on the main thread of a gateway process.
 *
 * Must hold: lines wait for the end of the flush that counts their calls, unless there are more than memory
 * should hold (test/unit/gateway/gateway-logs.test.ts).
 */
import type { Settings } from '../config/schema.js';
import type { JournalRecord } from '../ledger/journal-layout.js';
import type { UsageKey } from '../registry/usage-report.js';
import { LineFile } from '../telemetry/line-file.js';
import type { Log } from '../telemetry/log.js';
import { usageLine, type CallNames } from './call-lines.js';

/** Lines that wait for the end of a flush: about 5 MB, a fraction of a second of the busiest gateway. */
const USAGE_LINES_WAITING_MAX = 20_000;

/** The flush passes it each record that it counts, and has it write the lines after each transaction. */
export class UsageLog {
  readonly #names: CallNames;
  readonly #output: Pick<LineFile, 'append' | 'close'>;
  #lines: string[] = [];

  constructor(names: CallNames, output: Pick<LineFile, 'append' | 'close'>) {
    this.#names = names;
    this.#output = output;
  }

  /**
   * Adds a call, whose record was counted in the usage row `row`. `requestPrefix`, of the listener, and the
   * record's number make the request id.
   */
  note(requestPrefix: string, record: JournalRecord, row: Pick<UsageKey, 'keyId' | 'modelId'>): void {
    this.#lines.push(usageLine(this.#names, requestPrefix, record, row));
    if (this.#lines.length >= USAGE_LINES_WAITING_MAX) this.handOver();
  }

  /** Writes the lines, also if the store rejected the transaction: the calls were made anyway. */
  handOver(): void {
    if (this.#lines.length === 0) return;
    this.#output.append(this.#lines);
    this.#lines = [];
  }

  close(): void {
    this.handOver();
    this.#output.close();
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
