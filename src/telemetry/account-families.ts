/**
 * Metrics of the accounts, by name. Main thread, at a scrape.
 */
import {
  currencyOf,
  type AccountSample,
  type MetricFamily,
  type MetricsSource,
  type Sample,
} from './metrics-source.js';

const ACCOUNT_LABELS = ['account', 'account_name'];

function accountSamples(source: MetricsSource, value: (account: AccountSample) => number): Sample[] {
  return source.accounts().map((account) => ({
    value: value(account),
    labels: { account: account.id, account_name: account.name },
  }));
}

/** Without samples unless `metrics.account_labels` is on. */
export const ACCOUNT_FAMILIES: readonly MetricFamily[] = [
  {
    name: 'tollgate_account_balance',
    type: 'gauge',
    help: 'What an account has left for new calls, in units of the currency. Only with metrics.account_labels.',
    labels: ACCOUNT_LABELS,
    across: 'one',
    collect: (source) => accountSamples(source, ({ availablePicoUnits }) => currencyOf(availablePicoUnits)),
  },
  {
    name: 'tollgate_account_spent_total',
    type: 'counter',
    help: 'What the calls of an account have cost so far, in units of the currency. Only with metrics.account_labels.',
    labels: ACCOUNT_LABELS,
    across: 'one',
    collect: (source) => accountSamples(source, ({ spentPicoUnits }) => currencyOf(spentPicoUnits)),
  },
  {
    name: 'tollgate_account_calls_today',
    type: 'gauge',
    help: 'Calls of an account that count toward its day, which begins at 00:00 UTC+8. Only with metrics.account_labels.',
    labels: ACCOUNT_LABELS,
    across: 'one',
    collect: (source) => accountSamples(source, ({ callsToday }) => callsToday),
  },
];
