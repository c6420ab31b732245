/**
 * What a gateway shares with other hosts, over the server of `sharing.url`: the authority of limits and money, and the registry.
 * Loaded where there is `sharing` alone, for the server's client costs memory. Main thread of a gateway process.
 */
import type { Settings } from '../config/schema.js';
import type { Clock } from '../core/clock.js';
import type { Store } from '../store/store.js';
import type { Log } from '../telemetry/log.js';
import { HostDirectory } from './host-directory.js';
import { openHostAuthorities, type HostAuthorities } from './open-host-authority.js';
import { RegistryLog } from './registry-log.js';
import { RegistryServer } from './registry-server.js';
import { ValkeyClient } from './valkey-client.js';

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
  readonly authorities: HostAuthorities;
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
    authorities: openHostAuthorities({ settings: { ...settings, sharing }, host, slot, store, clock, log }),
    registry,
    directory: new HostDirectory({ client, namespace, partitions, host }),
    closeRegistry: async () => {
      client.close();
      waiter.close();
      await registry.close();
    },
  };
}
