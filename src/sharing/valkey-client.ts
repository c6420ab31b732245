/**
 * The client for the Valkey or Redis that hosts share. valkey-connection.ts opens its connections; this file
 * adds deadlines, kinds of errors, and pauses before it connects again. open-hosts.ts makes clients for
 * valkey-server.ts, registry-server.ts and the claims of notices. Main thread. Import this file only if there
 * is `sharing`: `@redis/client` costs 21 MB of memory and 0.1 s.
 *
 * In this file a _call_ is a script or a command. Without a connection it fails at once. A command ends
 * within its deadline, not counting time in which this thread stood still; a script that the server does not
 * know is two commands. The server may still carry out a call that failed, so the caller makes that harmless,
 * by a growing sequence number or a version to compare. This client sends again nothing that the server may
 * have run.
 *
 * Must hold: a call that the server may have carried out to its end is never reported as `refused` or
 * `offline` (also test/unit/sharing/registry-contact.registry-append.test.ts). A connection that does not
 * come about in time is left for another one, or the client would wait for a dead server for ever. What a
 * connection reports after it was dropped changes nothing.
 */
import { createHash } from 'node:crypto';
import { CoordinatorLost, type LossReason } from './coordinator.js';
import { KnownMaster } from './sentinel-master.js';
import {
  isErrorReply,
  wasDropped,
  wasOffline,
  openConnection,
  type ValkeyAddress,
  type ValkeyArgument,
  type ValkeyConnection,
  type ValkeyReply,
} from './valkey-connection.js';

export type { ValkeyArgument, ValkeyReply } from './valkey-connection.js';

/** Connecting takes two to five round trips; a server that needs longer counts as unreachable. */
const CONNECT_TIMEOUT_MS = 2_000;
/** In a Cluster two connections are made in turn, each with TLS perhaps: for the map, and to the masters. */
const CLUSTER_CONNECT_TIMEOUT_MS = 2 * CONNECT_TIMEOUT_MS;
/** In how many steps a deadline passes: see `afterDeadline`. */
const DEADLINE_STEPS = 4;
/** How many calls may be under way at once: a coordinator has one for each partition, others have a few. */
const COMMANDS_MAX = 1_024;
/**
 * The pauses between tries to connect double from the first to the longest. Up to half of a pause is taken
 * off at random: a thousand clients that lost a server together try 2,700 times a second in the end.
 */
const RECONNECT_FIRST_MS = 100;
const RECONNECT_LONGEST_MS = 500;
/** Replies after which the master has to be found again. NOREPLICAS: it is cut off from its replicas. */
const WRONG_SERVER = /^(READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|UNBLOCKED|NOREPLICAS)\b/;
/** Matches a `sharing.url` that names one server: no Cluster, no Sentinels. */
const SINGLE_SERVER = /^rediss?:/;
/** Matches a `sharing.url` that names servers of a Cluster. */
const CLUSTER = /^rediss?-cluster:/;
const WANT_CLUSTER =
  'the server is one of a Cluster, sharing.url wants redis-cluster://host:port,host:port, or rediss-cluster with TLS';

/**
 * `refused`: the server replied with an error, so a command did nothing, and a script did at most what came
 * before the error. `offline`: there was no connection, so nothing was sent. `unreachable` and
 * `late`: it is not known whether the call was carried out.
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

/** A Lua script and the digest by which the server knows it. */
export interface ValkeyScript {
  readonly text: string;
  readonly digest: string;
}

export function scriptOf(text: string): ValkeyScript {
  return { text, digest: createHash('sha1').update(text).digest('hex') };
}

export interface ValkeyClientOptions extends ValkeyAddress {
  /** The deadline of calls that name no other. */
  readonly deadlineMs: number;
  /** Returns numbers in [0, 1), for the pauses. Default `Math.random`. */
  readonly random?: (() => number) | undefined;
  /** Called when a connection breaks, or no longer leads to the master. */
  readonly onConnectionLost?: (() => void) | undefined;
  /** Called when there is a connection. The first call may still find that its server is the wrong one. */
  readonly onConnected?: (() => void) | undefined;
  /** The other clients of the process for the same server. Default: none. */
  readonly peers?: ValkeyPeers | undefined;
}

export interface CallOptions {
  readonly deadlineMs?: number | undefined;
  /** Whether texts are returned as Buffers. Default false: as UTF-8 strings. */
  readonly binary?: boolean | undefined;
}

/** The clients of a process for one server. The first that has the server again ends the others' pauses. */
export class ValkeyPeers {
  readonly clients = new Set<ValkeyClient>();
  readonly knownMaster = new KnownMaster();
}

