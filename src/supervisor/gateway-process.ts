/** One life of one gateway process, from fork to exit. Supervisor process. */
import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import {
  GATEWAY_REFUSED_EXIT_CODE,
  type FromGateway,
  type GatewayReady,
  type StartGateway,
  type ToGateway,
} from '../gateway/messages.js';

export interface GatewayExit {
  /** How it ended, for the log: `exit code 1`, `signal SIGABRT`. */
  readonly how: string;
  /** Whether it ended with exit code 0. */
  readonly clean: boolean;
  /** Why it must not be started again; undefined where it may be. */
  readonly refusal: string | undefined;
}

export interface GatewayCallbacks {
  /** At most once, and before onExit. */
  onReady(ready: GatewayReady): void;
  /** Exactly once. */
  onExit(exit: GatewayExit): void;
}

export interface GatewayProcessOptions {
  /** The gateway's main module. */
  readonly entry: URL;
  /** A start that takes longer has hung. */
  readonly readyMsMax: number;
  /** What a gateway that has nothing left to serve may take for its last flush and its end; then it is killed. */
  readonly exitGraceMs: number;
}

/**
 * Arenas of glibc's allocator in a gateway. Buffers are made in one thread and freed in another, which with one arena a
 * thread leaves each full of holes: after 5,000 streams 316 MB were resident, with two arenas 244 MB.
 */
const MALLOC_ARENA_MAX = '2';

export class GatewayProcess {
  readonly #options: GatewayProcessOptions;
  readonly #child: ChildProcess;
  readonly #callbacks: GatewayCallbacks;
  #killTimer: NodeJS.Timeout;
  #readyTimedOut = false;
  #refusal: string | undefined;

  /** Forks the entry and hands it the settings. A gateway that is not ready in time is killed. */
  constructor(options: GatewayProcessOptions, start: StartGateway, callbacks: GatewayCallbacks) {
    this.#options = options;
    this.#callbacks = callbacks;
    this.#child = fork(fileURLToPath(options.entry), [], {
      cwd: process.cwd(),
      env: { MALLOC_ARENA_MAX, ...process.env },
      execPath: process.execPath,
      execArgv: process.execArgv,
      detached: false,
      serialization: 'advanced',
      // Nothing is read from the terminal; answers to the operator and the log go where the supervisor's go.
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
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

  drain(): void {
    this.#send({ kind: 'drain' });
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
    clearTimeout(this.#killTimer);
    if (message.kind === 'ready') {
      this.#callbacks.onReady(message);
      return;
    }
    this.#refusal = message.message;
    this.#killTimer = setTimeout(() => this.kill(), this.#options.exitGraceMs);
  }

  #onEnd(how: string, clean: boolean): void {
    clearTimeout(this.#killTimer);
    this.#callbacks.onExit({
      how: this.#readyTimedOut ? `not ready after ${this.#options.readyMsMax} ms, killed` : how,
      clean,
      refusal: this.#refusal,
    });
  }
}
