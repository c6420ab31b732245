/**
 * The connection to the Valkey or Redis that hosts share: scripts and commands with a deadline each, no waiting without a
 * connection, and coming back without a stampede. Main thread. Load it when there is `sharing` alone: `@redis/client` costs 21 MB
 * of memory and 0.1 s.
 *
 * A call ends within its deadline whatever the server does. One that failed may still be carried out: who calls makes that
 * harmless (a growing sequence number, a version to compare). Nothing is sent a second time but by the caller, with one
 * exception: a script that the server does not know, which it has then not run.
 */
import { createHash } from 'node:crypto';
import {
  isServersNo,
  wasOffline,
  openConnection,
  type ValkeyArgument,
  type ValkeyConnection,
  type ValkeyReply,
} from './valkey-connection.js';

export type { ValkeyArgument, ValkeyReply } from './valkey-connection.js';

/** Connecting takes a round trip or three; a server that needs longer is as good as none. */
const CONNECT_TIMEOUT_MS = 2_000;
/** Calls under way: the coordinator has one per partition, the registry some; more is a fault here. */
const COMMANDS_MAX = 1_024;
/**
 * Pauses between tries grow from the first to the longest and are drawn from the upper half of it, so that hosts which lost the
 * same server at the same moment do not come back at one: a thousand of them come as some 1,000 connections a second.
 */
const RECONNECT_FIRST_MS = 100;
const RECONNECT_LONGEST_MS = 2_000;
/** What a server says that has to be looked for anew: it is no master, or not one yet. */
const WRONG_SERVER = /^(READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|UNBLOCKED|NOREPLICAS)\b/;
const SINGLE_SERVER = /^rediss?:/;
const WANT_CLUSTER =
  'the server is one of a Cluster, sharing.url wants redis-cluster://host:port,host:port, or rediss-cluster with TLS';

/**
 * `refused`: the server said no, in its own words, and did nothing (a script that stopped half-way did what came before).
 * `offline`: there was no connection, so nothing was sent. `unreachable` and `late`: nobody knows whether it was carried out.
 */
export type ValkeyFailure = 'unreachable' | 'offline' | 'late' | 'refused';

export class ValkeyError extends Error {
  readonly code: ValkeyFailure;

  constructor(code: ValkeyFailure, message: string) {
    super(message);
    this.name = 'ValkeyError';
    this.code = code;
  }
}

/** A Lua script and the digest that the server knows it by. Its text says which keys and arguments it takes. */
export interface ValkeyScript {
  readonly text: string;
  readonly digest: string;
}

export function scriptOf(text: string): ValkeyScript {
  return { text, digest: createHash('sha1').update(text).digest('hex') };
}

export interface ValkeyClientOptions {
  /** `sharing.url`, as the settings took it. */
  readonly url: string;
  readonly username?: string | undefined;
  readonly password?: string | undefined;
  /** Shown in the server's list of clients. */
  readonly name: string;
  /** Of every call that names no other. */
  readonly deadlineMs: number;
  /** In [0, 1); for tests. Default `Math.random`. */
  readonly random?: (() => number) | undefined;
}

export interface CallOptions {
  readonly deadlineMs?: number | undefined;
  /** Texts of the reply as Buffer. Default false: as UTF-8. */
  readonly binary?: boolean | undefined;
}

export class ValkeyClient {
  readonly #options: ValkeyClientOptions;
  readonly #random: () => number;
  #connection: ValkeyConnection;
  #reopening: NodeJS.Timeout | undefined;
  /** Times in a row that a connection was dropped for being late or wrong. */
  #drops = 0;
  #lastError: string | undefined;
  #closed = false;

  /** Begins to connect. Throws where the URL is none that the settings would take. */
  constructor(options: ValkeyClientOptions) {
    this.#options = options;
    this.#random = options.random ?? Math.random;
    this.#connection = this.#open();
  }

  /** Why the last try failed; undefined while all went well. Never a secret. */
  get lastError(): string | undefined {
    return this.#lastError;
  }

