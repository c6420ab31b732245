/**
 * Writes the access log and the call log, with the calls from the listeners' call rings, and lets an operator
 * change what is logged while the gateway serves. The call log has records in segments, and contents of calls
 * in segments of their own (call-log/). The access log appends lines to its file, or writes them to standard
 * error. gateway.ts owns a GatewayLogs, on the main thread of a gateway process; main.ts names the files of
 * each process (`withOwnLogs`). The usage log is in usage-log.ts.
 *
 * Must hold: a call is on disk a second after its end, or a tenth more in a busy process, in which
 * call-log/call-writer.ts decides when to write. The ring of a dead listener is drained before its successor
 * uses the ring (listeners.ts). Further test: test/unit/gateway/gateway-logs.dropped.test.ts.
 */
import { join } from 'node:path';
import type { SlotNames } from '../call-log/block-names.js';
import { CallWriter, type GrowingSegment } from '../call-log/call-writer.js';
import { CONTENTS_BATCH_BYTES, ContentsWriter } from '../call-log/contents-writer.js';
import { CALLS_FOLDER, type CallRetention } from '../call-log/segment-files.js';
import { msToNextTick, type Clock } from '../core/clock.js';
import type { Settings } from '../config/schema.js';
import { USAGE_SOURCES } from '../core/token-counts.js';
import { CONTENTS_MESSAGE_BYTES } from '../request/call-contents.js';
import type { CallRingBuffer } from '../telemetry/call-ring-layout.js';
import { CallRingReader, type PlainCall } from '../telemetry/call-ring-reader.js';
import { ContentsBudget, type ContentsBudgetBuffer } from '../telemetry/contents-budget.js';
import { CONTENTS_HEAD_BYTES } from '../telemetry/contents-layout.js';
import { LineFile } from '../telemetry/line-file.js';
import { LogSwitch, type LogChange, type LogSwitchBuffer, type LogView } from '../telemetry/log-switch.js';
import { lineFormat, type Log } from '../telemetry/log.js';
import type { CallSink } from '../telemetry/call-record.js';
import type { DroppedCalls } from '../telemetry/metrics-source.js';
import { WHOLE_BYTES_MAX, standardError } from '../telemetry/standard-error.js';
import type { CallOutbox } from './traces.js';
import { accessLine, callRecordOf, type CallRecordNames } from './call-lines.js';

/**
 * How often the rings are drained. A ring holds eight times a busy listener's calls of this time.
 * Nobody who watches the log notices the delay.
 */
const DRAIN_PERIOD_MS = 100;
/** The period after a drain that found nothing. Longer, because each drain wakes an idle gateway. */
const IDLE_DRAIN_PERIOD_MS = 1_000;
/** Lines written at once, some 60 KB: with ten times as many, each line took four times as long (ext4). */
const LINES_AT_ONCE = 150;
/** How often dropped records are logged. */
const LOG_PERIOD_MS = 10_000;

interface GatewayLogsOptions {
  readonly settings: Settings;
  /** What all threads log; this file writes the settings into it. */
  readonly logSwitch: LogSwitchBuffer;
  readonly rings: readonly CallRingBuffer[];
  /** The memory budget for contents of each listener's calls. As `rings`, by the listener's index. */
  readonly contentsBudgets: readonly ContentsBudgetBuffer[];
  readonly names: CallRecordNames;
  /** Returns the texts that must be masked in contents: the present secrets. */
  readonly secrets: () => readonly string[];
  /**
   * Gets the records, for the last errors of upstreams in the status. Records of plain calls, which have no
   * error, come only if calls are exported.
   */
  readonly upstreamErrors: CallSink;
  readonly clock: Clock;
  readonly log: Log;
}

