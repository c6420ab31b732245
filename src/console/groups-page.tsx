/**
 * The page of groups, which main.tsx shows: the tree with what is used of each quota, a panel for the open
 * group with its limits and its accounts, and the limits of the plans. Browser.
 *
 * Must hold: a change that was made in a dialog is seen in the tree and in the panel at once
 * (test/e2e/console-groups.test.ts). An operator who may not change groups sees no button that does
 * (test/e2e/console-rules.test.ts); the gateway rejects the change anyway (`may` in session.ts).
 */
import { PAGE_ITEMS_MAX } from '../admin/addresses.js';
import type { AccountView, GroupView, ListView, PlanView } from '../admin/views.js';
import { fetchRows, queryOf } from './api.js';
import { useRows, useView } from './api-hooks.js';
import { may } from './session.js';
import { addressOf, callsAddress, openPage } from './address.js';
import {
  Button,
  CopyButton,
  ErrorText,
  Icon,
  Name,
  StatusBadge,
  accountStateOf,
  TextField,
  useInput,
} from './controls.js';
import { counted } from './format.js';
import { DeleteDialog, LongName, useDialog } from './dialogs.js';
import { AddAccountDialog, GroupLimitsDialog, NewGroupDialog, pathTo } from './quota-dialogs.js';
import { PlanTable, QuotaBars, QuotaLine } from './quotas.js';
import { Table } from './table.js';

/** How often the tree and the open group are fetched again, for their counters. */
const REFRESH_MS = 5_000;
/** One page of the tree. The search finds no other groups. */
const GROUPS_SHOWN_MAX = PAGE_ITEMS_MAX;
const ACCOUNTS_SHOWN_MAX = 100;

/** `item`: id or name of the group whose panel is open; empty if none is. */
export function GroupsPage({ item }: { readonly item: string }) {
  const path = `/group-tree${queryOf({ limit: GROUPS_SHOWN_MAX })}`;
  const { view, error, reload } = useView<ListView<GroupView>>(path, REFRESH_MS);
  const plans = useView<ListView<PlanView>>('/plans');
  const search = useInput();
  const { dialog, open, onClose } = useDialog();
  const onCreated = ({ id }: GroupView): void => {
    onClose();
    reload();
    openPage('groups', id);
  };
  const searchText = search.value.trim().toLowerCase();
  // A group is found by its name, and by the name of each group above it.
  const groups = (view?.data ?? []).filter(({ path: names }) =>
    names.some((name) => name.toLowerCase().includes(searchText)),
  );
  return (
    <>
      <div class={`groups ${item === '' ? '' : 'with-panel'}`}>
        <section class="account-finder" aria-label="All groups">
          <div class="head">
            <h1>Groups</h1>
            {may('everything') && (
              <Button
                class="primary"
                onClick={() =>
                  open(<NewGroupDialog parent={undefined} onClose={onClose} onCreated={onCreated} />)
                }
              >
                <Icon name="plus" /> New group
              </Button>
            )}
          </div>
          <TextField label="Search" type="search" placeholder="Part of a name" maxLength={100} {...search} />
          <ErrorText text={error ?? plans.error} />
          {view === undefined ? null : view.data.length === 0 ? (
            <p class="empty">
              No groups yet. Accounts in a group share its quotas, besides those of their plans.
            </p>
          ) : (
            <>
              <p class="count muted" role="status">
                {counted(groups.length, 'group')}
                {view.next === null ? '' : `: the first ${GROUPS_SHOWN_MAX} are shown`}
              </p>
              <Tree groups={groups} openGroup={item} />
            </>
          )}
        </section>
        {/* `key` gives each group a new panel, without the dialog and the data of the former group. */}
        {item !== '' && <GroupPanel key={item} id={item} onChanged={reload} />}
      </div>
      <section>
        <h2>Plans</h2>
        <p class="muted">What each account on a plan may use by itself. The settings have them.</p>
        <PlanTable plans={plans.view?.data ?? []} />
      </section>
      {dialog}
    </>
  );
}

interface TreeProps {
  /** In the order of `/group-tree`, in which each group is followed by the groups in it. */
  readonly groups: readonly GroupView[];
  /** Id or name; empty if no group is open. */
  readonly openGroup: string;
}

/** A flat list: the style sheet indents each group by its depth. */
function Tree({ groups, openGroup }: TreeProps) {
  return (
    <ul class="tree" aria-label="Groups">
      {groups.map((group) => (
        <li key={group.id} style={{ '--depth': group.path.length - 1 }}>
          <a
            href={addressOf('groups', group.id)}
            aria-current={group.id === openGroup || group.name === openGroup ? 'true' : undefined}
          >
            <span class="tree-name">
              <Name text={group.name} />
              <small class="muted">{counted(group.accounts, 'account')}</small>
            </span>
            <QuotaLine quotas={group.quotas} />
          </a>
        </li>
      ))}
    </ul>
  );
}

