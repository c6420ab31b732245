/**
 * Connections to one server, to the master that Sentinels name, and to a Cluster, by `@redis/client`. All
 * three have the interface ValkeyConnection, which valkey-client.ts uses. sentinel-master.ts asks Sentinels.
 * Main thread.
 *
 * Must hold: no call waits in a queue for a connection. A call that cannot be sent rejects at once, so that
 * its caller can go on without the server. (In a Cluster a call whose slot has moved waits, within its
 * deadline, while the library reads the map and connects to a new server.) No socket is left open after
 * `destroy`, whenever it is called. Nothing here bounds how long `connect` or a call takes: valkey-client.ts
 * does. Test: test/unit/sharing/valkey-client.test.ts (without a server; Sentinels; a Cluster).
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
import { setMaxListeners } from 'node:events';
import { parseSharingUrl, type ServerAddress, type SharingAddress } from '../config/sharing-schema.js';
import { invariant } from '../core/errors.js';
import { type KnownMaster, masterNamedBy, type NamedMaster, type SentinelClient } from './sentinel-master.js';

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
  /** How many calls may wait for their reply. A call beyond that rejects. */
  readonly commandsMax: number;
  /** In a Cluster: the pause before a server is tried again, after so many tries. */
  readonly reconnectDelayMs: (tries: number) => number;
  /** In a Cluster: called for every failure of a connection. The library then tries again by itself. */
  readonly onError: (error: Error) => void;
  /** Called when calls can be sent; in a Cluster for each server, and again when one is back. */
  readonly onReady: () => void;
  /**
   * Called when the connection has broken, or no longer leads to the master. The caller then opens another
   * one. Not in a Cluster. May be called several times.
   */
  readonly onOver: (error: Error) => void;
  /** The master that the Sentinels have named. Each connection of the process gets the same object. */
  readonly knownMaster: KnownMaster;
}

/** After `destroy` the callbacks of the options may still be called: the caller ignores that. */
export interface ValkeyConnection {
  /**
   * Resolves when it has connected; resolves or rejects after `destroy`. If it rejects, destroy it and open
   * another. It may do neither for ever, if a server accepts a connection and is silent: then do so too. A
   * Cluster has connected when all masters of its map have, which is not read again until then.
   */
  connect(): Promise<unknown>;
  /** In a Cluster `key` selects the server, undefined any. Rejects at once while there is no connection. */
  send(key: string | undefined, args: readonly ValkeyArgument[], binary: boolean): Promise<ValkeyReply>;
  /** Drops the connections; pending calls are rejected. Never throws. */
  destroy(): void;
}

// Options of calls. The library's timeout is off: it would cover the write alone, and cost an AbortSignal.
const BINARY = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer }, timeout: 0 } as const;
const TEXT = { timeout: 0 } as const;
/** In a Cluster: how often a call is sent again that met a server which is not the master any more. */
const REDIRECTIONS_MAX = 3;
/** The pause before Sentinels are asked again who is the master. Each time costs a connection. */
const SENTINEL_POLL_MS = 2_000;
/** TCP keep-alive. It finds a lost route in seconds; without it that could take hours. */
const KEEP_ALIVE_MS = 5_000;

/** Whether the server replied with an error. Then a command has done nothing; a script may have begun. */
export function isErrorReply(error: unknown): boolean {
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
  invariant(address !== undefined, 'the address of the sharing server was checked');
  if (address.kind === 'sentinel') return sentinelConnection(address, options);
  return address.kind === 'cluster'
    ? clusterConnection(address, options)
    : serverConnection(address, options);
}

