/**
 * The usage log: makes its lines and appends them. accounting-base.ts makes the UsageLog, store/flush.ts
 * fills it. Main thread of a gateway process. The log has a line for every record of the journal:
 *
 *     {"time":"2025-01-31T12:00:00.000Z","request_id":"req_3fQx0aZcW8Lk-1c","account":"acct_…",
 *      "key":"key_…","model":"gpt-4o-mini","answered_model":"gpt-4o-mini","outcome":"served",
 *      "prompt_tokens":9,"cached_tokens":0,"cache_write_tokens":0,"cache_write_1h_tokens":0,
 *      "completion_tokens":12,"reasoning_tokens":0,"source":"reported","cost":"0.00000855",
 *      "uncovered":"0.00","duration_ms":640}
 *
 * `time` is when the call ended. `outcome` is `served`, an error code, `reversed` (the line takes back the
 * charge of an earlier line of the request) or `collected` (the line charges what an earlier line left
 * uncovered). `source` is null if `outcome` is an error code.
 *
 * Must hold: a line is JSON whatever names and numbers it has. People parse these lines, so a member keeps
 * its name. Lines wait for the end of the flush that counts their records, unless there are more than
 * USAGE_LINES_WAITING_MAX (test/unit/gateway/gateway-logs.test.ts).
 */
import type { Settings } from '../config/schema.js';
import { decimalOf } from '../core/money.js';
import { USAGE_SOURCES } from '../core/token-counts.js';
import type { JournalOutcome, JournalRecord } from '../ledger/journal-layout.js';
import type { UsageRowKey } from '../registry/usage-report.js';
import { chargeText, quotedAsIs, requestIdOf, timeText } from '../telemetry/call-record.js';
import { LineFile } from '../telemetry/line-file.js';
import type { Log } from '../telemetry/log.js';
import type { IdNames } from './id-names.js';

/** The outcomes that have a `source`. All other outcomes are error codes. */
const SERVED_OUTCOMES: readonly JournalOutcome[] = ['served', 'reversed', 'collected'];

/** Looks up the names in lines. */
export interface CallNames {
  readonly ids: Pick<IdNames, 'accountIdOf' | 'keyIdOf'>;
  readonly modelIdOf: (modelIndex: number) => string;
}

/**
 * Returns the line of a record of a journal, without a newline. `row` is the usage row in which
 * the call was counted, so `row.modelId` is the id of `record.model`.
 */
export function usageLine(
  names: CallNames,
  requestPrefix: string,
  record: JournalRecord,
  row: Pick<UsageRowKey, 'keyId' | 'modelId'>,
): string {
  const answered = JSON.stringify(row.modelId);
  const model =
    record.requested === record.model ? answered : JSON.stringify(names.modelIdOf(record.requested));
  const source = SERVED_OUTCOMES.includes(record.outcome) ? USAGE_SOURCES[record.source]! : null;
  return (
    `{"time":"${timeText(record.endedMs)}","request_id":"${requestIdOf(requestPrefix, record.request)}",` +
    `"account":${quotedAsIs(names.ids.accountIdOf(record.account))},"key":${quotedAsIs(row.keyId)},` +
    `"model":${model},"answered_model":${source === null ? 'null' : answered},"outcome":"${record.outcome}",` +
    `${chargeText(record, source, record.charged)},` +
    `"uncovered":"${decimalOf(record.uncovered)}","duration_ms":${record.durationMs}}`
  );
}

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
  add(requestPrefix: string, record: JournalRecord, row: Pick<UsageRowKey, 'keyId' | 'modelId'>): void {
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
