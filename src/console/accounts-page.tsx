/**
 * The page of accounts, which main.tsx shows: a list with search and filters, a dialog that creates an
 * account, and a panel for the open account with its live counters, its keys and its recent calls. Browser.
 *
 * Must hold: actions are offered only to operators whose role allows them (the gateway rejects them anyway),
 * and a change is seen in the panel and the list at once (test/e2e/console.test.ts,
 * test/e2e/console-accounts.test.ts).
 */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { AccountView, CreditView, ListView, PlanView } from '../admin/views.js';
import { AccountHourCharts, AccountRangeCharts } from './account-charts.js';
import {
  AccountGroupDialog,
  CreditDialog,
  NewAccountDialog,
  PlanDialog,
  useGroupOptions,
} from './account-dialogs.js';
import { AccountKeys } from './account-keys.js';
import { AccountList, ROWS_MAX } from './account-list.js';
import { type AccountOrder, useAccountRows, useSortedAccounts } from './account-rows.js';
import { fetchRows } from './api.js';
import { useRead, useView } from './api-hooks.js';
import { may } from './session.js';
import { addressOf, callsAddress, openPage } from './address.js';
import {
  Badge,
  Button,
  Choice,
  CopyButton,
  CutMoney,
  ErrorText,
  Icon,
  idsOf,
  Name,
  StatusBadge,
  accountStateOf,
  TextField,
  type Tile,
  Tiles,
  useInput,
} from './controls.js';
import { type ChangeProps, SwitchDialog, useDialog } from './dialogs.js';
import { counted, moment, money, number, shortNumber } from './format.js';
import { callDayStart, QuotaBars } from './quotas.js';
import { type Column, CsvButton, Table } from './table.js';

interface AccountsProps {
  /** From the page's address: id or name of the account that is open; empty if none is. */
  readonly item: string;
  /** How many accounts there are; undefined until the first snapshot of the status (live.ts) has come. */
  readonly count: number | undefined;
}

export function AccountsPage({ item, count }: AccountsProps) {
  const search = useInput();
  const plan = useInput();
  const group = useInput();
  const active = useInput();
  const { view, error } = useView<ListView<PlanView>>('/plans');
  const plans = view?.data ?? [];
  const groups = useGroupOptions().options;
  const { dialog, open, onClose } = useDialog();
  const [order, setOrder] = useState<AccountOrder>();
  // Each keystroke sends a request, because a search among 100,000 accounts takes the gateway only 5 ms.
  const filter = { search: search.value.trim(), plan: plan.value, group: group.value, active: active.value };
  // `sorted` is undefined without an order.
  const unsorted = useAccountRows(filter, count);
  const sorted = useSortedAccounts(filter, order);
  const rows = sorted ?? unsorted;
  const onCreated = ({ id }: AccountView): void => {
    onClose();
    rows.refresh();
    openPage('accounts', id);
  };
  return (
    <div class={`accounts ${item === '' ? '' : 'with-panel'}`}>
      <section class="account-finder" aria-label="All accounts">
        <div class="head">
          <h1>Accounts</h1>
          {/* A new account needs a plan, so the button waits until the plans have come. */}
          {may('everything') && (
            <Button
              class="primary"
              disabled={plans.length === 0}
              onClick={() => open(<NewAccountDialog plans={plans} onClose={onClose} onCreated={onCreated} />)}
            >
              <Icon name="plus" /> New account
            </Button>
          )}
        </div>
        <div class="filters" role="search">
          <TextField
            label="Search"
            type="search"
            placeholder="Part of the name, or the id"
            maxLength={100}
            {...search}
          />
          <Choice label="Plan" options={[['', 'Any'], ...idsOf(plans)]} {...plan} />
          {groups.length !== 0 && <Choice label="Group" options={[['', 'Any'], ...groups]} {...group} />}
          <Choice
            label="State"
            options={[
              ['', 'Any'],
              ['true', 'Active'],
              ['false', 'Disabled'],
            ]}
            {...active}
          />
        </div>
        <p class="count muted" role="status">
          {counted(rows.count, 'account', (count) => `${number(count)}${rows.hasMore ? ' or more' : ''}`)}
          {rows.count > ROWS_MAX ? `: the first ${number(ROWS_MAX)} are listed, search for the others` : ''}
        </p>
        <ErrorText text={rows.error ?? error} />
        <AccountList rows={rows} openId={item} order={order} onOrder={setOrder} />
        <CsvButton
          label="Accounts"
          columns={ACCOUNT_COLUMNS}
          allRows={() => fetchRows<AccountView>('/accounts', { ...filter })}
        />
      </section>
      {item !== '' && <AccountPanel key={item} id={item} plans={plans} onChanged={rows.onChanged} />}
      {dialog}
    </div>
  );
}