/** The access log, the call log and the switch of what is logged. */
export class GatewayLogs {
  readonly #log: Log;
  readonly #logSwitch: LogSwitch;
  readonly #readers: readonly CallRingReader[];
  readonly #names: CallRecordNames;
  readonly #calls: CallWriter;
  readonly #contents: ContentsWriter;
  readonly #contentsBudgets: readonly ContentsBudget[];
  readonly #upstreamErrors: CallSink;
  /** Undefined unless records of calls are exported. */
  #outbox: CallOutbox | undefined;
  /** Whether the call log is on. */
  #keepsCalls = false;
  #accessLogSettings: Settings['access_log'] | undefined;
  #accessLog: Pick<LineFile, 'append' | 'close'> | undefined;
  /** Lines for the access log, during a drain. */
  #lines: string[] = [];
  #drainTimer: NodeJS.Timeout | undefined;
  /** Records that a ring did not take, for any log, since the last log line about them. */
  #droppedUnlogged = 0;
  /** Those of them that the call log lacks, since the start. */
  #droppedRecords = 0;
  /** Rejected calls that were too many to be stored, since the start. */
  #unstoredRejections = 0;
  /** When dropped records were last logged; monotonic. */
  #loggedMs = -Infinity;

  constructor(options: GatewayLogsOptions) {
    this.#log = options.log;
    this.#logSwitch = new LogSwitch(options.logSwitch);
    this.#readers = options.rings.map((ring) => new CallRingReader(ring));
    this.#names = options.names;
    this.#upstreamErrors = options.upstreamErrors;
    const { settings, clock, log } = options;
    this.#contentsBudgets = options.contentsBudgets.map((budget) => new ContentsBudget(budget));
    this.#contents = new ContentsWriter({
      dataPath: settings.data,
      retention: contentsRetentionOf(settings),
      secrets: options.secrets,
      clock,
      log,
    });
    this.#calls = new CallWriter({
      folder: join(settings.data, CALLS_FOLDER),
      retention: retentionOf(settings),
      names: slotNamesOf(options.names),
      clock,
      log,
    });
    // `applySettings` drains before there is an access log: no listener runs yet, so the rings are empty.
    this.applySettings(settings);
  }

  /**
   * Applies the logging settings in all threads at once. A file that cannot be written fails only at its
   * first lines, which LineFile logs.
   */
  applySettings(settings: Settings): void {
    const { log, access_log: accessLog } = settings;
    this.drain();
    this.#keepsCalls = settings.call_log.enabled;
    this.#logSwitch.storesCalls = this.#keepsCalls || this.#outbox !== undefined;
    this.#calls.applyRetention(retentionOf(settings));
    this.#contents.applyRetention(contentsRetentionOf(settings));
    this.#logSwitch.level = log.level;
    this.#logSwitch.samplePercent = accessLog.sample_percent;
    this.#logSwitch.writesAccessLog = accessLog.enabled;
    if (!isSameFile(this.#accessLogSettings, accessLog)) {
      this.#accessLog?.close();
      this.#accessLog =
        accessLog.path === undefined
          ? new StandardErrorLines()
          : new LineFile({
              name: 'access log',
              path: accessLog.path,
              rotateBytes: accessLog.rotate_bytes,
              keep: accessLog.keep,
              log: this.#log,
            });
    }
    this.#accessLogSettings = accessLog;
    // Drains also if the logs are off: a listener that read the switch before may still append a record.
    this.#drainLater({ isBusy: false });
  }

  /** Sends every call from now on to `outbox` too, even if the call log is off. */
  exportTo(outbox: CallOutbox): void {
    this.#outbox = outbox;
    this.#logSwitch.storesCalls = true;
  }

  /** Starts the timer of the next drain, which starts it again. `isBusy`: the last drain found calls. */
  #drainLater({ isBusy }: { readonly isBusy: boolean }): void {
    clearTimeout(this.#drainTimer);
    const waitMs = isBusy ? DRAIN_PERIOD_MS : msToNextTick(IDLE_DRAIN_PERIOD_MS);
    this.#drainTimer = setTimeout(() => {
      const hasCalls = this.drain();
      // A call may have waited a second for this drain, and must not wait another second for the disk.
      if (hasCalls && !isBusy) this.#calls.flush();
      this.#drainLater({ isBusy: hasCalls });
    }, waitMs);
  }

  /** Changes what all threads log, at once and until the next `applySettings`. Returns what is logged. */
  changeSwitch({ level, access_log: access, sample_percent: samplePercent }: LogChange): LogView {
    const logSwitch = this.#logSwitch;
    if (level !== undefined) logSwitch.level = level;
    if (access !== undefined) logSwitch.writesAccessLog = access;
    if (samplePercent !== undefined) logSwitch.samplePercent = samplePercent;
    return {
      level: logSwitch.level,
      access_log: logSwitch.writesAccessLog,
      sample_percent: logSwitch.samplePercent,
    };
  }

  /**
   * Writes the records that listeners have appended, and returns whether there were any. listeners.ts also
   * calls it before a dead listener's successor uses the ring, because the successor's request ids differ.
   */
  drain(): boolean {
    let hasCalls = false;
    // A slot may have another name than at the last drain.
    this.#names.ids.forgetOld();
    this.#calls.forgetSlots();
    this.#readers.forEach((reader, listener) => {
      if (this.#drainRing(reader, listener)) hasCalls = true;
      this.#countLost(reader);
    });
    this.#writeLines();
    this.#outbox?.flush();
    if (this.#droppedUnlogged > 0) this.#logDropped();
    return hasCalls;
  }

  /** Writes the records of one listener's ring. Returns whether there were any. */
  #drainRing(reader: CallRingReader, listener: number): boolean {
    let hasCalls = false;
    const onPlainCall = (call: PlainCall): void => {
      hasCalls = true;
      if (this.#keepsCalls) this.#calls.appendPlain(call, listener);
    };
    reader.drain(
      (endedCall, wanted) => {
        hasCalls = true;
        const call = callRecordOf(this.#names, listener, endedCall);
        this.#upstreamErrors.append(call);
        if (wanted.store && this.#keepsCalls) this.#calls.append(call);
        if (wanted.store) this.#outbox?.append(call);
        if (!wanted.log) return;
        this.#lines.push(accessLine(call, listener));
        if (this.#lines.length >= LINES_AT_ONCE) this.#writeLines();
      },
      // Records that are exported need names, so plain calls must come as whole records too.
      this.#outbox === undefined ? onPlainCall : undefined,
    );
    return hasCalls;
  }

  /** Counts the records that the ring did not take since the last drain. */
  #countLost(reader: CallRingReader): void {
    const { dropped, droppedLogOnly, unstored } = reader.takeLost();
    this.#droppedUnlogged += dropped + droppedLogOnly;
    if (this.#keepsCalls) {
      this.#droppedRecords += dropped;
      this.#unstoredRejections += unstored;
    }
    // Records that the access log alone wanted are not exported, so exports do not lack them.
    if (dropped + unstored > 0) this.#outbox?.countDropped(dropped + unstored);
  }

  #writeLines(): void {
    if (this.#lines.length === 0) return;
    this.#accessLog?.append(this.#lines);
    this.#lines = [];
  }

  /** Writes all calls that have ended to the call log's files, so that a search finds them. */
  flushCalls(): void {
    this.drain();
    this.#calls.flush();
    this.#contents.flush();
  }

  /** The segment that the call log writes to; undefined while there is none (CallWriter). */
  get growingCalls(): GrowingSegment | undefined {
    return this.#calls.growing;
  }

  /** Appends the contents of calls, joined, that the listener of that index has sent. */
  appendContents(bytes: Uint8Array, listener: number): void {
    this.#contents.append(bytes);
    this.#contentsBudgets[listener]!.giveBack(bytes.length);
  }

  /** To be called when the listener of that index has ended: frees its memory budget for its successor. */
  onListenerEnd(listener: number): void {
    this.#contentsBudgets[listener]!.giveBackAll();
  }

  /** How many calls the call log lacks: a ring was full, the disk failed, or too many calls were rejected. */
  get dropped(): DroppedCalls {
    const contents = this.#contentsBudgets.reduce((total, { dropped }) => total + dropped, 0);
    return {
      records: this.#droppedRecords + this.#calls.dropped,
      contents: contents + this.#contents.dropped,
      rejected: this.#unstoredRejections,
    };
  }

  /** To be called when the listeners have ended, which leave their last calls in the rings. */
  close(): void {
    clearTimeout(this.#drainTimer);
    // So that `drain` logs now how many records were dropped, however soon after the last such line.
    this.#loggedMs = -Infinity;
    this.drain();
    this.#accessLog?.close();
    this.#calls.close();
    this.#contents.close();
  }

  /** Logs how many records were dropped, once in LOG_PERIOD_MS. */
  #logDropped(): void {
    const nowMs = performance.now();
    if (nowMs - this.#loggedMs < LOG_PERIOD_MS) return;
    this.#loggedMs = nowMs;
    this.#log.warn('calls are missing in the access log and the call log: more ended than could be written', {
      dropped: this.#droppedUnlogged,
    });
    this.#droppedUnlogged = 0;
  }
}

