/**
 * One gateway process, from fork to exit: forks it, exchanges the messages of gateway/messages.ts with it,
 * and kills it if it does not start or end in time. GroupMember creates one for each life of a gateway. Runs
 * in the supervisor process.
 *
 * After the process has ended, messages to it are dropped, and a question to it resolves by its timeout.
 *
 * Must hold (test/unit/supervisor/supervisor.test.ts, where no other file is named):
 * - Each process ends once for the owner: `onExit` comes exactly once, and after the last message, so that
 *   `refused` is not lost. A fork that fails, such as without memory, is an exit too
 *   (test/unit/supervisor/group-member.start-later.test.ts).
 * - A start, and the time from `refused` to the exit, have a bound; then the process is killed.
 * - A gateway that serves and sends no message for `silentMsMax`, not even `alive`, is killed. The time is
 *   counted in checks of the supervisor (`#checkAlive`), because a clock goes on while it is stopped.
 * - No promise rejects.
 */
import { type ChildProcess, fork } from 'node:child_process';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import type { Settings } from '../config/schema.js';
import { PendingReplies } from '../core/ask-port.js';
import {
  type FromGateway,
  LAST_SNAPSHOT_ID,
  START_REJECTED_EXIT_CODE,
  type GatewayReady,
  type Broadcast,
  type ReloadOutcome,
  type ReloadRequest,
  type StartGateway,
  type ToGateway,
  type GroupSnapshot,
  type Snapshot,
  type SnapshotKind,
} from '../gateway/messages.js';
import { memoryKills } from '../gateway/memory-limit.js';
import type { Log } from '../telemetry/log.js';
import { LOG_DESCRIPTOR_VARIABLE } from '../telemetry/standard-error.js';
import { exitText } from './exit-cause.js';
import { callLater } from './late-timer.js';
import { logStrayOutput } from './stray-output.js';

export interface GatewayExit {
  /** How the process ended, for the log: `exit code 1`, or `signal SIGABRT` with what may have caused it. */
  readonly how: string;
  /** Whether the exit code was 0. */
  readonly clean: boolean;
  /** Why the gateway refused to start; undefined if it did not. process-group.ts decides what follows. */
  readonly rejection: string | undefined;
}