/** The columns of the CSV. The list itself has fewer (account-list.tsx). */
const ACCOUNT_COLUMNS: readonly Column<AccountView>[] = [
  { head: 'Name', text: ({ name }) => name },
  { head: 'Id', text: ({ id }) => id },
  { head: 'Plan', text: ({ plan }) => plan },
  { head: 'Group', text: (account) => account.group_name },
  { head: 'State', text: (account) => accountStateOf(account)[1] },
  { head: 'This minute', figure: (account) => account.requests_this_minute },
  { head: 'Today', figure: (account) => account.calls_today },
  { head: 'Balance', money: ({ balance }) => balance },
  { head: 'Held', money: ({ held }) => held },
  { head: 'Spent', money: ({ spent }) => spent },
  { head: 'Uncovered', money: ({ uncovered }) => uncovered },
  { head: 'Credited', money: ({ credited }) => credited },
  { head: 'Created', seconds: ({ created }) => created },
];

/** How often the open account is fetched again, for its counters. */
const REFRESH_MS = 2_000;

/** The error to show for an account whose plan is not in the settings (`plan_missing`). */
const planMissingText = ({ plan }: AccountView): string =>
  `The settings have no plan ${plan}, so the keys of this account are refused. Add the plan to the settings, or change the account’s.`;

interface AccountPanelProps {
  /** Id or name. */
  readonly id: string;
  readonly plans: readonly PlanView[];
  /** Called after a change of the account, so that the list shows it. */
  readonly onChanged: (account: AccountView) => void;
}

function AccountPanel({ id, plans, onChanged }: AccountPanelProps) {
  const path = `/accounts/${encodeURIComponent(id)}`;
  const { view: account, error, setView } = useView<AccountView>(path, REFRESH_MS);
  const { dialog, open, onClose } = useDialog();
  const onDone = (changedAccount: AccountView): void => {
    setView(changedAccount);
    onClose();
    onChanged(changedAccount);
  };
  return (
    <section class="panel" aria-label="Account">
      <a class="back" href={addressOf('accounts')}>
        <Icon name="back" /> All accounts
      </a>
      <ErrorText text={error} />
      {account !== undefined && (
        <>
          <AccountHead plans={plans} open={open} item={account} onClose={onClose} onChanged={onDone} />
          <ErrorText text={account.plan_missing === true ? planMissingText(account) : undefined} />
          <Counters account={account} plan={plans.find((plan) => plan.id === account.plan)} />
          <section>
            <h3>Quotas</h3>
            <QuotaBars
              quotas={account.quotas}
              owner={{ account: account.id }}
              label="Quotas of the account"
            />
          </section>
          <AccountKeys account={account} />
          <AccountCredits account={account} />
          <AccountRangeCharts account={account.id} />
          <AccountHourCharts account={account.id} />
          {dialog}
        </>
      )}
    </section>
  );
}

/** Besides the properties of each dialog. */
interface AccountHeadProps extends ChangeProps<AccountView> {
  readonly plans: readonly PlanView[];
  readonly open: (dialog: JSX.Element) => void;
}

/** The name of the account, its badges, and the actions that the operator's role allows. */
function AccountHead({ plans, open, ...dialogProps }: AccountHeadProps) {
  const { item: account } = dialogProps;
  return (
    <div class="panel-head">
      <h2>
        <bdi class="long-name">{account.name}</bdi>
      </h2>
      <p class="marks">
        <StatusBadge account={account} />
        <Badge tone="plain">{account.plan}</Badge>
        {account.group !== null && (
          <a href={addressOf('groups', account.group)}>
            <Name text={account.group_name ?? account.group} />
          </a>
        )}
        <code>{account.id}</code>
        <CopyButton text={account.id} noun="the account’s id" />
      </p>
      <p class="actions">
        <a class="button" href={callsAddress({ account: account.id })}>
          Calls
        </a>
        <a class="button" href={callsAddress({ account: account.id, failed: 'true' })}>
          Failed calls
        </a>
        {may('credit') && <Button onClick={() => open(<CreditDialog {...dialogProps} />)}>Add credit</Button>}
        {may('everything') && (
          <>
            {/* The dialog keeps the plans with which it was opened, so the button waits for them. */}
            <Button
              disabled={plans.length === 0}
              onClick={() => open(<PlanDialog plans={plans} {...dialogProps} />)}
            >
              Change plan
            </Button>
            <Button onClick={() => open(<AccountGroupDialog {...dialogProps} />)}>Change group</Button>
            <Button onClick={() => open(<SwitchDialog noun="account" {...dialogProps} />)}>
              {account.active ? 'Disable' : 'Enable'}
            </Button>
          </>
        )}
      </p>
    </div>
  );
}

