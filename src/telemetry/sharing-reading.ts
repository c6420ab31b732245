/**
 * How a gateway stands with those it shares limits, accounts and keys with, at one moment. Main thread.
 */
import type { HistogramReading } from './histogram.js';

/**
 * `connected`; `lost`: the authority cannot be asked; `quarantine`: it has lost its data and lends nothing until what it had lent
 * is over; `alone`: this process lives on its equal share. From the best to the worst.
 */
export const SHARING_STATES = ['connected', 'alone', 'quarantine', 'lost'] as const;
export type SharingState = (typeof SHARING_STATES)[number];

/** `following`; `lost`: the server cannot be had, so nothing can be changed; `diverged`: an operator must decide. */
export const REGISTRY_STATES = ['following', 'lost', 'diverged'] as const;
export type RegistryState = (typeof REGISTRY_STATES)[number];

/** From a transaction of the host's own file to the longest that a server is waited for. */
export const EXCHANGE_BOUNDS_MS = [0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000];

export interface SharingReading {
  readonly with: 'processes' | 'hosts';
  readonly state: SharingState;
  /** Undefined where it is connected. */
  readonly reason: string | undefined;
  /** Since it was connected; 0 where it is. */
  readonly lostMs: number;
  /** Of exchanges with the authority that were answered. */
  readonly exchanges: HistogramReading;
  /** Of exchanges that were not. */
  readonly failures: number;
  /** Accounts and keys of which something is leased. */
  readonly leased: number;
  /** Requests that wait for a lease. */
  readonly waits: number;
  /** Undefined where the registry is shared between the processes of one host alone. */
  readonly registry: { readonly state: RegistryState; readonly reason: string | undefined } | undefined;
}
