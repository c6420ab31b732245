/**
 * Accounts: found, made, looked into. Browser.
 */
import { useEffect, useState } from 'preact/hooks';
import { NewAccountDialog } from './account-dialogs.js';
import { AccountList } from './account-list.js';
import { AccountPanel } from './account-panel.js';
import { type AccountOrder, useAccountRows, useSortedAccounts } from './account-rows.js';
import { get, textOf } from './api.js';
import { Choice, ErrorText, TextField } from './controls.js';
import { number } from './format.js';
import { Icon } from './icons.js';
import { go } from './route.js';
import type { List, Plan } from './views.js';

interface AccountsProps {
  /** Id or name of the account that is open; empty where none is. */
  readonly item: string;
  /** Accounts that there are. */
  readonly count: number | undefined;
}

export function AccountsPage({ item, count }: AccountsProps) {
  const [text, setText] = useState('');
  const [plan, setPlan] = useState('');
  const [active, setActive] = useState('');
  const [plans, setPlans] = useState<readonly Plan[]>([]);
  const [problem, setError] = useState<string>();
  const [making, setMaking] = useState(false);
  const [order, setOrder] = useState<AccountOrder>();
  // With every keystroke: it costs the gateway 5 ms among 100,000 accounts.
  const filter = { search: text.trim(), plan, active };
  const unsorted = useAccountRows(filter, count);
  const sorted = useSortedAccounts(filter, order);
  const rows = sorted ?? unsorted;
  useEffect(() => {
    get<List<Plan>>('/plans').then(
      ({ data }) => setPlans(data),
      (error: unknown) => setError(textOf(error)),
    );
  }, []);

  return (
    <div class={`accounts ${item === '' ? '' : 'with-panel'}`}>
      <section class="account-finder" aria-label="All accounts">
        <div class="head">
          <h1>Accounts</h1>
          {/* An account has a plan: nobody can make one before there are some to choose from. */}
          <button type="button" class="primary" disabled={plans.length === 0} onClick={() => setMaking(true)}>
            <Icon name="plus" /> New account
          </button>
        </div>
        <div class="filters" role="search">
          <TextField
            label="Search"
            type="search"
            placeholder="Part of the name, or the id"
            maxLength={100}
            value={text}
            onText={setText}
          />
          <Choice
            label="Plan"
            value={plan}
            options={[['', 'Any'], ...plans.map(({ id }) => [id, id] as const)]}
            onChoice={setPlan}
          />
          <Choice
            label="State"
            value={active}
            options={[
              ['', 'Any'],
              ['true', 'Active'],
              ['false', 'Disabled'],
            ]}
            onChoice={setActive}
          />
        </div>
        <p class="count muted" role="status">
          {number(rows.count)}
          {rows.more ? ' or more' : ''} {rows.count === 1 ? 'account' : 'accounts'}
        </p>
        <ErrorText text={rows.problem ?? problem} />
        <AccountList rows={rows} open={item} order={order} onOrder={setOrder} />
      </section>
      {item === '' ? null : <AccountPanel key={item} id={item} plans={plans} onChanged={rows.refresh} />}
      {making ? (
        <NewAccountDialog
          plans={plans}
          onClose={() => setMaking(false)}
          onMade={({ id }) => {
            setMaking(false);
            rows.refresh();
            go('accounts', id);
          }}
        />
      ) : null}
    </div>
  );
}