  /** Runs a script; one round trip, two where the server does not know it yet. Rejects with ValkeyError. All keys have one hash tag. */
  async run(
    script: ValkeyScript,
    keys: readonly string[],
    words: readonly ValkeyArgument[],
    options: CallOptions = {},
  ): Promise<ValkeyReply> {
    const rest = [String(keys.length), ...keys, ...words];
    try {
      return await this.command(keys[0], ['EVALSHA', script.digest, ...rest], options);
    } catch (error) {
      if (!(error instanceof ValkeyError) || !error.message.startsWith('NOSCRIPT')) throw error;
      return this.command(keys[0], ['EVAL', script.text, ...rest], options);
    }
  }

  /** Sends one command; `key` tells a Cluster the server. Rejects with ValkeyError. */
  async command(
    key: string | undefined,
    words: readonly ValkeyArgument[],
    { deadlineMs = this.#options.deadlineMs, binary = false }: CallOptions = {},
  ): Promise<ValkeyReply> {
    if (this.#closed) throw new ValkeyError('offline', 'the connection was closed');
    const connection = this.#connection;
    let timer: NodeJS.Timeout | undefined;
    let turn: NodeJS.Immediate | undefined;
    const late = new Promise<never>((_resolve, reject) => {
      const giveUp = (): void => {
        // Replies come in order: what follows on this connection would be late as well.
        reject(new ValkeyError('late', `no reply within ${deadlineMs} ms`));
        this.#drop(connection);
      };
      // A process that stood still may have the reply in its socket, which is read after timers have gone off.
      timer = setTimeout(() => (turn = setImmediate(giveUp)), deadlineMs);
    });
    try {
      const reply = await Promise.race([connection.send(key, words, binary), late]);
      this.#drops = 0;
      this.#lastError = undefined;
      return reply;
    } catch (error) {
      throw this.#failureOf(error, connection);
    } finally {
      clearTimeout(timer);
      clearImmediate(turn);
    }
  }

  /** Drops the connection; calls that wait are rejected as unreachable. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#reopening);
    this.#connection.destroy();
  }

  #open(): ValkeyConnection {
    const { url, username, password, name } = this.#options;
    const connection = openConnection({
      url,
      username,
      password,
      name,
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      commandsMax: COMMANDS_MAX,
      reconnectDelayMs: (tries) => this.#pauseMs(tries),
      onError: (error) => {
        if (connection === this.#connection) this.#lastError = textOf(error);
      },
    });
    connection.connect().catch((error: unknown) => {
      // Sentinels and a Cluster give up where none of their servers answers; so they are tried again from here.
      if (connection !== this.#connection || this.#closed) return;
      this.#lastError = textOf(error);
      this.#drop(connection);
    });
    return connection;
  }

  /** Gives a connection up and opens another one after a pause. */
  #drop(connection: ValkeyConnection): void {
    if (connection !== this.#connection || this.#reopening !== undefined || this.#closed) return;
    connection.destroy();
    this.#reopening = setTimeout(() => {
      this.#reopening = undefined;
      this.#connection = this.#open();
    }, this.#pauseMs(this.#drops++));
  }

  #pauseMs(tries: number): number {
    const fullMs = Math.min(RECONNECT_FIRST_MS * 2 ** Math.min(tries, 10), RECONNECT_LONGEST_MS);
    return Math.round(fullMs * (0.5 + this.#random() / 2));
  }

  #failureOf(error: unknown, connection: ValkeyConnection): ValkeyError {
    const text = textOf(error);
    const message =
      text.startsWith('MOVED') && SINGLE_SERVER.test(this.#options.url) ? `${text}: ${WANT_CLUSTER}` : text;
    if (error instanceof ValkeyError) {
      this.#lastError = message;
      return error;
    }
    const refused = isServersNo(error);
    if (refused && WRONG_SERVER.test(message)) this.#drop(connection);
    if (!message.startsWith('NOSCRIPT')) this.#lastError ??= message;
    if (refused) return new ValkeyError('refused', message);
    return new ValkeyError(wasOffline(error) ? 'offline' : 'unreachable', message);
  }
}

function textOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return textOf(error.errors[0]);
  return error instanceof Error ? error.message || error.name : String(error);
}
