/**
 * Connections to one server, to the master that Sentinels name, and to a Cluster, by `@redis/client`, behind
 * the one call that `ValkeyClient` makes. Main thread.
 *
 * Must hold: nothing waits in a queue for a connection: a call that could not be sent rejects at once, so
 * that its deadline means what it says. Test: test/unit/sharing/valkey-client.test.ts (without a server;
 * Sentinels; a Cluster).
 */
import {
  ClientClosedError,
  ClientOfflineError,
  createCluster,
  DisconnectsClientError,
  ErrorReply,
  RedisClient,
  RESP_TYPES,
} from '@redis/client';
import { setTimeout as delay } from 'node:timers/promises';
import { parseSharingUrl, type ServerAddress, type SharingAddress } from '../config/sharing-schema.js';

export type ValkeyArgument = string | Buffer;
/** A reply by version 2 of the protocol; texts are Buffers if the call was binary. */
export type ValkeyReply = string | number | null | Buffer | ValkeyReply[];

/** Where the server is, and as whom to connect. */
export interface ValkeyAddress {
  /** The setting `sharing.url`. */
  readonly url: string;
  readonly username?: string | undefined;
  readonly password?: string | undefined;
  /** Shown in the server's list of clients. */
  readonly name: string;
}

export interface ValkeyConnectionOptions extends ValkeyAddress {
  readonly connectTimeoutMs: number;
  /** How many calls may wait for their reply; one more is refused. */
  readonly commandsMax: number;
  /** In a Cluster: the pause before a server is tried again, after so many tries. */
  readonly reconnectDelayMs: (tries: number) => number;
  /** In a Cluster: called for every failure of a connection, which then tries again by itself. */
  readonly onError: (error: Error) => void;
  /** Called when calls can be sent; in a Cluster for each server, and again when one is back. */
  readonly onReady: () => void;
  /**
   * Called when the connection has broken, leads to the master no more, or to none in time, and does not try
   * again by itself. May be called several times.
   */
  readonly onOver: (error: Error) => void;
  /** The master that the Sentinels have named. Each connection of the process gets the same object. */
  readonly knownMaster: KnownMaster;
}

export interface ValkeyConnection {
  /** Resolves when it has connected. Rejects if nothing tries again by itself: but in a Cluster, always. */
  connect(): Promise<unknown>;
  /** In a Cluster `key` selects the server, undefined any. Rejects at once while there is no connection. */
  send(key: string | undefined, args: readonly ValkeyArgument[], binary: boolean): Promise<ValkeyReply>;
  /** Drops the connections; pending calls are rejected. Never throws. */
  destroy(): void;
}

const BINARY = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer }, timeout: 0 } as const;
/** No timeout in the library: it would only cover the write, and cost an AbortSignal a call. */
const TEXT = { timeout: 0 } as const;
/** How often a call is sent again that met a server which is not the master any more. */
const REDIRECTIONS_MAX = 3;
/** How often Sentinels are asked whether another server is the master now. Each time costs a connection. */
const SENTINEL_LOOK_MS = 2_000;
/** A master that one client of the process has found is taken by the others for so long, without asking. */
const FOUND_MS = 1_000;
/** A Sentinel that has not replied for so long is not waited for: the next one is asked too. */
const SENTINEL_PATIENCE_MS = 250;
/** Finds a lost route in seconds; without keep-alive it could take hours. */
const KEEP_ALIVE_MS = 5_000;

/** Whether the server replied with an error, whose text begins with a code. It has not done anything then. */
export function isServersNo(error: unknown): boolean {
  return error instanceof ErrorReply;
}

/** Whether nothing was sent because there was no connection. */
export function wasOffline(error: unknown): boolean {
  return error instanceof ClientOfflineError || error instanceof ClientClosedError;
}

/** Whether the call was under way when its connection was dropped. */
export function wasDropped(error: unknown): boolean {
  return error instanceof DisconnectsClientError;
}

/** Does not connect yet. Throws if the settings would not accept the URL. */
export function openConnection(options: ValkeyConnectionOptions): ValkeyConnection {
  const address = parseSharingUrl(options.url);
  if (address === undefined)
    throw new Error('invariant broken: the address of the sharing server was checked');
  if (address.kind === 'sentinel') return sentinelConnection(address, options);
  return address.kind === 'cluster'
    ? clusterConnection(address, options)
    : serverConnection(address, options);
}

