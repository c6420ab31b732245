/**
 * The page of changes, which main.tsx shows: who changed what, when and from where, with the values before
 * and after; and whether the chain of their hashes is intact. The filters are in the address. Browser.
 *
 * Must hold: the page says that there are no such changes only if all changes were searched
 * (test/e2e/console-pages.test.ts).
 */
import { useState } from 'preact/hooks';
import type { ChainView, OperatorChange } from '../admin/change-routes.js';
import { fetchRows, get } from './api.js';
import { useAction, usePagedRows } from './api-hooks.js';
import { addressOf, type Filters, putFilters } from './address.js';
import { BeforeAfter, Button, ErrorText, Name, TextField, TimeField } from './controls.js';
import { counted, exactMoment, isoOf, words } from './format.js';
import { type Column, Table } from './table.js';

const PAGE_ROWS = 100;
const FILTER_NAMES = ['who', 'action', 'target', 'from', 'to'] as const;

export function ChangesPage({ filters }: { readonly filters: Filters }) {
  const filter = Object.fromEntries(FILTER_NAMES.map((name) => [name, filters[name]?.trim()]));
  const { shown, error, showMore } = usePagedRows<OperatorChange, typeof filter>(
    '/changes',
    filter,
    PAGE_ROWS,
  );
  const inputOf = (name: (typeof FILTER_NAMES)[number]) => ({
    value: filters[name] ?? '',
    onValue: (text: string): void => putFilters('changes', { ...filters, [name]: text }),
  });
  return (
    <>
      <div class="head">
        <h1>Changes</h1>
        <Verify />
      </div>
      <div class="filters">
        <TextField label="Who" placeholder="Name of an operator" {...inputOf('who')} />
        <TextField label="Action" placeholder="keys.rotate" {...inputOf('action')} />
        <TextField label="Target" placeholder="Id or name" {...inputOf('target')} />
        <TimeField label="From" {...inputOf('from')} />
        <TimeField label="To" {...inputOf('to')} />
      </div>
      <ErrorText text={error} />
      {shown === undefined ? null : shown.data.length === 0 ? (
        <p class="empty">
          {shown.next === null ? 'No such changes are on record.' : 'No such changes were found yet.'}
        </p>
      ) : (
        <Table
          label="Changes"
          class="cards history"
          rows={shown.data}
          keyOf={({ number }) => String(number)}
          allRows={() => fetchRows<OperatorChange>('/changes', filter)}
          columns={COLUMNS}
        />
      )}
      {shown?.next == null ? null : (
        <Button disabled={showMore === undefined} onClick={showMore}>
          Show older changes
        </Button>
      )}
    </>
  );
}

type FieldChange = OperatorChange['changes'][number];

/** Returns the text of a value before or after a change: JSON, unless it is a text or a time of expiry. */
function textOfValue(field: string, value: FieldChange['before']): string {
  if (value === null) return 'none';
  if (field === 'expires' && typeof value === 'number') return isoOf(value);
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/**
 * The two values as text. Undefined if a whole entry of the settings was added or removed: both values are
 * null then, and the field says which, as `plans.free (added)`. cli/operator-commands.ts tells it so too.
 */
function valuesOf({ field, before, after }: FieldChange): { before: string; after: string } | undefined {
  if (before === null && after === null) return undefined;
  return { before: textOfValue(field, before), after: textOfValue(field, after) };
}

function textOfChange(change: FieldChange): string {
  const values = valuesOf(change);
  return values === undefined ? change.field : `${change.field}: ${values.before} → ${values.after}`;
}

function Change({ change }: { readonly change: FieldChange }) {
  const { field } = change;
  const values = valuesOf(change);
  return (
    <li class="values">
      {/* A path of the settings, or a field after the id of its record, has a point and stays as it is. */}
      <span class="muted">{field.includes('.') ? field : words(field)}</span>
      {values !== undefined && (
        <>
          {' '}
          <BeforeAfter {...values} />
        </>
      )}
    </li>
  );
}

/** Returns the address of the changed item; undefined if the item has no id (settings, log) or no page. */
function addressOfTarget({ target }: OperatorChange): string | undefined {
  if (target.id === null) return undefined;
  if (target.type === 'account') return addressOf('accounts', target.id);
  if (target.type === 'group') return addressOf('groups', target.id);
  return undefined;
}

const COLUMNS: readonly Column<OperatorChange>[] = [
  {
    head: 'When',
    csvValue: (row) => new Date(row.at_ms).toISOString(),
    cell: (row) => exactMoment(row.at_ms),
  },
  {
    head: 'Who',
    csvValue: ({ who }) => who,
    cell: ({ who, role }) => (
      <>
        <Name text={who} />
        {/* An operator may have the role's name, which is then shown once. */}
        {role !== who && <small class="muted"> {role}</small>}
      </>
    ),
  },
  { head: 'From', text: ({ from }) => from },
  { head: 'Action', csvValue: ({ action }) => action, cell: ({ action }) => <code>{action}</code> },
  {
    head: 'Target',
    text: ({ target }) => `${words(target.type)} ${target.name ?? target.id ?? ''}`.trim(),
    href: addressOfTarget,
  },
  {
    head: 'Before → after',
    csvValue: ({ changes }) => changes.map(textOfChange).join('; '),
    cell: ({ changes }) => (
      <ul class="lines">
        {changes.map((change) => (
          <Change key={change.field} change={change} />
        ))}
      </ul>
    ),
    class: 'value',
  },
  {
    head: 'Hash',
    csvValue: ({ hash }) => hash,
    cell: ({ hash }) => <code title={hash}>{hash.slice(0, 8)}</code>,
  },
];

/** The button with which the gateway reads all rows, and checks each row's hash and the chain of hashes. */
function Verify() {
  const [verified, setVerified] = useState<ChainView>();
  const problems = verified?.problems.map((row) => `Row ${row.number}: ${row.problem}.`) ?? [];
  const { error, isBusy, run } = useAction(async () => {
    setVerified(undefined);
    setVerified(await get<ChainView>('/changes/verify'));
  });
  return (
    <div class="head-end">
      <span role="status">
        {verified?.ok === true ? `${counted(verified.rows, 'change')}: none was altered or removed.` : ''}
      </span>
      <ErrorText text={error ?? (problems.length === 0 ? undefined : problems.join(' '))} />
      <Button disabled={isBusy} onClick={() => run()}>
        Verify
      </Button>
    </div>
  );
}
