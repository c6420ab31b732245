/**
 * One gateway process, from fork to exit: what it is started with, what is sent to it, what it sends, and
 * when it is killed. Supervisor process.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Settings } from '../config/schema.js';
import { PendingReplies } from '../core/ask-port.js';
import {
  type FromGateway,
  GATEWAY_REFUSED_EXIT_CODE,
  type GatewayReady,
  type PublishLog,
  type ReloadOutcome,
  type ReloadRequest,
  type StartGateway,
  type ToGateway,
  type GroupSnapshot,
  type Snapshot,
  type SnapshotKind,
} from '../gateway/messages.js';
import type { Log } from '../telemetry/log.js';
import { LOG_DESCRIPTOR_VARIABLE } from '../telemetry/standard-error.js';
import type { Readable } from 'node:stream';

export interface GatewayExit {
  /** How it ended, for the log: `exit code 1`, `signal SIGABRT`. */
  readonly how: string;
  /** Whether it ended with exit code 0. */
  readonly clean: boolean;
  /** Why it must not be started again; undefined if it may be. */
  readonly refusal: string | undefined;
}

export interface GatewayCallbacks {
  /** At most once, and before onExit. */
  onReady(ready: GatewayReady): void;
  /** Exactly once. */
  onExit(exit: GatewayExit): void;
  /** It has the admin interface, which it was told to have. */
  onLeads(): void;
  /** Its figures, told by itself before its end. */
  onLastReading(snapshot: Snapshot): void;
  /** An operator asks this gateway for a reload; never rejects. */
  onReloadAsked(request: ReloadRequest): Promise<ReloadOutcome>;
  /** An operator asks this gateway for the figures of all; never rejects. */
  onReadingsAsked(what: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot>;
  /** An operator changes there what all gateways log. */
  onLogChanged(change: PublishLog['change']): void;
  /** An operator there says that upstreams of that model, or of all, are well. */
  onUpstreamsReset(model: string | undefined): void;
}

export interface GatewayProcessOptions {
  /** The gateway's main module. */
  readonly entry: URL;
  /** A start that takes longer has hung. */
  readonly readyMsMax: number;
  /**
   * What a gateway that has nothing left to serve may take for its last flush and its end; then it is killed.
   */
  readonly exitGraceMs: number;
  /** What a gateway may take to give new settings to its threads. */
  readonly reloadMsMax: number;
  readonly log: Log;
}

/** Some milliseconds, where the main thread is not busy; an operator does not wait longer for one that is. */
const READ_MS_MAX = 1_000;

/**
 * Arenas of glibc's allocator in a gateway. Buffers are made in one thread and freed in another, which with
 * one arena a thread leaves each full of holes: after 5,000 streams 316 MB were resident, with two arenas 244
 * MB.
 */
const MALLOC_ARENA_MAX = '2';

/**
 * Longer buffers go back to the system when they are freed, and so much free memory may stay at an arena's
 * end. glibc moves both with the longest buffer that was freed, up to 32 MiB, so that after large bodies each
 * one's memory stayed in an arena: 128 MiB were resident after 200 of 10 MiB, all garbage collected, 64 MiB
 * more than before them; with these, 8 MiB more.
 */
const MALLOC_MMAP_THRESHOLD_ = String(1024 * 1024);
const MALLOC_TRIM_THRESHOLD_ = String(2 * 1024 * 1024);

/**
 * How much V8 puts together when it compiles a function of a gateway, in bytes of code; 920 by default. A
 * request passes some hundred small functions, and calls between them are dear: 1.14 to 1.23 times the CPU
 * where nothing is put together, 0.85 to 0.96 with this. From 3,000 on it is lost again (bench/README.md).
 */
const INLINED_BYTES_MAX = 2_000;

/**
 * Bytes of a request's head that µWS takes, for 4,096 by itself: cookies and baggage of some proxies are
 * longer.
 */
const UWS_HTTP_MAX_HEADERS_SIZE = '16384';

const STANDARD_ERROR = 2;
/**
 * Where a gateway finds the supervisor's standard error: behind the three of every process, and the channel.
 */
const LOG_DESCRIPTOR = 4;

export class GatewayProcess {
  readonly #options: GatewayProcessOptions;
  readonly #child: ChildProcess;
  readonly #callbacks: GatewayCallbacks;
  #killTimer: NodeJS.Timeout;
  #readyTimedOut = false;
  #refusal: string | undefined;
  /** One at a time: see Reloads. */
  readonly #reloads: PendingReplies<readonly string[]>;
  /** One at a time of each kind: see GroupReadings. */
  readonly #reads = new PendingReplies<Snapshot>({ waitMsMax: READ_MS_MAX, onTimeout: () => ({}) });