/** What a gateway asks of the group or tells it, mostly for operators. No promise rejects. */
export interface GatewayRequests {
  onReloadRequested(request: ReloadRequest): Promise<ReloadOutcome>;
  /** Asks for the snapshots of all gateways. */
  onSnapshotsRequested(kind: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot>;
  /** Changes something at all gateways. */
  onBroadcast(message: Broadcast): void;
  /** The gateway has dealt with the `record_reload` of this id. */
  onRecorded(id: number | undefined): void;
}

interface GatewayCallbacks {
  /** Called at most once, before `onExit`, and not after `kill`. */
  onReady(ready: GatewayReady): void;
  /** Called exactly once, after the constructor has returned, also if there was no process. */
  onExit(exit: GatewayExit): void;
  /** The admin interface is open, after `lead`. */
  onLeads(): void;
  /** The last snapshot, sent before the gateway ends. */
  onLastSnapshot(snapshot: Snapshot): void;
  readonly requests: GatewayRequests;
}

export interface GatewayProcessOptions {
  /** The address of a gateway's main module. */
  readonly entry: URL;
  /** A gateway that is not ready after this time is killed. */
  readonly readyMsMax: number;
  /** A gateway that serves and sends no message for this time counts as hanging, and is killed. */
  readonly silentMsMax: number;
  /** The time from `refused` to the exit. Then the gateway is killed. process-group.ts adds it to a drain. */
  readonly exitGraceMs: number;
  /** The time in which a gateway must hand new settings to its threads. */
  readonly reloadMsMax: number;
  readonly log: Log;
}

/**
 * A gateway sends a snapshot within some milliseconds unless its main thread is busy. Operators do not wait
 * longer for a busy one: its latest snapshot counts (group-snapshots.ts).
 */
const READ_MS_MAX = 1_000;

/**
 * How many checks without a message a gateway may have; at the next it is killed, after `silentMsMax` at
 * least and one check more at most. One is too few: when a sleeping machine wakes for a moment, the
 * supervisor may have time to check and the gateway none to send.
 */
const SILENT_CHECKS_MAX = 12;

/**
 * Arenas of glibc's malloc. One thread allocates a buffer and another frees it, so with one arena for each
 * thread all arenas fragment: after 5,000 streams 316 MB were resident, with two arenas 244 MB.
 */
const MALLOC_ARENA_MAX = '2';

/**
 * glibc returns freed buffers longer than the first value to the system, and keeps at most the second value
 * free at an arena's end. If the values are not set, glibc raises both to the longest buffer freed, up to
 * 32 MiB, so large bodies stay in the arenas: 200 bodies of 10 MiB, all garbage collected, left 64 MiB more
 * resident than before (128 in all). With these values such bodies leave 8 MiB.
 */
const MALLOC_MMAP_THRESHOLD_ = String(1024 * 1024);
const MALLOC_TRIM_THRESHOLD_ = String(2 * 1024 * 1024);

/**
 * Tells lmdb which C library there is. Otherwise lmdb loads `node:child_process` and more to find out: 5 ms
 * of CPU. µWS runs on no other library. On macOS and Windows lmdb takes the same value.
 */
const LIBC = 'glibc';

/** Bytes of request headers that µWS accepts, instead of 4,096: some proxies add long cookies and baggage. */
const UWS_HTTP_MAX_HEADERS_SIZE = '16384';

/** The supervisor's file descriptor for its log. */
const STANDARD_ERROR = 2;
/** A gateway's descriptor for its log: its index in `stdio`, after the standard ones and the IPC channel. */
const LOG_DESCRIPTOR = 4;

/**
 * Starts the main module of a gateway. If the system gives no process, the function throws, or the child
 * emits 'error'. A variable of the same name that an operator has set replaces a constant above.
 */
function forkGateway(entry: URL): ChildProcess {
  return fork(fileURLToPath(entry), [], {
    env: {
      LIBC,
      MALLOC_ARENA_MAX,
      MALLOC_MMAP_THRESHOLD_,
      MALLOC_TRIM_THRESHOLD_,
      UWS_HTTP_MAX_HEADERS_SIZE,
      ...process.env,
      [LOG_DESCRIPTOR_VARIABLE]: String(LOG_DESCRIPTOR),
    },
    // A flag of V8 costs a start 80 ms of CPU: gateway-start.ts sets those that threads want.
    execArgv: process.execArgv,
    serialization: 'advanced',
    // Standard output and the log go where the supervisor's go. Standard error is a pipe, because what
    // native code writes there would break the log's JSON lines.
    stdio: ['ignore', 'inherit', 'pipe', 'ipc', STANDARD_ERROR],
  });
}

export class GatewayProcess {
  readonly #options: GatewayProcessOptions;
  /** Undefined if the fork threw. */
  readonly #child: ChildProcess | undefined;
  readonly #callbacks: GatewayCallbacks;
  /** Cancels the timer of `#killLater`. It runs from the fork to `ready`, and from `refused` to the exit. */
  #cancelKill: () => void = () => undefined;
  /** Whether `ready` has come. */
  #hasServed = false;
  /** Runs from `ready` to the exit. */
  #aliveTimer: NodeJS.Timeout | undefined;
  /** How many checks there were since the last message. */
  #silentChecks = 0;
  /** Why the supervisor has killed the process, for GatewayExit.how; undefined if it has not. */
  #killedFor: string | undefined;
  /** Why the gateway refused to start; undefined if it did not. */
  #rejection: string | undefined;
  /** What the kernel had killed for memory when this process was started. */
  readonly #kernelKillsBefore = memoryKills();
  /** One at a time, because Reloads runs reloads in sequence. */
  readonly #reloads: PendingReplies<readonly string[]>;
  /** Few at a time: GroupSnapshots shares questions of a kind, except those that name accounts. */
  readonly #snapshots = new PendingReplies<Snapshot>({ waitMsMax: READ_MS_MAX, onTimeout: () => ({}) });

  /** Forks `entry` and sends it `start`. The gateway is killed if it is not ready within `readyMsMax`. */
  constructor(options: GatewayProcessOptions, start: StartGateway, callbacks: GatewayCallbacks) {
    this.#options = options;
    this.#callbacks = callbacks;
    this.#reloads = new PendingReplies<readonly string[]>({
      waitMsMax: options.reloadMsMax,
      onTimeout: () => [`the gateway did not answer within ${options.reloadMsMax} ms`],
    });
    try {
      this.#child = forkGateway(options.entry);
    } catch (error) {
      // Some errors of the system come as 'error', others are thrown. `onExit` must follow later in both
      // cases, because the owner has no process before the constructor has returned.
      setImmediate(() => this.#onEnd({ how: `no process: ${(error as Error).message}`, clean: false }));
      return;
    }
    this.#listenTo(this.#child, start.settings.data);
    this.send(start);
  }

