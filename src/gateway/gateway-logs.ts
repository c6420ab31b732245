/**
 * What a gateway logs of its calls, and how that changes while it serves: takes the access log out of the listeners' rings and
 * writes it, to a file or among the events on standard error. Main thread.
 */
import { msToNextTick } from '../core/clock.js';
import type { Settings } from '../config/schema.js';
import type { AccessBuffer } from '../telemetry/access-layout.js';
import { AccessReader } from '../telemetry/access-ring.js';
import { LineBuffer } from '../telemetry/line-buffer.js';
import { LineFile } from '../telemetry/line-file.js';
import { type Log, LogSwitch, type LogSwitchBuffer, type LogChange, type LogView } from '../telemetry/log.js';
import { StandardErrorLines } from '../telemetry/standard-error.js';
import { AccessLines, type AccessNames } from './access-line.js';

/** A busy listener's calls of this time fit its ring eight times; on a screen lines come without a wait that is felt. */
const DRAIN_PERIOD_MS = 100;
/** The same after a look that has found nothing: a look wakes a gateway at rest. */
const IDLE_DRAIN_PERIOD_MS = 250;
/** Lines that are written at once: some 150. Ten times as many at once took four times as long a line (ext4). */
const BATCH_BYTES = 60 * 1024;
/** Records that were dropped are told so often. */
const LOG_PERIOD_MS = 10_000;

export interface GatewayLogsOptions {
  readonly settings: Settings;
  readonly control: LogSwitchBuffer;
  /** One a listener, by index. */
  readonly rings: readonly AccessBuffer[];
  readonly names: AccessNames;
  readonly log: Log;
}

/** Where lines go. */
interface Output {
  /** Whole lines, each with its newline, copied where they are kept. `isMore`: others of the same moment came just before. */
  appendBytes(lines: Buffer, isMore: boolean): void;
  close(): void;
}

export class GatewayLogs {
  readonly #log: Log;
  readonly #control: LogSwitch;
  readonly #readers: readonly AccessReader[];
  readonly #lines: AccessLines;
  readonly #buffer = new LineBuffer();
  #settings: Settings['access_log'] | undefined;
  #output: Output | undefined;
  #timer: NodeJS.Timeout | undefined;
  #dropped = 0;
  #loggedAtMs = -Infinity;

  constructor(options: GatewayLogsOptions) {
    this.#log = options.log;
    this.#control = new LogSwitch(options.control);
    this.#readers = options.rings.map((ring) => new AccessReader(ring));
    this.#lines = new AccessLines(options.names);
    this.apply(options.settings);
  }

  /** From now on as `settings` say, in all threads at once. A file that cannot be written is told with the first lines. */
  apply({ log, access_log: accessLog }: Pick<Settings, 'log' | 'access_log'>): void {
    this.drain();
    this.#control.level = log.level;
    this.#control.samplePercent = accessLog.sample_percent;
    this.#control.access = accessLog.enabled;
    if (!isSameFile(this.#settings, accessLog)) {
      this.#output?.close();
      this.#output = outputOf(accessLog, this.#log);
    }
    this.#settings = accessLog;
    // Also where the log is off: a call that had looked before may append after.
    this.#drainLater(false);
  }

  #drainLater(wereAny: boolean): void {
    clearTimeout(this.#timer);
    const waitMs = wereAny ? DRAIN_PERIOD_MS : msToNextTick(performance.now(), IDLE_DRAIN_PERIOD_MS);
    this.#timer = setTimeout(() => this.#drainLater(this.drain()), waitMs);
  }

  /** Puts what is named of it in force until `apply`, in all threads at once; returns what is logged then. */
  change({ level, access_log: access, sample_percent: samplePercent }: LogChange): LogView {
    const control = this.#control;
    if (level !== undefined) control.level = level;
    if (access !== undefined) control.access = access;
    if (samplePercent !== undefined) control.samplePercent = samplePercent;
    return { level: control.level, access_log: control.access, sample_percent: control.samplePercent };
  }

  /** Writes what the listeners have appended. Before another listener goes on in the ring of one that died, too: its calls have other names. True if there was any. */
  drain(): boolean {
    let isAny = false;
    let isMore = false;
    const handOver = (): void => {
      this.#buffer.drain((lines) => this.#output?.appendBytes(lines, isMore));
      isMore = true;
    };
    this.#readers.forEach((reader, listener) => {
      reader.drain((record) => {
        isAny = true;
        this.#lines.write(this.#buffer, listener, record);
        if (this.#buffer.length >= BATCH_BYTES) handOver();
      });
      this.#dropped += reader.takeDropped();
    });
    handOver();
    if (this.#dropped > 0) this.#tellDropped();
    return isAny;
  }

  close(): void {
    clearTimeout(this.#timer);
    this.drain();
    this.#output?.close();
  }

  #tellDropped(): void {
    const nowMs = performance.now();
    if (nowMs - this.#loggedAtMs < LOG_PERIOD_MS) return;
    this.#loggedAtMs = nowMs;
    this.#log.warn('calls are missing in the access log: more ended than could be written', {
      dropped: this.#dropped,
    });
    this.#dropped = 0;
  }
}

function isSameFile(
  before: Settings['access_log'] | undefined,
  { path, rotate_bytes: rotateBytes, keep }: Settings['access_log'],
): boolean {
  return before?.path === path && before?.rotate_bytes === rotateBytes && before.keep === keep;
}

function outputOf({ path, rotate_bytes: rotateBytes, keep }: Settings['access_log'], log: Log): Output {
  if (path === undefined) return new StandardErrorLines();
  return new LineFile({ name: 'access log', path, rotateBytes, keep, log });
}

/*
 * Where the gateways of a group write the logs of their calls: each to files of its own, because a file is rotated by the one
 * who writes it. Main thread.
 */

/** The first writes `path`, the others `path.p1`, `path.p2` and so on. */
export function withOwnLogs(settings: Settings, slot: number): Settings {
  const { usage_log: usageLog, access_log: accessLog } = settings;
  const own = (path: string): string => (slot === 0 ? path : `${path}.p${slot}`);
  return {
    ...settings,
    ...(usageLog === undefined ? {} : { usage_log: { ...usageLog, path: own(usageLog.path) } }),
    access_log: accessLog.path === undefined ? accessLog : { ...accessLog, path: own(accessLog.path) },
  };
}