/** The options that every connection has, all written out. */
function commonOptions(address: SharingAddress, options: ValkeyConnectionOptions) {
  const socket = {
    connectTimeout: options.connectTimeoutMs,
    reconnectStrategy: address.kind === 'cluster' ? options.reconnectDelayMs : (false as const),
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MS,
    noDelay: true,
  };
  return {
    RESP: 2,
    name: options.name,
    ...(options.username === undefined ? {} : { username: options.username }),
    ...(options.password === undefined ? {} : { password: options.password }),
    database: address.database,
    commandsQueueMaxLength: options.commandsMax,
    // A call that waited for a connection would be late; callers have other ways to go on.
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: 'disabled',
    socket: address.tls ? { ...socket, tls: true as const } : socket,
  } as const;
}

function serverConnection(address: SharingAddress, options: ValkeyConnectionOptions): ValkeyConnection {
  const common = commonOptions(address, options);
  const client = clientOf(common, address.servers[0]!);
  client.on('error', options.onOver);
  return {
    connect: async () => {
      await client.connect();
      options.onReady();
    },
    send: (_key, args, binary) => client.sendCommand<ValkeyReply>(args, binary ? BINARY : TEXT),
    destroy: () => destroyForGood(client),
  };
}

type CommonOptions = ReturnType<typeof commonOptions>;

/** Not `createClient`, which makes a class of all commands, in 45 ms, whenever the options are others. */
function clientOf(common: CommonOptions, { host, port }: ServerAddress) {
  return new RedisClient({ ...common, socket: { ...common.socket, host, port }, commandOptions: TEXT });
}

/** The library's `destroy` misses a socket that is still being opened, which would stay open. */
function destroyForGood(client: ReturnType<typeof clientOf>): void {
  client.on('ready', () => client.destroy());
  client.destroy();
}

/**
 * Not the library's `createSentinel`, which takes a new master only when the Sentinel itself is connected to
 * it again: 1 to 2 s after it has named it. A Sentinel is asked for the address and the server there for its
 * role, as redis.io/docs/latest/develop/reference/sentinel-clients says. A connection keeps its server. It is
 * over when that breaks or another server is named.
 */
function sentinelConnection(address: SharingAddress, options: ValkeyConnectionOptions): ValkeyConnection {
  const common = commonOptions(address, options);
  const { knownMaster } = options;
  const named = (): Promise<NamedMaster> =>
    knownMaster.ask((epoch) => masterNamedBy(address, common.socket, epoch));
  const over = (error: Error): void => {
    knownMaster.forget();
    options.onOver(error);
  };
  let client: ReturnType<typeof clientOf> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isMaster = false;
  let isOver = false;
  // A master that is cut off from its Sentinels goes on until its clients leave it.
  const look = async (used: NamedMaster): Promise<void> => {
    const { epoch } = await named().catch(() => used);
    if (isOver) return;
    if (epoch > used.epoch) over(new Error('a Sentinel names another master'));
    else timer = setTimeout(() => void look(used), SENTINEL_LOOK_MS);
  };
  return {
    connect: async () => {
      const { connectTimeoutMs } = options;
      const late = new Error(`no master within ${connectTimeoutMs} ms`);
      timer = setTimeout(() => over(late), connectTimeoutMs);
      const server = knownMaster.found ?? (await named());
      if (isOver) return;
      client = clientOf(common, server);
      client.on('error', over);
      await client.connect();
      isMaster = await isItMaster(client);
      if (!isMaster) {
        knownMaster.forget();
        throw new Error('the server that a Sentinel names is no master yet');
      }
      knownMaster.record(server);
      clearTimeout(timer);
      timer = setTimeout(() => void look(server), SENTINEL_LOOK_MS);
      options.onReady();
    },
    send: (_key, args, binary) =>
      client === undefined || !isMaster
        ? Promise.reject(new ClientOfflineError())
        : client.sendCommand<ValkeyReply>(args, binary ? BINARY : TEXT),
    destroy: () => {
      isOver = true;
      clearTimeout(timer);
      if (client !== undefined) destroyForGood(client);
    },
  };
}

/** Also true if the user may not ask: then the server says so at the first write. */
async function isItMaster(client: ReturnType<typeof clientOf>): Promise<boolean> {
  try {
    const role = await client.sendCommand<ValkeyReply>(['ROLE']);
    return Array.isArray(role) && role[0] === 'master';
  } catch (error) {
    if (isServersNo(error)) return true;
    throw error;
  }
}