export class ValkeyClient {
  readonly #options: ValkeyClientOptions;
  readonly #peers: ValkeyPeers;
  #connection: ValkeyConnection;
  /** The timer of the pause before the next connection is opened; undefined if no pause runs. */
  #reopening: NodeJS.Timeout | undefined;
  /** How many connections in a row were dropped without a good reply. The pause depends on it. */
  #drops = 0;
  #openedMs = 0; // when the last connection began to open (monotonic)
  #hasGoodReply = false; // whether the connection has had a reply that was no error
  #lastError: string | undefined;
  #isClosed = false;

  /** Begins to connect. Throws if the settings would not accept the URL. */
  constructor(options: ValkeyClientOptions) {
    this.#options = options;
    this.#peers = options.peers ?? new ValkeyPeers();
    this.#peers.clients.add(this);
    this.#connection = this.#open();
  }

  /** Why a call or a connection since the last good reply failed; undefined if none. Never has a secret. */
  get lastError(): string | undefined {
    return this.#lastError;
  }

  /** Runs a script, in one or two round trips. Its keys must have one hash tag. Rejects with ValkeyError. */
  async run(
    script: ValkeyScript,
    keys: readonly string[],
    args: readonly ValkeyArgument[],
    options: CallOptions = {},
  ): Promise<ValkeyReply> {
    const keysAndArgs = [String(keys.length), ...keys, ...args];
    try {
      return await this.command(keys[0], ['EVALSHA', script.digest, ...keysAndArgs], options);
    } catch (error) {
      if (!(error instanceof ValkeyError) || !error.message.startsWith('NOSCRIPT')) throw error;
      return this.command(keys[0], ['EVAL', script.text, ...keysAndArgs], options);
    }
  }