  /** Forks the entry and hands it the settings. A gateway that is not ready in time is killed. */
  constructor(options: GatewayProcessOptions, start: StartGateway, callbacks: GatewayCallbacks) {
    this.#options = options;
    this.#callbacks = callbacks;
    this.#reloads = new PendingReplies<readonly string[]>({
      waitMsMax: options.reloadMsMax,
      onTimeout: () => [`the gateway did not answer within ${options.reloadMsMax} ms`],
    });
    this.#child = fork(fileURLToPath(options.entry), [], {
      cwd: process.cwd(),
      env: {
        MALLOC_ARENA_MAX,
        MALLOC_MMAP_THRESHOLD_,
        MALLOC_TRIM_THRESHOLD_,
        UWS_HTTP_MAX_HEADERS_SIZE,
        ...process.env,
        [LOG_DESCRIPTOR_VARIABLE]: String(LOG_DESCRIPTOR),
      },
      execPath: process.execPath,
      execArgv: [`--max-inlined-bytecode-size-cumulative=${INLINED_BYTES_MAX}`, ...process.execArgv],
      detached: false,
      serialization: 'advanced',
      // Nothing is read from the terminal; answers to the operator and the log go where the supervisor's go.
      // What is written to the gateway's own standard error is not of its log, and would stand between its
      // lines.
      stdio: ['ignore', 'inherit', 'pipe', 'ipc', STANDARD_ERROR],
    });
    if (this.#child.stderr !== null) logStrayOutput(this.#child.stderr, this.#child.pid ?? 0, options.log);
    this.#killTimer = setTimeout(() => {
      this.#readyTimedOut = true;
      this.kill();
    }, options.readyMsMax);
    this.#child.on('message', (message) => this.#onMessage(message as FromGateway));
    this.#child.once('error', (error) => {
      // Without a process there is no 'exit'; an error on a living one's channel is followed by its exit.
      if (this.#child.pid === undefined) this.#onEnd(`no process: ${error.message}`, false);
    });
    this.#child.once('exit', (code, signal) => {
      const how = signal === null ? `exit code ${code ?? 0}` : `signal ${signal}`;
      const end = (): void => {
        if (code === GATEWAY_REFUSED_EXIT_CODE) this.#refusal ??= 'the gateway refused to start';
        this.#onEnd(how, code === 0);
      };
      // The exit can be seen before the last message was read: `refused` and its reason must not be lost.
      if (this.#child.connected) this.#child.once('disconnect', end);
      else end();
    });
    this.#send(start);
  }

  /** `replaced` where another gateway serves in its place. */
  drain(replaced: boolean): void {
    this.#send({ kind: 'drain', replaced });
  }

  /** It shall have the admin interface; `onLeads` follows, soon where nobody but this group has the port. */
  lead(): void {
    this.#send({ kind: 'lead' });
  }

  /** Another has the admin interface. */
  follow(): void {
    this.#send({ kind: 'follow' });
  }

  /**
   * Hands over new settings, or with `check` only asks about them. Resolves with what speaks against them,
   * also if the gateway ends or does not answer in time.
   */
  reload(settings: Settings, check: boolean): Promise<readonly string[]> {
    return this.#reloads.ask((id) => this.#send({ kind: 'reload', id, settings, check }));
  }

  /** Its figures; empty if it ends or does not answer in time. */
  read(what: SnapshotKind, accounts?: readonly string[]): Promise<Snapshot> {
    return this.#reads.ask((id) => this.#send({ kind: 'read', id, what, accounts }));
  }

  /** What its operators are shown as the settings from now on. */
  showInForce(inForce: StartGateway['inForce']): void {
    this.#send({ kind: 'in_force', inForce });
  }

  changeLog(change: PublishLog['change']): void {
    this.#send({ kind: 'log', change });
  }

  resetUpstreams(model: string | undefined): void {
    this.#send({ kind: 'reset_upstreams', model });
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  #send(message: ToGateway): void {
    if (!this.#child.connected) return;
    // A gateway that ends meanwhile is no fault of sending: its exit is reported by itself.
    this.#child.send(message, () => undefined);
  }

  #onMessage(message: FromGateway): void {
    switch (message.kind) {
      case 'ready':
        clearTimeout(this.#killTimer);
        this.#callbacks.onReady(message);
        return;
      case 'refused':
        clearTimeout(this.#killTimer);
        this.#refusal = message.message;
        this.#killTimer = setTimeout(() => this.kill(), this.#options.exitGraceMs);
        return;
      case 'leads':
        this.#callbacks.onLeads();
        return;
      case 'reloaded':
        this.#reloads.reply(message.id, message.problems);
        return;
      case 'reading':
        if (message.id === 0) this.#callbacks.onLastReading(message.reading);
        else this.#reads.reply(message.id, message.reading);
        return;
      case 'ask_readings':
        void this.#callbacks
          .onReadingsAsked(message.what, message.accounts)
          .then((snapshots) => this.#send({ kind: 'readings', id: message.id, readings: snapshots }));
        return;
      case 'log':
        this.#callbacks.onLogChanged(message.change);
        return;
      case 'reset_upstreams':
        this.#callbacks.onUpstreamsReset(message.model);
        return;
      case 'ask_reload':
        void this.#callbacks
          .onReloadAsked(message.request)
          .then((outcome) => this.#send({ kind: 'outcome', id: message.id, outcome }));
    }
  }

  #onEnd(how: string, clean: boolean): void {
    clearTimeout(this.#killTimer);
    this.#reloads.replyToAll([`the gateway ended (${how}) before it had taken the settings; reload again`]);
    this.#reads.replyToAll({});
    this.#callbacks.onExit({
      how: this.#readyTimedOut ? `not ready after ${this.#options.readyMsMax} ms, killed` : how,
      clean,
      refusal: this.#refusal,
    });
  }
}

/** A stack trace comes in several writes; what follows within this time is the same burst. */
const BURST_MS = 100;
/** Of a burst: a stack trace has some 2 KB. */
const TEXT_CHARS_MAX = 8 * 1024;
/** LMDB writes a line for every failed commit: of a burst a second, as many are told as a reader wants. */
const PAUSE_MS = 1_000;

/**
 * Logs what a gateway writes to standard error beside its log, until the stream ends: words of native
 * libraries (LMDB's `Write error`), V8's and Node's last words. Each burst becomes one entry, so every line
 * of the log stays JSON. Holds at most one burst.
 */
export function logStrayOutput(stream: Readable, pid: number, log: Log): void {
  let text = '';
  let dropped = 0;
  let timer: NodeJS.Timeout | undefined;
  let toldAtMs = -Infinity;
  const tell = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (text === '') return;
    toldAtMs = performance.now();
    const cut = dropped === 0 ? {} : { droppedChars: dropped };
    log.warn('a gateway wrote to standard error', { gateway: pid, text: text.trimEnd(), ...cut });
    text = '';
    dropped = 0;
  };
  stream.setEncoding('utf8');
  stream.on('data', (piece: string) => {
    const kept = piece.slice(0, TEXT_CHARS_MAX - text.length);
    text += kept;
    dropped += piece.length - kept.length;
    timer ??= setTimeout(tell, Math.max(BURST_MS, toldAtMs + PAUSE_MS - performance.now()));
  });
  stream.once('end', tell);
  // The pipe of a process that was killed: its exit is told by itself.
  stream.on('error', tell);
}