/** `epoch` grows whenever Sentinels name another master: by it a Sentinel that has missed one is known. */
interface NamedMaster extends ServerAddress {
  readonly epoch: number;
}

/** The master that the Sentinels have named to the clients of a process. One client asks for all. */
export class KnownMaster {
  #asking: Promise<NamedMaster> | undefined;
  #last: NamedMaster | undefined;
  #foundMs = -Infinity;

  /** A master that a client has found just now, and that nobody has lost since. */
  get found(): NamedMaster | undefined {
    return performance.now() - this.#foundMs < FOUND_MS ? this.#last : undefined;
  }

  /** `ask` gets the epoch of the last master. Not called while the Sentinels are being asked already. */
  ask(ask: (epochLast: number) => Promise<NamedMaster>): Promise<NamedMaster> {
    this.#asking ??= ask(this.#last?.epoch ?? 0).finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  /** The server that was named is the master. One that was named before another was found does not count. */
  record(master: NamedMaster): void {
    if (this.found !== undefined && this.found.epoch > master.epoch) return;
    this.#last = master;
    this.#foundMs = performance.now();
  }

  /** It is to be asked for again. */
  forget(): void {
    this.#foundMs = -Infinity;
  }
}

/**
 * Resolves with the master that the first Sentinel to reply names, of those that know of `epochLast`; if none
 * does, with the latest. Rejects with an AggregateError if none replies. The order is a random one.
 */
async function masterNamedBy(
  { servers, master }: SharingAddress,
  socket: CommonOptions['socket'],
  epochLast: number,
): Promise<NamedMaster> {
  const late: NamedMaster[] = [];
  let isNamed = false;
  const ask = async (server: ServerAddress): Promise<NamedMaster> => {
    if (isNamed) throw new Error('another Sentinel has replied');
    // Sentinels have users of their own, or none.
    const sentinel = new RedisClient({
      RESP: 2,
      disableClientInfo: true,
      maintNotifications: 'disabled',
      socket: { ...socket, ...server, socketTimeout: socket.connectTimeout },
    });
    // `connect` and the commands reject with it.
    sentinel.on('error', () => undefined);
    try {
      await sentinel.connect();
      const [address, facts] = await Promise.all([
        sentinel.sendCommand<ValkeyReply>(['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', master]),
        sentinel.sendCommand<ValkeyReply>(['SENTINEL', 'MASTER', master]),
      ]);
      if (!Array.isArray(address) || !Array.isArray(facts))
        throw new Error(`a Sentinel knows no master "${master}"`);
      const epoch = Number(facts[facts.indexOf('config-epoch') + 1]);
      const named = { host: String(address[0]), port: Number(address[1]), epoch };
      if (epoch < epochLast) {
        late.push(named);
        throw new Error('a Sentinel has missed a failover');
      }
      isNamed = true;
      return named;
    } finally {
      sentinel.destroy();
    }
  };
  const first = Math.floor(Math.random() * servers.length);
  let mayAsk: Promise<unknown> = Promise.resolve();
  const replies = [...servers.slice(first), ...servers.slice(0, first)].map((server) => {
    const begun = mayAsk;
    const reply = begun.then(() => ask(server));
    mayAsk = Promise.race([
      reply.catch(() => undefined),
      begun.then(() => delay(SENTINEL_PATIENCE_MS, undefined, { ref: false })),
    ]);
    return reply;
  });
  return Promise.any(replies).catch((error: unknown) => {
    const [latest] = late.sort((one, other) => other.epoch - one.epoch);
    if (latest === undefined) throw error;
    return latest;
  });
}

function clusterConnection(address: SharingAddress, options: ValkeyConnectionOptions): ValkeyConnection {
  const common = commonOptions(address, options);
  const cluster = createCluster({
    RESP: common.RESP,
    rootNodes: address.servers.map((server) => ({ ...common, socket: { ...common.socket, ...server } })),
    defaults: common,
    useReplicas: false,
    minimizeConnections: false,
    maxCommandRedirections: REDIRECTIONS_MAX,
    commandOptions: TEXT,
  });
  cluster.on('error', options.onError);
  cluster.on('node-error', options.onError);
  cluster.on('node-ready', options.onReady);
  return {
    connect: () => cluster.connect(),
    send: (key, args, binary) =>
      cluster.sendCommand<ValkeyReply>(key, false, [...args], binary ? BINARY : TEXT),
    destroy: () => {
      cluster.destroy();
    },
  };
}
