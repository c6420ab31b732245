/**
 * What `@redis/client` offers for one server, for Sentinels and for a Cluster, behind the one call that Tollgate makes. It reads
 * no reply and decides nothing. Main thread.
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
/** Replies of the second version of the protocol; texts come as Buffer where the call was binary. */
export type ValkeyReply = string | number | null | Buffer | ValkeyReply[];

export interface ValkeyConnectionOptions {
  /** As `sharing.url`. */
  readonly url: string;
  readonly username?: string | undefined;
  readonly password?: string | undefined;
  /** Seen in the server's list of clients. */
  readonly name: string;
  readonly connectTimeoutMs: number;
  /** Calls that may wait for their reply; one more is refused. */
  readonly commandsMax: number;
  /** Pause before the next try to connect, after so many. */
  readonly reconnectDelayMs: (tries: number) => number;
  /** Every failure of a connection, also of those that are tried again. */
  readonly onError: (error: Error) => void;
}

export interface ValkeyConnection {
  /** Resolves when it has connected for the first time; tries until then, or until `destroy`. */
  connect(): Promise<unknown>;
  /** `key` tells a Cluster the server; undefined for any. Rejects at once while there is no connection. */
  send(key: string | undefined, words: readonly ValkeyArgument[], binary: boolean): Promise<ValkeyReply>;
  /** Drops the connections; calls that wait are rejected. Never throws. */
  destroy(): void;
}

const BINARY = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer }, timeout: 0 } as const;
/** Without a timeout of its own: it would end once a call is written, and cost a signal each. Deadlines are the client's. */
const TEXT = { timeout: 0 } as const;
/** A call that met a server which is no master any more is sent again only so often, within its deadline. */
const REDIRECTIONS_MAX = 3;
/** How often Sentinels are asked for the master, beside what they tell by themselves. */
const SENTINEL_SCAN_MS = 2_000;
/** A host without a route answers nothing for hours otherwise. */
const KEEP_ALIVE_MS = 5_000;

/** Whether the server itself said no, so that nothing was done. Its words begin with a code in capitals. */
export function isServersNo(error: unknown): boolean {
  return error instanceof ErrorReply;
}

/** Whether there was no connection to send anything on. */
export function wasOffline(error: unknown): boolean {
  return error instanceof ClientOfflineError || error instanceof ClientClosedError;
}

/** Throws where the URL is none that the settings would take. Connects when it is told to. */
export function openConnection(options: ValkeyConnectionOptions): ValkeyConnection {
  const address = parseSharingUrl(options.url);
  if (address === undefined)
    throw new Error('invariant broken: the address of the sharing server was checked');
  if (address.kind === 'sentinel') return sentinelConnection(address, options);
  return address.kind === 'cluster'
    ? clusterConnection(address, options)
    : serverConnection(address, options);
}

/** What holds of every single connection, with each word explicit. */
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
    // A call that waits for a connection would be late; its asker has other ways.
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
    send: (_key, words, binary) => client.sendCommand<ValkeyReply>(words, binary ? BINARY : TEXT),
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
  return {
    connect: () => sentinel.connect(),
    send: (_key, words, binary) =>
      sentinel.sendCommand<ValkeyReply>(false, [...words], binary ? BINARY : TEXT),
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
    send: (key, words, binary) =>
      cluster.sendCommand<ValkeyReply>(key, false, [...words], binary ? BINARY : TEXT),
    destroy: () => {
      cluster.destroy();
    },
  };
}