/** Writes the access log to standard error, among the gateway's other log lines. */
class StandardErrorLines {
  readonly #format = lineFormat();

  /**
   * Writes as many lines at once as the system writes in one piece, so that lines of other threads come
   * between the pieces and not within one.
   */
  append(lines: readonly string[]): void {
    let piece = '';
    let lineCount = 0;
    const writePiece = (): void => {
      if (lineCount > 0) standardError().write(Buffer.from(piece), lineCount);
      piece = '';
      lineCount = 0;
    };
    for (const line of lines) {
      const formatted = this.#format(`${line}\n`);
      if (Buffer.byteLength(piece) + Buffer.byteLength(formatted) > WHOLE_BYTES_MAX) writePiece();
      piece += formatted;
      lineCount += 1;
    }
    writePiece();
  }

  close(): void {
    standardError().flush();
  }
}

/** Returns the names by slot that the call log looks up for plain calls. Exported for the test. */
export function slotNamesOf(names: CallRecordNames): SlotNames {
  return {
    requestPrefixOf: names.requestPrefixOf,
    accountIdOf: (account) => names.ids.accountIdOf(account),
    keyIdOf: (key) => names.ids.keyIdOf(key),
    modelIdOf: names.modelIdOf,
    upstreamNameOf: (upstream) => names.upstreamNameOf(upstream) ?? null,
    groupNameOf: names.groupNameOf,
    sourceOf: (source) => USAGE_SOURCES[source]!,
  };
}