  /** Sends one command; in a Cluster `key` selects the server. Rejects with ValkeyError. */
  async command(
    key: string | undefined,
    args: readonly ValkeyArgument[],
    { deadlineMs = this.#options.deadlineMs, binary = false }: CallOptions = {},
  ): Promise<ValkeyReply> {
    if (this.#isClosed) throw new ValkeyError('offline', 'the connection was closed');
    const connection = this.#connection;
    let rejectLate!: (error: ValkeyError) => void;
    const deadlinePassed = new Promise<never>((_resolve, reject) => {
      rejectLate = reject;
    });
    const stopDeadline = afterDeadline(deadlineMs, () => {
      // Replies come in order, so all later replies on this connection would be late as well.
      rejectLate(new ValkeyError('late', `no reply within ${deadlineMs} ms`));
      this.#drop(connection);
    });
    try {
      const reply = await Promise.race([connection.send(key, args, binary), deadlinePassed]);
      this.#lastError = undefined;
      if (this.#isInUse(connection)) this.#recordGoodReply();
      return reply;
    } catch (error) {
      throw this.#asValkeyError(error, connection);
    } finally {
      stopDeadline();
    }
  }

  /** Drops the connection for good. Pending calls reject as `unreachable`, later ones as `offline`. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#peers.clients.delete(this);
    clearTimeout(this.#reopening);
    this.#connection.destroy();
  }

  /** Whether this is the present connection, and was not dropped. */
  #isInUse(connection: ValkeyConnection): boolean {
    return connection === this.#connection && this.#reopening === undefined && !this.#isClosed;
  }

  /** Begins to connect. Ignores what a connection reports that is no longer in use. */
  #open(): ValkeyConnection {
    const { url, username, password, name } = this.#options;
    this.#openedMs = performance.now();
    const recordLoss = (error: Error): void => {
      this.#lastError = messageOf(error);
      this.#options.onConnectionLost?.();
    };
    const giveUp = (error: Error): void => {
      if (!this.#isInUse(connection)) return;
      recordLoss(error);
      this.#drop(connection);
    };
    const connection = openConnection({
      url,
      username,
      password,
      name,
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      commandsMax: COMMANDS_MAX,
      knownMaster: this.#peers.knownMaster,
      // The library uses it in a Cluster, to connect to a lost server again. `#drop` replaces the connection.
      reconnectDelayMs: (tries) => this.#pauseMs(tries),
      onError: (error) => {
        if (this.#isInUse(connection)) recordLoss(error);
      },
      onReady: () => {
        if (this.#isInUse(connection)) this.#options.onConnected?.();
      },
      onOver: giveUp,
    });
    const deadlineMs = CLUSTER.test(url) ? CLUSTER_CONNECT_TIMEOUT_MS : CONNECT_TIMEOUT_MS;
    const stopDeadline = afterDeadline(deadlineMs, () =>
      giveUp(new Error(`no connection within ${deadlineMs} ms`)),
    );
    connection
      .connect()
      .catch((error: unknown) => {
        // If it was dropped, `error` says only that, and `#lastError` says why.
        if (!this.#isInUse(connection)) return;
        this.#lastError = messageOf(error);
        this.#drop(connection);
      })
      .finally(stopDeadline);
    return connection;
  }

  /** Drops the connection, and opens another one after a pause; does nothing if it is not in use. */
  #drop(connection: ValkeyConnection): void {
    if (!this.#isInUse(connection)) return;
    connection.destroy();
    this.#hasGoodReply = false;
    this.#reopenAfter(this.#pauseMs(this.#drops++));
  }

  #reopenAfter(pauseMs: number): void {
    clearTimeout(this.#reopening);
    this.#reopening = setTimeout(() => {
      this.#reopening = undefined;
      this.#connection = this.#open();
    }, pauseMs);
  }

  /** Called for each reply that is no error. The first one of a connection ends the pauses of the peers. */
  #recordGoodReply(): void {
    this.#drops = 0;
    if (this.#hasGoodReply) return;
    this.#hasGoodReply = true;
    for (const peer of this.#peers.clients) peer.#hurry();
  }

  /** Ends the pause, if one runs; but RECONNECT_FIRST_MS lie between two tries. */
  #hurry(): void {
    if (this.#reopening === undefined) return;
    const sinceMs = performance.now() - this.#openedMs;
    this.#reopenAfter(Math.max(0, RECONNECT_FIRST_MS - sinceMs));
  }

  #pauseMs(tries: number): number {
    const fullMs = Math.min(RECONNECT_FIRST_MS * 2 ** Math.min(tries, 10), RECONNECT_LONGEST_MS);
    return Math.round(fullMs * (0.5 + (this.#options.random ?? Math.random)() / 2));
  }

  /** The error of a failed call, for its caller. Drops the connection if its server is not the master. */
  #asValkeyError(error: unknown, connection: ValkeyConnection): ValkeyError {
    const text = messageOf(error);
    const message =
      text.startsWith('MOVED') && SINGLE_SERVER.test(this.#options.url) ? `${text}: ${WANT_CLUSTER}` : text;
    if (error instanceof ValkeyError) {
      this.#lastError = message;
      return error;
    }
    const isReply = isErrorReply(error);
    if (isReply && WRONG_SERVER.test(message)) this.#drop(connection);
    // An earlier error says more, because mostly it is the connection's: it stays until the next good reply.
    // NOSCRIPT is no failure: `run` expects it.
    if (!message.startsWith('NOSCRIPT')) this.#lastError ??= message;
    if (isReply) return new ValkeyError('refused', message);
    // The library's "The client is offline" or "Disconnects client" would hide why.
    const cause = this.#lastError ?? message;
    if (wasOffline(error)) return new ValkeyError('offline', cause);
    return new ValkeyError('unreachable', wasDropped(error) ? cause : message);
  }
}

/**
 * Calls `act` once the server has had `ms`; returns a function that prevents that. The time passes in steps,
 * each a timer: while this thread stands still nothing is sent or read, and only one timer fires late. So
 * that time, which is not the server's, counts as one step at most.
 */
function afterDeadline(ms: number, act: () => void): () => void {
  let timer: NodeJS.Timeout | undefined;
  let afterPoll: NodeJS.Immediate | undefined;
  let steps = 0;
  const step = (): void => {
    steps += 1;
    // The event loop reads sockets after timers, so the reply may be in the socket.
    if (steps > DEADLINE_STEPS) afterPoll = setImmediate(act);
    else timer = setTimeout(step, ms / DEADLINE_STEPS);
  };
  step();
  return () => {
    clearTimeout(timer);
    clearImmediate(afterPoll);
  };
}

/** The error's message; of an AggregateError, which has none, that of its first error. */
function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return messageOf(error.errors[0]);
  return error instanceof Error ? error.message || error.name : String(error);
}

const REASONS: Readonly<Record<ValkeyFailure, LossReason>> = {
  unreachable: 'unreachable',
  offline: 'unreachable',
  late: 'deadline',
  refused: 'failing',
};

/** Turns a ValkeyError into a CoordinatorLost. Returns any other error, which is a bug, as it is. */
export function asLoss(error: unknown): unknown {
  if (!(error instanceof ValkeyError)) return error;
  return new CoordinatorLost(REASONS[error.code], `the sharing server: ${error.message}`, { cause: error });
}

/** Whether the failed call was never sent, so that the server cannot carry it out. */
export function wasNotSent(error: unknown): boolean {
  return (
    error instanceof CoordinatorLost && error.cause instanceof ValkeyError && error.cause.code === 'offline'
  );
}
