/**
 * Metrics of what is shared with other processes or hosts. Without samples where a gateway has its limits for itself. Main thread,
 * at a scrape.
 */
import { histogramSamples, secondsOf, type MetricFamily, type MetricsSource } from './metrics-source.js';
import { REGISTRY_STATES, SHARING_STATES, type SharingReading } from './sharing-reading.js';

const EXCHANGE_DURATION = 'tollgate_sharing_exchange_duration_seconds';

function sample({ sharing }: MetricsSource, value: (reading: SharingReading) => number) {
  const reading = sharing();
  return reading === undefined ? [] : [{ value: value(reading), labels: {} }];
}

/** One for each state, 1 for that which is. */
function stateSamples(states: readonly string[], state: string | undefined) {
  if (state === undefined) return [];
  return states.map((name) => ({ value: name === state ? 1 : 0, labels: { state: name } }));
}

export const SHARING_FAMILIES: readonly MetricFamily[] = [
  {
    name: 'tollgate_sharing_processes',
    type: 'gauge',
    help: 'Gateway processes by how they stand with the authority that lends limits and money: connected, alone (on an equal share), quarantine (it has lost its data and lends nothing yet) or lost.',
    labels: ['state'],
    collect: ({ sharing }) => stateSamples(SHARING_STATES, sharing()?.state),
  },
  {
    name: 'tollgate_sharing_lost_seconds',
    type: 'gauge',
    help: 'Since the authority could last be asked; 0 while it can.',
    labels: [],
    across: 'max',
    collect: (source) => sample(source, ({ lostMs }) => secondsOf(lostMs)),
  },
  {
    name: EXCHANGE_DURATION,
    type: 'histogram',
    help: 'Time of an exchange of leases with the authority that was answered; many requests share one.',
    labels: [],
    collect: ({ sharing }) => {
      const reading = sharing();
      return reading === undefined
        ? []
        : histogramSamples(EXCHANGE_DURATION, reading.exchanges, {}, secondsOf);
    },
  },
  {
    name: 'tollgate_sharing_exchange_failures_total',
    type: 'counter',
    help: 'Exchanges with the authority that were not answered, or refused.',
    labels: [],
    collect: (source) => sample(source, ({ failures }) => failures),
  },
  {
    name: 'tollgate_sharing_leased_subjects',
    type: 'gauge',
    help: 'Accounts, and keys with limits of their own, of which something is leased.',
    labels: [],
    collect: (source) => sample(source, ({ leased }) => leased),
  },
  {
    name: 'tollgate_sharing_waiting_requests',
    type: 'gauge',
    help: 'Requests that wait for a lease.',
    labels: [],
    collect: (source) => sample(source, ({ waits }) => waits),
  },
  {
    name: 'tollgate_sharing_registry_processes',
    type: 'gauge',
    help: 'Gateway processes by how they stand with the accounts and keys that hosts share: following, lost (nothing can be changed) or diverged (an operator must decide). Over hosts alone.',
    labels: ['state'],
    collect: ({ sharing }) => stateSamples(REGISTRY_STATES, sharing()?.registry?.state),
  },
];