/** The options that a connection to one server has, and those to each server of a Cluster. */
function commonOptions(address: SharingAddress, options: ValkeyConnectionOptions) {
  const socket = {
    connectTimeout: options.connectTimeoutMs,
    reconnectStrategy: false as const,
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
    // A call that waited for a connection would be late: see "Must hold".
    disableOfflineQueue: true,
    // No further commands at the start of a connection: nothing here needs CLIENT SETINFO or notifications.
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

/** A client of one server. `createClient` takes 45 ms for each new set of options: it makes a class. */
function clientOf(common: CommonOptions, { host, port }: ServerAddress) {
  return new RedisClient({ ...common, socket: { ...common.socket, host, port }, commandOptions: TEXT });
}

/** Destroys the client also while its socket is being opened, which the library's `destroy` leaves open. */
function destroyForGood(client: ReturnType<typeof clientOf>): void {
  client.on('ready', () => client.destroy());
  client.destroy();
}

/**
 * A connection to the master that Sentinels name. A Sentinel is asked for the address, and the server there
 * for its role, as redis.io/docs/latest/develop/reference/sentinel-clients says. The connection keeps its
 * server, and is over when the socket breaks or another server is named. Not by the library's
 * `createSentinel`, which takes a new master 1 to 2 s later.
 */
function sentinelConnection(address: SharingAddress, options: ValkeyConnectionOptions): ValkeyConnection {
  const common = commonOptions(address, options);
  const { knownMaster } = options;
  const askSentinels = (): Promise<NamedMaster> =>
    knownMaster.ask((epoch) => masterNamedBy(address, (server) => sentinelOf(common.socket, server), epoch));
  const giveUp = (error: Error): void => {
    if (isOver) return;
    knownMaster.forget();
    options.onOver(error);
  };
  let client: ReturnType<typeof clientOf> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isMaster = false;
  let isOver = false;
  // A master that is cut off from its Sentinels goes on to serve its clients, so these have to ask again.
  const poll = async (used: NamedMaster): Promise<void> => {
    const { epoch } = await askSentinels().catch(() => used);
    if (isOver) return;
    if (epoch > used.epoch) giveUp(new Error('a Sentinel names another master'));
    else timer = setTimeout(() => void poll(used), SENTINEL_POLL_MS);
  };
  return {
    connect: async () => {
      const server = knownMaster.found ?? (await askSentinels());
      // `destroy` was called during the `await`.
      if (isOver) return;
      client = clientOf(common, server);
      client.on('error', giveUp);
      await client.connect();
      isMaster = await isItMaster(client);
      if (!isMaster) {
        knownMaster.forget();
        throw new Error('the server that a Sentinel names is no master yet');
      }
      knownMaster.record(server);
      timer = setTimeout(() => void poll(server), SENTINEL_POLL_MS);
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

/** Whether the server is a master. Also true if the user may not ask: then the first write tells. */
async function isItMaster(client: ReturnType<typeof clientOf>): Promise<boolean> {
  try {
    const role = await client.sendCommand<ValkeyReply>(['ROLE']);
    return Array.isArray(role) && role[0] === 'master';
  } catch (error) {
    if (isErrorReply(error)) return true;
    throw error;
  }
}

/** A client of one Sentinel. Sentinels have users of their own, or none. */
function sentinelOf(socket: CommonOptions['socket'], server: ServerAddress): SentinelClient {
  const client = new RedisClient({
    RESP: 2,
    disableClientInfo: true,
    maintNotifications: 'disabled',
    socket: { ...socket, ...server, socketTimeout: socket.connectTimeout },
  });
  // Without a handler an error would end the process. `connect` and the commands reject with it, too.
  client.on('error', () => undefined);
  return {
    connect: () => client.connect(),
    ask: (args) => client.sendCommand<ValkeyReply>(args),
    destroy: () => client.destroy(),
  };
}

function clusterConnection(address: SharingAddress, options: ValkeyConnectionOptions): ValkeyConnection {
  const common = commonOptions(address, options);
  // The library's `destroy` leaves open the connections that it is still opening, and those by which it asks
  // for the map of the Cluster. The signal destroys all sockets, also those that the library opens later.
  const destroyed = new AbortController();
  const { signal } = destroyed;
  // Each socket listens to it until it is closed; a Cluster may have more servers than Node's bound of ten.
  setMaxListeners(0, signal);
  const socket = {
    ...common.socket,
    signal,
    reconnectStrategy: (tries: number) => !signal.aborted && options.reconnectDelayMs(tries),
  };
  const cluster = createCluster({
    RESP: common.RESP,
    rootNodes: address.servers.map((server) => ({ ...common, socket: { ...socket, ...server } })),
    defaults: { ...common, socket },
    useReplicas: false,
    minimizeConnections: false,
    maxCommandRedirections: REDIRECTIONS_MAX,
    commandOptions: TEXT,
  });
  let lastError: Error | undefined;
  const onError = (error: Error): void => {
    lastError = error;
    options.onError(error);
  };
  cluster.on('error', onError);
  cluster.on('node-error', onError);
  cluster.on('node-ready', options.onReady);
  return {
    connect: () =>
      cluster.connect().catch((error: unknown) => {
        // The library's "All the root nodes are unavailable" would hide why.
        throw lastError ?? error;
      }),
    send: (key, args, binary) =>
      cluster.sendCommand<ValkeyReply>(key, false, [...args], binary ? BINARY : TEXT),
    destroy: () => {
      cluster.destroy();
      destroyed.abort();
    },
  };
}
