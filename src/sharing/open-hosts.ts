/**
 * What a gateway shares with other hosts, over the server of `sharing.url`: the coordinator of limits and money, and the registry.
 * Loaded where there is `sharing` alone, for the server's client costs memory. Main thread of a gateway process.
 */
import { randomUUID } from 'node:crypto';
import type { Settings } from '../config/schema.js';
import type { Clock } from '../core/clock.js';
import type { Store } from '../store/store.js';
import type { Log } from '../telemetry/log.js';
import { CoordinatorMemory } from './coordinator-memory.js';
import type { Coordinator } from './coordinator.js';
import { EqualShare, type EqualShareOptions } from './equal-share.js';
import { FallbackCoordinator } from './fallback-coordinator.js';
import { hostAccounting } from './host-accounting.js';
import { HostDirectory } from './host-directory.js';
import { SYSTEM_TIMERS } from './lease-terms.js';
import { RegistryLog } from './registry-log.js';
import { RegistryServer } from './registry-server.js';
import { ValkeyClient } from './valkey-client.js';
import { ValkeyCoordinator } from './valkey-coordinator.js';

/*
 * The coordinator of hosts for one gateway process, by the settings: a node for its calls and one for an operator's debits. Main
 * thread. Load it when there is `sharing` alone, see valkey-client.ts.
 */

/** A request waits for its exchange; a server that needs longer is taken for lost. */
const EXCHANGE_DEADLINE_MS = 1_000;
/** As on one host: see lmdb-coordinator.ts. */
const DEBIT_SLOTS_FROM = 1_000_000;
/** What is set aside for a time without the server is leased by a third one. */
const FALLBACK_SLOTS_FROM = 2_000_000;

export interface HostCoordinatorOptions {
  /** With `sharing`. */
  readonly settings: Settings & { readonly sharing: NonNullable<Settings['sharing']> };
  /** Made once for the data directory. */
  readonly host: string;
  /** Index of the process in its group. */
  readonly slot: number;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, 'warn'>;
}

export interface HostCoordinators {
  /** Of the calls. */
  readonly calls: EqualShare;
  /** Of an operator's debits: whatever becomes of it, the calls keep their leases. */
  readonly debits: Coordinator;
}

/** Nobody has joined yet; connecting has begun. Throws where the host's memory of the server is damaged. */
export function openHostCoordinators(options: HostCoordinatorOptions): HostCoordinators {
  const { settings, host, slot, store, clock, log } = options;
  const { sharing } = settings;
  const memory = new CoordinatorMemory(settings.data, sharing.namespace);
  const accounting = hostAccounting(store);
  const shares = sharing.on_authority_loss === 'equal_share' ? (sharing.hosts ?? 1) * settings.processes : 0;
  const nodeExpiryMs = sharing.node_expiry_seconds * 1_000;
  const open = (nodeSlot: number, more: Partial<EqualShareOptions> = {}): EqualShare => {
    const { shares: ownShares = 0 } = more;
    const node = { host, slot: nodeSlot, incarnation: randomUUID() };
    const client = new ValkeyClient({
      url: sharing.url,
      username: sharing.username,
      password: sharing.password,
      name: `tollgate:${sharing.namespace}:${nodeSlot}`,
      deadlineMs: EXCHANGE_DEADLINE_MS,
    });
    const coordinator = new ValkeyCoordinator({
      client,
      namespace: sharing.namespace,
      partitions: sharing.partitions,
      node,
      clock,
      accounting,
      memory,
      // Whatever a node leases, what is held back for others is not granted.
      equalShares: shares,
      hasShare: ownShares > 0,
      nodeExpiryMs,
    });
    return new EqualShare({ coordinator, node, clock, shares: 0, nodeExpiryMs, ...more });
  };
  const openFallback = (mayReport: () => boolean): FallbackCoordinator => {
    const coordinator = open(FALLBACK_SLOTS_FROM + slot);
    return new FallbackCoordinator({
      coordinator,
      clock,
      timers: SYSTEM_TIMERS,
      shares,
      nodeExpiryMs,
      mayReport,
    });
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

/** An operator waits for it; calls have deadlines of their own where more is sent. */
const REGISTRY_DEADLINE_MS = 2_000;

export interface HostsOptions {
  readonly settings: Settings;
  /** Index of the process in its group. */
  readonly slot: number;
  readonly store: Store;
  readonly clock: Clock;
  /** Brings what was taken into the store to the shared buffers. */
  readonly onTaken: () => void;
  readonly log: Log;
}

/** What is shared, not joined yet. */
export interface Hosts {
  /** Closed by whoever uses them. */
  readonly coordinators: HostCoordinators;
  readonly registry: RegistryLog;
  /** For operators. */
  readonly directory: HostDirectory;
  closeRegistry(): Promise<void>;
}

export type OpenHosts = typeof openHosts;

/** The settings have `sharing`. */
export function openHosts({ settings, slot, store, clock, onTaken, log }: HostsOptions): Hosts {
  const { sharing } = settings;
  if (sharing === undefined) throw new Error('invariant broken: hosts are opened where there is sharing');
  const { url, username, password, namespace, partitions } = sharing;
  const host = store.copy.hostId();
  const clientOf = (purpose: string): ValkeyClient => {
    const name = `tollgate:${namespace}:${purpose}:${slot}`;
    return new ValkeyClient({ url, username, password, name, deadlineMs: REGISTRY_DEADLINE_MS });
  };
  const [client, waiter] = [clientOf('changes'), clientOf('waits')];
  const server = new RegistryServer({ client, waiter, namespace });
  const registry = new RegistryLog({ store, server, host, onTaken, log });
  return {
    coordinators: openHostCoordinators({ settings: { ...settings, sharing }, host, slot, store, clock, log }),
    registry,
    directory: new HostDirectory({ client, namespace, partitions, host }),
    closeRegistry: async () => {
      client.close();
      waiter.close();
      await registry.close();
    },
  };
}
