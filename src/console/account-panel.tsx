/**
 * One account: its counters as they move, its keys, its course, its last day. Browser.
 */
import { useState } from 'preact/hooks';
import { CreditDialog, PlanDialog, StatusDialog } from './account-dialogs.js';
import { AccountCourse, AccountHours } from './account-course.js';
import { Badge, CopyButton, Money, ErrorText, StandingBadge } from './controls.js';
import { moment, money, number, short } from './format.js';
import { Icon } from './icons.js';
import { KeyTable } from './key-table.js';
import { usePolled } from './live.js';
import { addressOf } from './route.js';
import { Tiles, type Tile } from './table.js';
import type { Account, Plan } from './views.js';

/** Of the live counters. */
const REFRESH_MS = 2_000;

type Question = 'credit' | 'plan' | 'standing';

const withoutPlan = ({ plan }: Account): string =>
  `The settings have no plan ${plan}, so the keys of this account are refused. Add the plan to the settings, or change the account’s.`;

interface AccountPanelProps {
  readonly id: string;
  readonly plans: readonly Plan[];
  /** The list shows something else now. */
  readonly onChanged: () => void;
}

export function AccountPanel({ id, plans, onChanged }: AccountPanelProps) {
  const {
    answer: account,
    problem: error,
    setResponse: setAccount,
  } = usePolled<Account>(`/accounts/${encodeURIComponent(id)}`, REFRESH_MS);
  const [question, setQuestion] = useState<Question>();

  const changed = (next: Account): void => {
    setAccount(next);
    setQuestion(undefined);
    onChanged();
  };
  const close = (): void => setQuestion(undefined);
  return (
    <section class="panel" aria-label="Account">
      <a class="back" href={addressOf('accounts')}>
        <Icon name="back" /> All accounts
      </a>
      <ErrorText text={error} />
      {account === undefined ? null : (
        <>
          <div class="panel-head">
            <h2>
              <bdi class="long-name">{account.name}</bdi>
            </h2>
            <p class="marks">
              <StandingBadge account={account} />
              <Badge tone="plain">{account.plan}</Badge>
              <code>{account.id}</code>
              <CopyButton text={account.id} what="the account’s id" />
            </p>
            <p class="actions">
              <button type="button" onClick={() => setQuestion('credit')}>
                Add credit
              </button>
              <button type="button" onClick={() => setQuestion('plan')}>
                Change plan
              </button>
              <button type="button" onClick={() => setQuestion('standing')}>
                {account.active ? 'Disable' : 'Enable'}
              </button>
            </p>
          </div>
          <ErrorText text={account.plan_missing === true ? withoutPlan(account) : undefined} />
          <Counters account={account} plan={plans.find((plan) => plan.id === account.plan)} />
          <KeyTable account={account} />
          <AccountCourse account={account.id} />
          <AccountHours account={account.id} />
          {question === 'credit' ? (
            <CreditDialog account={account} onClose={close} onChanged={changed} />
          ) : null}
          {question === 'plan' ? (
            <PlanDialog account={account} plans={plans} onClose={close} onChanged={changed} />
          ) : null}
          {question === 'standing' ? (
            <StatusDialog account={account} onClose={close} onChanged={changed} />
          ) : null}
        </>
      )}
    </section>
  );
}

function Counters({ account, plan }: { readonly account: Account; readonly plan: Plan | undefined }) {
  const { leased } = account;
  const counters: readonly Tile[] = [
    ['Balance', <Money amount={account.balance} />, `of ${money(account.credited)} credited`],
    ['Held', <Money amount={account.held} />, `${number(account.calls_in_flight)} calls in flight`],
    ['Spent', <Money amount={account.spent} />, `since ${moment(account.created)}`],
    ...(leased === undefined
      ? []
      : [
          [
            'Leased',
            <Money amount={leased.balance} />,
            `of the balance, and ${number(leased.calls_in_flight)} calls in flight: granted in advance`,
          ] as const,
        ]),
    [
      'This minute',
      number(account.requests_this_minute),
      plan === undefined ? 'requests' : `of ${short(plan.requests_per_minute)} requests`,
    ],
    [
      'Today',
      number(account.calls_today),
      plan === undefined ? 'calls' : `of ${short(plan.calls_per_day)} calls`,
    ],
  ];
  return <Tiles label="Counters" small tiles={counters} />;
}
