/**
 * The three clients of `@redis/client`, for one server, for Sentinels and for a Cluster, behind the one call
 * that `ValkeyClient` makes. It reads no reply and decides nothing. Main thread.
 *
 * Must hold: nothing waits in a queue for a connection: a call that could not be sent rejects at once, so
 * that its deadline means what it says. Test: unit/sharing/valkey-client (without a server; Sentinels; a
 * Cluster).
 */
import {
  ClientClosedError,
  ClientOfflineError,
  createClient,
  createCluster,
  createSentinel,
  ErrorReply,
  RESP_TYPES,
} from '@redis/client';
import { parseSharingUrl, type SharingAddress } from '../config/sharing-schema.js';

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
  /** The pause before the next try to connect, after so many tries. */
  readonly reconnectDelayMs: (tries: number) => number;
  /** Called for every failure of a connection, also if it is tried again. */
  readonly onError: (error: Error) => void;
  /** Called when Sentinels have told of another master. */
  readonly onOtherServer: () => void;
}

export interface ValkeyConnection {
  /** Tries until it has connected once, or until `destroy`; then resolves. */
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
/** How often Sentinels are asked for the master, besides what they publish. */
const SENTINEL_SCAN_MS = 2_000;
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
    reconnectStrategy: options.reconnectDelayMs,
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
  const client = createClient({
    ...common,
    socket: { ...common.socket, ...address.servers[0]! },
    commandOptions: TEXT,
  });
  client.on('error', options.onError);
  return {
    connect: () => client.connect(),
    send: (_key, args, binary) => client.sendCommand<ValkeyReply>(args, binary ? BINARY : TEXT),
    destroy: () => {
      client.destroy();
    },
  };
}

function sentinelConnection(address: SharingAddress, options: ValkeyConnectionOptions): ValkeyConnection {
  const common = commonOptions(address, options);
  const sentinel = createSentinel({
    name: address.master,
    sentinelRootNodes: [...address.servers],
    RESP: common.RESP,
    nodeClientOptions: common,
    // Sentinels have users of their own, or none.
    sentinelClientOptions: { socket: common.socket, maintNotifications: 'disabled' },
    maxCommandRediscovers: REDIRECTIONS_MAX,
    scanInterval: SENTINEL_SCAN_MS,
    masterPoolSize: 1,
    replicaPoolSize: 0,
    reserveClient: false,
    passthroughClientErrorEvents: true,
    commandOptions: TEXT,
  });
  sentinel.on('error', options.onError);
  sentinel.on('client-error', options.onError);
  sentinel.on('topology-change', options.onOtherServer);
  return {
    connect: () => sentinel.connect(),
    send: (_key, args, binary) => sentinel.sendCommand<ValkeyReply>(false, [...args], binary ? BINARY : TEXT),
    destroy: () => {
      sentinel.destroy().catch(options.onError);
    },
  };
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
  return {
    connect: () => cluster.connect(),
    send: (key, args, binary) =>
      cluster.sendCommand<ValkeyReply>(key, false, [...args], binary ? BINARY : TEXT),
    destroy: () => {
      cluster.destroy();
    },
  };
}
