/**
 * The authority of hosts for one gateway process, by the settings: a node for its calls and one for an operator's debits. Main
 * thread. Load it when there is `sharing` alone, see valkey-client.ts.
 */
import { randomUUID } from 'node:crypto';
import type { Clock } from '../core/clock.js';
import type { Settings } from '../config/schema.js';
import type { Store } from '../store/store.js';
import type { Authority } from './authority.js';
import { AuthorityMemory } from './authority-memory.js';
import { EqualShare } from './equal-share.js';
import { hostBooks } from './host-books.js';
import { ValkeyAuthority } from './valkey-authority.js';
import { ValkeyClient } from './valkey-client.js';

/** A request waits for its exchange; a server that needs longer is taken for lost. */
const EXCHANGE_DEADLINE_MS = 1_000;
/** As on one host: see open-authority.ts. */
const DEBIT_SLOTS_FROM = 1_000_000;

export interface HostAuthorityOptions {
  /** With `sharing`. */
  readonly settings: Settings & { readonly sharing: NonNullable<Settings['sharing']> };
  /** Made once for the data directory. */
  readonly host: string;
  /** Index of the process in its group. */
  readonly slot: number;
  readonly store: Store;
  readonly clock: Clock;
}

export interface HostAuthorities {
  /** Of the calls. */
  readonly calls: EqualShare;
  /** Of an operator's debits: whatever becomes of it, the calls keep their leases. */
  readonly debits: Authority;
}

/** Nobody has joined yet; connecting has begun. Throws where the host's memory of the server is damaged. */
export function openHostAuthorities(options: HostAuthorityOptions): HostAuthorities {
  const { settings, host, slot, store, clock } = options;
  const { sharing } = settings;
  const memory = new AuthorityMemory(settings.data, sharing.namespace);
  const books = hostBooks(store);
  const shares = sharing.on_authority_loss === 'equal_share' ? (sharing.hosts ?? 1) * settings.processes : 0;
  const nodeExpiryMs = sharing.node_expiry_seconds * 1_000;
  const open = (nodeSlot: number, equalShares: number): EqualShare => {
    const node = { host, slot: nodeSlot, incarnation: randomUUID() };
    const client = new ValkeyClient({
      url: sharing.url,
      username: sharing.username,
      password: sharing.password,
      name: `tollgate:${sharing.namespace}:${nodeSlot}`,
      deadlineMs: EXCHANGE_DEADLINE_MS,
    });
    const authority = new ValkeyAuthority({
      client,
      namespace: sharing.namespace,
      partitions: sharing.partitions,
      node,
      clock,
      books,
      memory,
      equalShares,
      nodeExpiryMs,
    });
    return new EqualShare({ authority, node, clock, shares: equalShares, nodeExpiryMs });
  };
  return { calls: open(slot, shares), debits: open(DEBIT_SLOTS_FROM + slot, 0) };
}
