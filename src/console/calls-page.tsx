/**
 * The page of calls, which main.tsx shows: calls that have ended, newest first, by the filters in the
 * address. call-list.ts fetches them. Browser. Test: test/e2e/console-calls.test.ts.
 */
import { useState } from 'preact/hooks';
import type { CallView } from '../admin/call-routes.js';
import type { ListView, ModelView } from '../admin/views.js';
import { fetchRows } from './api.js';
import { useView } from './api-hooks.js';
import {
  addressOf,
  CALL_FILTERS,
  type CallFilters,
  callAddress,
  type Filters,
  openPage,
  putFilters,
} from './address.js';
import { useCallList } from './call-list.js';
import {
  Badge,
  Button,
  Choice,
  ErrorText,
  idsOf,
  TextField,
  TimeField,
  type Tone,
  useInput,
} from './controls.js';
import { counted, exactMoment, money, number, recentMoment, roughMoney, words } from './format.js';
import { type Column, Table } from './table.js';

/** `bad`: the gateway or an upstream has failed. `warn`: the call was rejected, or its caller left. */
export const toneOfCall = ({ status, code }: CallView): Tone => {
  if (code === null) return 'good';
  return code === 'client_gone' || (status !== null && status < 500) ? 'warn' : 'bad';
};

export function CallsPage({ filters }: { readonly filters: Filters }) {
  // The gateway itself rejects filters that it does not know.
  const filter = Object.fromEntries(CALL_FILTERS.map((name) => [name, filters[name]?.trim()]));
  const { shown, error, isLive, setLive, showOlder } = useCallList(filter);
  return (
    <>
      <div class="head">
        <h1>Calls</h1>
        <div class="head-end">
          <FindCall />
          <Button aria-pressed={isLive} onClick={() => setLive(!isLive)}>
            {isLive ? 'Pause' : 'Go on live'}
          </Button>
        </div>
      </div>
      <CallFilterFields filters={filters} />
      <ErrorText text={error} />
      {shown !== undefined && (
        <>
          <p class="count muted" role="status">
            {counted(shown.calls.length, 'call')} shown{isLive ? ', live' : ''}
          </p>
          {shown.calls.length === 0 ? (
            <p class="empty">
              {shown.next === null ? 'No such calls are kept.' : 'No such calls were found yet.'}
            </p>
          ) : (
            <Table
              label="Calls"
              class="dense"
              rows={shown.calls}
              keyOf={(call) => call.request_id}
              allRows={() => fetchRows<CallView>('/calls', filter)}
              columns={CALL_COLUMNS}
            />
          )}
          <ErrorText
            text={
              shown.unread.length === 0
                ? undefined
                : `Calls may be missing: files of the call log cannot be read (${shown.unread.join('; ')}).`
            }
          />
          {shown.searchedTo !== null && (
            <p class="muted">
              Searched back to {exactMoment(Date.parse(shown.searchedTo))}; there may be older ones.
            </p>
          )}
          {shown.next !== null && <Button onClick={showOlder}>Show older calls</Button>}
        </>
      )}
    </>
  );
}

/** The search for one call by its request id, which a caller has in a response header. */
function FindCall() {
  const id = useInput();
  return (
    <form
      class="find"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        if (id.value.trim() !== '') openPage('calls', id.value.trim());
      }}
    >
      <TextField label="Request id" type="search" placeholder="req_…" maxLength={100} {...id} />
      <button type="submit">Show</button>
    </form>
  );
}

/** Options of the filter `failed`. */
const OUTCOMES: readonly (readonly [value: string, text: string])[] = [
  ['', 'Any'],
  ['true', 'Failed'],
  ['false', 'Good'],
];

/** On a phone the fields are folded, because they would fill the first screen. */
function CallFilterFields({ filters }: { readonly filters: Filters }) {
  const models = useView<ListView<ModelView>>('/models');
  const [isOpen, setOpen] = useState(false);
  const filterCount = CALL_FILTERS.filter((name) => filters[name] !== undefined).length;
  const inputOf = (name: keyof CallFilters) => ({
    value: filters[name] ?? '',
    onValue: (text: string): void => putFilters('calls', { ...filters, [name]: text }),
  });
  return (
    <>
      <button type="button" class="fold" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        Filters{filterCount === 0 ? '' : `: ${filterCount}`}
      </button>
      <div class={isOpen ? 'filters' : 'filters folded'}>
        <TextField label="Account" placeholder="Id or name" {...inputOf('account')} />
        <TextField label="Group" placeholder="Id or name" {...inputOf('group')} />
        <TextField label="Key" placeholder="Id or name" {...inputOf('key')} />
        <Choice
          label="Model"
          options={[['', 'All'], ...idsOf(models.view?.data ?? [])]}
          {...inputOf('model')}
        />
        <TextField label="Upstream" placeholder="Name" {...inputOf('upstream')} />
        <Choice label="Outcome" options={OUTCOMES} {...inputOf('failed')} />
        <TextField label="Status" placeholder="500 or 5xx" {...inputOf('status')} />
        <TextField label="Code" placeholder="internal_error" {...inputOf('code')} />
        <TimeField label="From" {...inputOf('from')} />
        <TimeField label="To" {...inputOf('to')} />
      </div>
    </>
  );
}

const wholeMs = (ms: number): string => number(Math.round(ms));

const CALL_COLUMNS: readonly Column<CallView>[] = [
  {
    head: 'Ended',
    csvValue: ({ time }) => time,
    cell: ({ time, request_id: id }) => (
      <a href={callAddress(id)} title={id}>
        {recentMoment(Date.parse(time))}
      </a>
    ),
  },
  {
    head: 'Status',
    csvValue: ({ status }) => status,
    cell: (call) => <Badge tone={toneOfCall(call)}>{call.status ?? 'left'}</Badge>,
  },
  { head: 'Code', text: ({ code }) => (code === null ? null : words(code)) },
  {
    head: 'Account',
    text: ({ account, account_name: name }) => name ?? account,
    href: ({ account }) => (account === null ? undefined : addressOf('accounts', account)),
  },
  { head: 'Key', text: ({ key, key_name: name }) => name ?? key },
  { head: 'Model', text: ({ model }) => model },
  { head: 'Upstream', text: ({ upstream }) => upstream },
  { head: 'Tokens', figure: tokensOf },
  {
    head: 'Cost',
    csvValue: ({ cost }) => cost,
    cell: ({ cost }) =>
      cost === null ? '–' : <span title={money(cost, 12)}>{roughMoney(Number(cost))}</span>,
    class: 'figure',
  },
  { head: 'Duration, ms', figure: (call) => call.duration_ms, format: wholeMs },
  { head: 'First token, ms', figure: (call) => call.first_token_ms, format: wholeMs },
  { head: 'Request', text: (call) => call.request_id },
];

/** Null if no tokens were counted. */
function tokensOf({ prompt_tokens: prompt, completion_tokens: completion }: CallView): number | null {
  return prompt === null ? null : prompt + (completion ?? 0);
}