interface GroupPanelProps {
  /** Id or name. */
  readonly id: string;
  /** Called after the group was changed or deleted: the tree must be fetched again. */
  readonly onChanged: () => void;
}

function GroupPanel({ id, onChanged }: GroupPanelProps) {
  const { view: group, error, reload } = useView<GroupView>(`/groups/${encodeURIComponent(id)}`, REFRESH_MS);
  const { dialog, open, onClose } = useDialog();
  const isEmpty = group !== undefined && group.accounts + group.groups === 0;
  const onDone = (): void => {
    onClose();
    reload();
    onChanged();
  };
  const dialogProps = { onClose, onChanged: onDone, onCreated: onDone };
  const onDeleted = (): void => {
    onChanged();
    openPage('groups');
  };
  return (
    <section class="panel" aria-label="Group">
      <a class="back" href={addressOf('groups')}>
        <Icon name="back" /> All groups
      </a>
      <ErrorText text={error} />
      {group !== undefined && (
        <>
          <div class="panel-head">
            <h2>
              <bdi class="long-name">{group.name}</bdi>
            </h2>
            <p class="marks">
              {group.path.length > 1 && (
                <span class="muted">
                  in <bdi>{group.path.slice(0, -1).join(' / ')}</bdi>
                </span>
              )}
              <code>{group.id}</code>
              <CopyButton text={group.id} noun="the group’s id" />
              <a href={callsAddress({ group: group.id })}>Calls</a>
            </p>
            {may('everything') && (
              <p class="actions">
                <Button onClick={() => open(<GroupLimitsDialog item={group} {...dialogProps} />)}>
                  Change limits
                </Button>
                <Button onClick={() => open(<NewGroupDialog parent={group} {...dialogProps} />)}>
                  New group in it
                </Button>
                <Button
                  disabled={!isEmpty}
                  title={isEmpty ? undefined : 'Only an empty group can be deleted.'}
                  onClick={() =>
                    open(
                      <DeleteDialog noun="group" path={pathTo(group)} onClose={onClose} onChanged={onDeleted}>
                        <LongName text={group.name} /> is empty. Its limits go with it.
                      </DeleteDialog>,
                    )
                  }
                >
                  Delete
                </Button>
              </p>
            )}
          </div>
          <QuotaBars quotas={group.quotas} owner={{ group: group.id }} label="Quotas of the group" />
          {/* `key`: when an account comes or goes, the list is fetched again at once. */}
          <GroupAccounts
            key={group.accounts}
            group={group}
            onAdd={() => open(<AddAccountDialog group={group} {...dialogProps} />)}
          />
          {dialog}
        </>
      )}
    </section>
  );
}

interface GroupAccountsProps {
  readonly group: GroupView;
  readonly onAdd: () => void;
}

/** Lists the accounts of the group and of the groups below it. `group.accounts` lacks those below. */
function GroupAccounts({ group, onAdd }: GroupAccountsProps) {
  const { view, error } = useRows<AccountView>(
    '/accounts',
    { group: group.id },
    ACCOUNTS_SHOWN_MAX,
    REFRESH_MS,
  );
  return (
    <section>
      <div class="head">
        <h3>Accounts</h3>
        {may('everything') && (
          <Button onClick={onAdd}>
            <Icon name="plus" /> Put an account here
          </Button>
        )}
      </div>
      <ErrorText text={error} />
      {view === undefined ? null : view.rows.length === 0 ? (
        <p class="empty">No accounts are in this group.</p>
      ) : (
        <Table
          label="Accounts of the group"
          class="cards"
          rows={view.rows}
          keyOf={({ id }) => id}
          allRows={() => fetchRows<AccountView>('/accounts', { group: group.id })}
          columns={[
            { head: 'Name', text: ({ name }) => name, href: ({ id }) => addressOf('accounts', id) },
            {
              head: 'State',
              csvValue: (account) => accountStateOf(account)[1],
              cell: (account) => <StatusBadge account={account} />,
            },
            { head: 'Plan', text: ({ plan }) => plan },
            { head: 'Group', text: (account) => (account.group === group.id ? null : account.group_name) },
            { head: 'Balance', money: ({ balance }) => balance, decimalsMax: 4 },
          ]}
        />
      )}
      {view?.hasMore === true && (
        <p class="muted">
          The first {ACCOUNTS_SHOWN_MAX} are shown; <code>tollgate accounts list --group</code> tells all.
        </p>
      )}
    </section>
  );
}