  #listenTo(child: ChildProcess, dataPath: string): void {
    // `stderr` is undefined, although its type forbids that, if a lack of descriptors made the fork fail.
    const { stderr } = child as { readonly stderr?: Readable | null };
    if (stderr) logStrayOutput(stderr, child.pid ?? 0, this.#options.log);
    const { readyMsMax } = this.#options;
    this.#killLater(readyMsMax, `not ready after ${readyMsMax} ms, killed`);
    child.on('message', (message) => this.#onMessage(message as FromGateway));
    child.on('error', (error) => {
      // After a failed fork there is no 'exit'. Any other error is followed by 'exit', so nothing is to do.
      // The listener stays: an 'error' without a listener would end the supervisor.
      if (child.pid === undefined) this.#onEnd({ how: `no process: ${error.message}`, clean: false });
    });
    child.once('exit', (code, signal) => {
      const killsBefore = this.#kernelKillsBefore;
      const how = exitText({ code, signal, hasServed: this.#hasServed, dataPath, killsBefore });
      const onLastMessage = (): void => {
        if (code === START_REJECTED_EXIT_CODE) this.#rejection ??= 'the gateway refused to start';
        this.#onEnd({ how, clean: code === 0 });
      };
      // 'exit' can come before the last message is read, and `refused` must not be lost.
      if (child.connected) child.once('disconnect', onLastMessage);
      else onLastMessage();
    });
  }

  /**
   * Sends new settings, or with `check` asks whether the gateway could apply them. Resolves with the problems
   * or an empty list. That the gateway ends or does not reply in time is a problem too.
   */
  reload(settings: Settings, { check }: { readonly check: boolean }): Promise<readonly string[]> {
    return this.#reloads.ask((id) => this.send({ kind: 'reload', id, settings, check }));
  }

  /** Asks for a snapshot. Resolves with an empty one if the gateway ends or does not reply in time. */
  read(kind: SnapshotKind, accounts?: readonly string[]): Promise<Snapshot> {
    return this.#snapshots.ask((id) => this.send({ kind: 'read', id, what: kind, accounts }));
  }

  /** `reason`: of the first call, for GatewayExit.how. */
  kill(reason: string): void {
    this.#killedFor ??= reason;
    this.#child?.kill('SIGKILL');
  }

  /** Sends a message, or drops it if the gateway has ended. `read` and `reload` wait for a reply too. */
  send(message: ToGateway): void {
    if (!this.#child?.connected) return;
    // Without a callback an error would come as 'error'. It means that the gateway ends, which is reported.
    this.#child.send(message, () => undefined);
  }

  /** Kills the process after `waitMs`, unless `#cancelKill` or another `#killLater` is called before. */
  #killLater(waitMs: number, reason: string): void {
    this.#cancelKill();
    this.#cancelKill = callLater(waitMs, () => this.kill(reason));
  }

  /** Kills the gateway after too many checks without a message. Any message sets the count to 0. */
  #checkAlive(): void {
    this.#silentChecks += 1;
    if (this.#silentChecks <= SILENT_CHECKS_MAX || this.#killedFor !== undefined) return;
    const { silentMsMax, log } = this.#options;
    log.error('a gateway hangs and is killed: its main thread gives no sign of life', {
      gateway: this.#child?.pid,
      silent_ms: silentMsMax,
    });
    this.kill(`no sign of life for ${silentMsMax} ms, killed`);
  }

  #onMessage(message: FromGateway): void {
    this.#silentChecks = 0;
    const { silentMsMax, exitGraceMs } = this.#options;
    switch (message.kind) {
      case 'ready':
        // A process that was killed may still have sent it.
        if (this.#killedFor !== undefined) return;
        this.#cancelKill();
        this.#hasServed = true;
        this.#aliveTimer = setInterval(() => this.#checkAlive(), silentMsMax / SILENT_CHECKS_MAX);
        this.#callbacks.onReady(message);
        return;
      case 'refused':
        this.#rejection = message.message;
        this.#killLater(exitGraceMs, `not ended ${exitGraceMs} ms after its refusal, killed`);
        return;
      case 'leads':
        this.#callbacks.onLeads();
        return;
      case 'alive':
        return;
      case 'reloaded':
        this.#reloads.reply(message.id, message.problems);
        return;
      case 'recorded':
        this.#callbacks.requests.onRecorded(message.id);
        return;
      case 'reading':
        if (message.id === LAST_SNAPSHOT_ID) this.#callbacks.onLastSnapshot(message.reading);
        else this.#snapshots.reply(message.id, message.reading);
        return;
      case 'ask_readings':
        void this.#callbacks.requests
          .onSnapshotsRequested(message.what, message.accounts)
          .then((snapshots) => this.send({ kind: 'readings', id: message.id, readings: snapshots }));
        return;
      case 'log':
      case 'reset_upstreams':
      case 'clear_cache':
        this.#callbacks.requests.onBroadcast(message);
        return;
      case 'ask_reload':
        void this.#callbacks.requests
          .onReloadRequested(message.request)
          .then((outcome) => this.send({ kind: 'outcome', id: message.id, outcome }));
        return;
      default:
        // A gateway of another version may send kinds that this one does not know.
        message satisfies never;
    }
  }

  /** Called once: after 'exit' and the last message, or after a fork that failed. */
  #onEnd({ how: howItEnded, clean }: { readonly how: string; readonly clean: boolean }): void {
    const how = this.#killedFor ?? howItEnded;
    this.#cancelKill();
    clearInterval(this.#aliveTimer);
    this.#reloads.replyToAll([`the gateway ended (${how}) before it had taken the settings; reload again`]);
    this.#snapshots.replyToAll({});
    this.#callbacks.onExit({ how, clean, rejection: this.#rejection });
  }
}