interface CountersProps {
  readonly account: AccountView;
  /** Undefined if the plan is not in the settings, or has not come yet. Its limits are then left out. */
  readonly plan: PlanView | undefined;
}

function Counters({ account, plan }: CountersProps) {
  const { leased } = account;
  const nowSeconds = Math.floor(Date.now() / 1_000);
  const callsSince = (from?: number): string =>
    callsAddress({ account: account.id, ...(from === undefined ? {} : { from: String(from) }) });
  const inFlight = (calls: number): string => `${counted(calls, 'call')} in flight`;
  const limitText = (limit: number | undefined, noun: string): string =>
    limit === undefined ? `${noun}s` : `of ${counted(limit, noun, shortNumber)}`;
  const tiles: readonly Tile[] = [
    ['Balance', <CutMoney amount={account.balance} />, `of ${money(account.credited, 2)} credited`],
    ['Held', <CutMoney amount={account.held} />, inFlight(account.calls_in_flight)],
    [
      'Spent',
      <a href={callsSince()}>
        <CutMoney amount={account.spent} />
      </a>,
      `since ${moment(account.created)}`,
    ],
    ...(Number(account.uncovered) > 0
      ? [['Uncovered', <CutMoney amount={account.uncovered} />, 'beyond the balance, unpaid'] as const]
      : []),
    ...(leased === undefined
      ? []
      : [
          // What processes were granted of the balance and of the calls in flight, and have not used.
          [
            'Leased',
            <CutMoney amount={leased.balance} />,
            `of the balance, and ${inFlight(leased.calls_in_flight)}: granted in advance`,
          ] as const,
        ]),
    [
      'This minute',
      <a href={callsSince(nowSeconds - 60)}>{number(account.requests_this_minute)}</a>,
      limitText(plan?.requests_per_minute, 'request'),
    ],
    [
      'Today',
      <a href={callsSince(callDayStart(nowSeconds))}>{number(account.calls_today)}</a>,
      limitText(plan?.calls_per_day, 'call'),
    ],
  ];
  return <Tiles label="Counters" isSmall tiles={tiles} />;
}

const CREDITS_SHOWN = 10;

/**
 * The last credits and debits, newest first. The gateway lists them oldest first, so all are fetched, at most
 * ROWS_OF_CSV_MAX. They are fetched again after each credit or debit, because each changes `credited`.
 */
function AccountCredits({ account }: { readonly account: AccountView }) {
  const path = `/accounts/${encodeURIComponent(account.id)}/credits`;
  const { view: credits, error } = useRead(`${path} ${account.credited}`, () => fetchRows<CreditView>(path));
  if (credits === undefined) return <ErrorText text={error} />;
  const newestFirst = credits.rows.toReversed();
  return (
    <section>
      <h3>Credits and debits</h3>
      <ErrorText text={error} />
      {newestFirst.length === 0 ? (
        <p class="empty">Nothing was credited yet.</p>
      ) : (
        <Table
          label="Credits"
          class="cards"
          rows={newestFirst.slice(0, CREDITS_SHOWN)}
          keyOf={(_, index) => String(newestFirst.length - index)}
          allRows={() => ({ rows: newestFirst, hasMore: credits.hasMore })}
          columns={[
            { head: 'When', seconds: ({ created }) => created },
            { head: 'Amount', money: ({ amount }) => amount },
            { head: 'Note', text: ({ note }) => note },
          ]}
        />
      )}
      {newestFirst.length > CREDITS_SHOWN && (
        <p class="muted">
          The last {CREDITS_SHOWN} of {credits.hasMore ? 'the first ' : ''}
          {number(newestFirst.length)}
          {credits.hasMore ? '; later ones are not read here' : ''}.
        </p>
      )}
    </section>
  );
}