function retentionOf({ call_log: callLog, processes }: Settings): CallRetention {
  return { keepHours: callLog.keep_hours, keepBytes: callLog.keep_bytes, processes };
}

function contentsRetentionOf({ call_log: callLog, processes }: Settings): CallRetention {
  const { contents_keep_hours: keepHours, contents_keep_bytes: keepBytes } = callLog;
  // The longest block: a batch, then a listener's message, at whose end are two texts with their heads.
  const callBytes = 2 * (callLog.contents_body_bytes + CONTENTS_HEAD_BYTES);
  const blockBytes = CONTENTS_BATCH_BYTES + CONTENTS_MESSAGE_BYTES + callBytes;
  return { keepHours, keepBytes, processes, blockBytes };
}

/** Whether the access log goes on in the file that is open. `former` is undefined at the start. */
function isSameFile(
  former: Settings['access_log'] | undefined,
  { path, rotate_bytes: rotateBytes, keep }: Settings['access_log'],
): boolean {
  return (
    former !== undefined &&
    former.path === path &&
    former.rotate_bytes === rotateBytes &&
    former.keep === keep
  );
}

/**
 * Returns the settings with the log files of the gateway in that slot of its group. A file has one writer,
 * which rotates it: slot 0 writes `path`, the others `path.p1`, `path.p2` and so on.
 */
export function withOwnLogs(settings: Settings, slot: number): Settings {
  const { usage_log: usageLog, access_log: accessLog } = settings;
  const ownPath = (path: string): string => (slot === 0 ? path : `${path}.p${slot}`);
  return {
    ...settings,
    ...(usageLog === undefined ? {} : { usage_log: { ...usageLog, path: ownPath(usageLog.path) } }),
    access_log: accessLog.path === undefined ? accessLog : { ...accessLog, path: ownPath(accessLog.path) },
  };
}
