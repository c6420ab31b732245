/**
 * Opens what a gateway shares with other hosts over the server of `sharing.url`: the coordinators of limits
 * and money, the registry, and the claims of notices. gateway/main.ts imports this file only with `sharing`:
 * the server's client costs memory. gateway/shared-accounting.ts calls `openHosts`. Main thread.
 *
 * A life of a process has up to three nodes: one for its calls, one for debits, so that a failed debit leaves
 * the calls their leases (DEBIT_SLOTS_FROM), and one for fallback quotas (`on_authority_loss: equal_share`).
 *
 * Must hold: the server ends a node's life, or frees what it held, only when the node can have no call any
 * more; else others are granted what it still uses. Tests: test/unit/sharing/open-hosts.*.test.ts.
 */
import { randomUUID } from 'node:crypto';
import { longestCallMs } from '../config/longest-call.js';
import type { Settings } from '../config/schema.js';
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { Calendar } from '../core/calendar.js';
import type { Store } from '../store/store.js';
import type { Log } from '../telemetry/log.js';
import { DEBIT_SLOTS_FROM } from './coordinator.js';
import { EqualShare, type EqualShareOptions } from './equal-share.js';
import { FallbackCoordinator } from './fallback-coordinator.js';
import { hostAccounting } from './host-accounting.js';
import { HostDirectory } from './host-directory.js';
import { CUT_OFF_MS } from './lease-manager.js';
import { SYSTEM_TIMERS } from './lease-timers.js';
import type { Coordinators } from './lmdb-coordinator.js';
import { RegistryLog } from './registry-log.js';
import { RegistryServer } from './registry-server.js';
import { SharingMemory } from './sharing-memory.js';
import { ValkeyClient, ValkeyError, ValkeyPeers } from './valkey-client.js';
import { tagOf } from './valkey-codec.js';
import { ValkeyCoordinator } from './valkey-coordinator.js';
import { EXCHANGE_AGE_MS_MAX } from './valkey-lua.js';

/** 1 s: a slower server counts as lost, because requests wait for it. The node gives up before that age. */
const EXCHANGE_DEADLINE_MS = EXCHANGE_AGE_MS_MAX - 500;
/**
 * A node that hears nothing stops by itself after `node_expiry_seconds`. The server ends the node's life so
 * much later, because the node begins calls until CUT_OFF_MS after a reply, checks the time only now and
 * then, and clocks drift.
 */
const EXPIRY_MARGIN_MS = CUT_OFF_MS + 5_000;
/** Added to a process's slot: the slot of its fallback node. */
const FALLBACK_SLOTS_FROM = 2_000_000;
invariant(2 * DEBIT_SLOTS_FROM <= FALLBACK_SLOTS_FROM, 'the slots of fallback nodes are beyond all others');

interface HostCoordinatorOptions extends Pick<HostsOptions, 'modelsInForce' | 'slot' | 'store' | 'clock'> {
  readonly settings: Settings & { readonly sharing: NonNullable<Settings['sharing']> };
  /** The host's id, made once for the data directory. */
  readonly host: string;
  readonly log: Pick<Log, 'warn' | 'error'>;
  /** The other clients of this process for the same server. Default: only those of the nodes. */
  readonly peers?: ValkeyPeers;
}

export interface HostCoordinators extends Coordinators {
  /** An EqualShare, because the stats read what a Coordinator does not have. */
  readonly calls: EqualShare;
}

/** Opens the nodes, which begin to connect. Throws if a file of SharingMemory is damaged. */
export function openHostCoordinators(options: HostCoordinatorOptions): HostCoordinators {
  const { settings, host, slot, store, clock, log, modelsInForce, peers = new ValkeyPeers() } = options;
  const { sharing } = settings;
  const memory = new SharingMemory(settings.data, sharing.namespace, sharing.partitions);
  const accounting = hostAccounting(store);
  const { hosts, on_authority_loss: onLoss = hosts === undefined ? 'refuse' : 'equal_share' } = sharing;
  const shares = onLoss === 'equal_share' ? (hosts ?? 1) * settings.processes : 0;
  const nodeExpiryMs = sharing.node_expiry_seconds * 1_000;
  const endedAfterMs = endedAfterMsOf(nodeExpiryMs, modelsInForce);
  const nodes: EqualShare[] = [];
  // If one node loses the server, or goes over to another server, all nodes of the process send a heartbeat.
  const onLost = (): void => {
    for (const node of nodes) node.hurryHeartbeat();
  };
  const open = (nodeSlot: number, extraOptions: Partial<EqualShareOptions> = {}): EqualShare => {
    const node = { host, slot: nodeSlot, incarnation: randomUUID() };
    // No callback below comes before `opened` is set: each follows a reply or an error of the network.
    const client = new ValkeyClient({
      url: sharing.url,
      username: sharing.username,
      password: sharing.password,
      name: `tollgate:${sharing.namespace}:${nodeSlot}`,
      deadlineMs: EXCHANGE_DEADLINE_MS,
      onConnectionLost: onLost,
      onConnected: () => opened.onConnected(),
      peers,
    });
    const coordinator = new ValkeyCoordinator({
      client,
      namespace: sharing.namespace,
      partitions: sharing.partitions,
      node,
      clock,
      log,
      calendar: new Calendar(settings.quota_timezone),
      accounting,
      memory,
      // Set for nodes without a share too: if the server cannot read the record of a silent node, it holds a
      // share of this size back for it.
      equalShares: shares,
      hasShare: (extraOptions.shares ?? 0) > 0,
      nodeExpiryMs: nodeExpiryMs + EXPIRY_MARGIN_MS,
      endedAfterMs,
      onMembershipChanged: () => opened.hurryHeartbeat(),
    });
    const defaults = { coordinator, clock, shares: 0, nodeExpiryMs, onLost };
    const opened = new EqualShare({ ...defaults, ...extraOptions });
    nodes.push(opened);
    return opened;
  };
  const openFallback = (mayReport: () => boolean): FallbackCoordinator => {
    const coordinator = open(FALLBACK_SLOTS_FROM + slot);
    const timers = SYSTEM_TIMERS;
    return new FallbackCoordinator({ coordinator, clock, timers, shares, nodeExpiryMs, mayReport });
  };
  const onAlone = (reason: string | undefined): void => {
    if (reason === undefined) log.warn('calls are not served from what was set aside any more', {});
    else
      log.warn('cut off from the sharing server: calls are served from what was set aside', {
        error: reason,
      });
  };
  return { calls: open(slot, { shares, openFallback, onAlone }), debits: open(DEBIT_SLOTS_FROM + slot) };
}

/**
 * Returns the function `PartitionOptions.endedAfterMs`. What it returns never shrinks at a reload, because a
 * call goes on by the settings that it began with.
 */
function endedAfterMsOf(nodeExpiryMs: number, modelsInForce: () => Settings['models']): () => number {
  let callMsMax = nodeExpiryMs;
  let lastModels: Settings['models'] | undefined;
  return () => {
    const models = modelsInForce();
    if (models !== lastModels) callMsMax = Math.max(callMsMax, longestCallMs(models));
    lastModels = models;
    // One margin for when the last call begins, one for when it ends.
    return nodeExpiryMs + callMsMax + 2 * EXPIRY_MARGIN_MS;
  };
}

/** For commands of the registry, for which operators wait. Commands with many rows have longer deadlines. */
const REGISTRY_DEADLINE_MS = 2_000;

export interface HostsOptions {
  readonly settings: Settings;
  /** The models after the last reload. */
  readonly modelsInForce: () => Settings['models'];
  readonly slot: number;
  readonly store: Store;
  readonly clock: Clock;
  /** Called after changes of other hosts were written to the store: brings the shared buffers up to date. */
  readonly onApplied: () => void;
  readonly log: Log;
}

/** The type by which gateway/main.ts hands `openHosts` on: other files must not import this one. */
export type OpenHosts = typeof openHosts;
export type Hosts = Readonly<ReturnType<OpenHosts>>;

/** Opens all clients, but joins nothing. Throws as openHostCoordinators, or without `sharing`. */
export function openHosts(options: HostsOptions) {
  const { settings, slot, store, onApplied, log } = options;
  const { sharing } = settings;
  invariant(sharing !== undefined, 'hosts are opened only with sharing');
  const { url, username, password, namespace, partitions } = sharing;
  const host = store.copy.hostId();
  const peers = new ValkeyPeers();
  const clientOf = (purpose: string): ValkeyClient => {
    const name = `tollgate:${namespace}:${purpose}:${slot}`;
    return new ValkeyClient({ url, username, password, name, deadlineMs: REGISTRY_DEADLINE_MS, peers });
  };
  const [client, waiter] = [clientOf('changes'), clientOf('waits')];
  const server = new RegistryServer({ client, waiter, namespace });
  const registry = new RegistryLog({ store, server, host, onApplied, log });
  return {
    /** The caller closes the coordinators; `closeRegistry` does not. */
    coordinators: openHostCoordinators({ ...options, settings: { ...settings, sharing }, host, peers }),
    registry,
    directory: new HostDirectory({ client, namespace, partitions, host }),
    claim: (name: string, forMs: number) =>
      claimOf(client, `${tagOf(namespace, 0)}:claim:${name}`, host, forMs),
    // The clients first: `registry.close` waits for commands that wait at the server, which the clients end.
    closeRegistry: async () => {
      client.close();
      waiter.close();
      await registry.close();
    },
  };
}

/**
 * Claims a name for this host and `forMs`. Resolves with false if another host has the name. Resolves with
 * true also if the server cannot be asked: two notices are better than none. A host may claim its own name
 * again, as after a crash; that does not prolong the claim. Exported for its test.
 */
export async function claimOf(
  client: Pick<ValkeyClient, 'command'>,
  key: string,
  host: string,
  forMs: number,
): Promise<boolean> {
  try {
    const setReply = await client.command(key, ['SET', key, host, 'NX', 'PX', String(Math.ceil(forMs))]);
    return setReply !== null || (await client.command(key, ['GET', key])) === host;
  } catch (error) {
    if (error instanceof ValkeyError) return true;
    throw error;
  }
}
