/**
 * The page of calls, which main.tsx shows: those that have ended, newest first and live, by filters that
 * stand in the address. Browser.
 *
 * Must hold: the list has no gap, also if the live tail cuts it while older calls are fetched
 * (test/e2e/console-calls.test.ts).
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { CallsPageView, CallView } from '../admin/call-routes.js';
import type { ListView, ModelView } from '../admin/views.js';
import { allOf, get, type FirstRows, queryOf, textOf, useRefresh, useView } from './api.js';
import {
  addressOf,
  CALL_FILTERS,
  type CallFilters,
  callAddress,
  type Filters,
  openPage,
  putFilters,
} from './browser.js';
import {
  Badge,
  Button,
  Choice,
  ErrorText,
  idsOf,
  TextField,
  TimeField,
  type Tone,
  TYPING_MS,
  useInput,
} from './controls.js';
import { counted, exactMoment, money, number, recentMoment, roughMoney, words } from './format.js';
import { type Column, Table } from './table.js';

const PAGE_CALLS = 100;
/** After so many searches of some 70 ms, one after the other, the operator has to ask for more. */
const PAGES_AT_ONCE = 50;
/** The live tail keeps so many calls in the document. */
const CALLS_SHOWN_MAX = 500;
/** In place of a cursor: all that is shown is read again, from the newest call on. */
const FROM_NEWEST = '';
const TAIL_MS = 1_000;

export const toneOfCall = ({ status, code }: CallView): Tone => {
  if (code === null) return 'good';
  return code === 'client_gone' || (status !== null && status < 500) ? 'warn' : 'bad';
};

interface Shown {
  readonly calls: readonly CallView[];
  /** The cursor of older calls; FROM_NEWEST if the last calls were cut, null if there are none. */
  readonly next: string | null;
  readonly searchedTo: string | null;
}

export function CallsPage({ filters }: { readonly filters: Filters }) {
  // The gateway itself rejects filters that it does not know.
  const filter = Object.fromEntries(CALL_FILTERS.map((name) => [name, filters[name]?.trim()]));
  const query = queryOf(filter);
  const [shown, setShown] = useState<Shown>();
  const [error, setError] = useState<string>();
  const [live, setLive] = useState(true);
  /** The cursor of the tail's next request; undefined until the first page has come. */
  const newest = useRef<string | undefined>(undefined);
  const wanted = useRef(query);
  wanted.current = query;

  /** Adds `parameters` to the filters. Calls `onPage` unless the filters have changed meanwhile. */
  const request = useCallback(
    async (parameters: Parameters<typeof queryOf>[0], onPage: (page: CallsPageView) => void) => {
      try {
        const page = await get<CallsPageView>(`/calls${queryOf({ ...filter, ...parameters })}`);
        if (wanted.current !== query) return;
        setError(undefined);
        onPage(page);
      } catch (reason) {
        if (wanted.current === query) setError(textOf(reason));
      }
    },
    [query],
  );
  /**
   * Adds `count` older calls from the cursor on, or as many as PAGES_AT_ONCE searches find: a page is short,
   * or empty, if its search took too long. FROM_NEWEST replaces all that is shown.
   */
  const addOlder = useCallback(
    async (firstCursor: string | null, count: number): Promise<void> => {
      let cursor = firstCursor;
      let left = count;
      for (let pages = 0; cursor !== null && left > 0 && pages < PAGES_AT_ONCE; pages++) {
        const isNewest = cursor === FROM_NEWEST;
        const parameters = { limit: left, cursor };
        // Stays null, and so ends the loop, if the request fails or is dropped.
        cursor = null;
        await request(parameters, ({ data, next, newest: last, searched_to: searchedTo }) => {
          cursor = next;
          left -= data.length;
          if (isNewest) newest.current = last;
          setShown((before) => {
            if (before === undefined || isNewest) return before && { calls: data, next, searchedTo };
            // The tail has cut the list meanwhile: these calls would follow with a gap.
            if (before.next === FROM_NEWEST) return before;
            return { calls: [...before.calls, ...data], next, searchedTo };
          });
        });
      }
    },
    [request],
  );
  useEffect(() => {
    newest.current = undefined;
    const timer = setTimeout(
      () =>
        void request({ limit: PAGE_CALLS }, ({ data, next, newest: last, searched_to: searchedTo }) => {
          newest.current = last;
          setShown({ calls: data, next, searchedTo });
          if (searchedTo !== null) void addOlder(next, PAGE_CALLS - data.length);
        }),
      shown === undefined ? 0 : TYPING_MS,
    );
    return () => clearTimeout(timer);
  }, [request]);

  const tail = useCallback((): void => {
    const after = newest.current;
    if (after === undefined) return;
    // The next request of the tail waits for this one.
    newest.current = undefined;
    void request({ after, limit: PAGE_CALLS }, ({ data, newest: last }) => {
      newest.current = last;
      if (data.length === 0) return;
      const added = data.toSorted((left, right) => right.time.localeCompare(left.time));
      setShown((before) => {
        if (before === undefined) return before;
        const calls = [...added, ...before.calls];
        // The cursor lies behind the calls that are cut, so from there older calls would follow with a gap.
        const next = calls.length > CALLS_SHOWN_MAX ? FROM_NEWEST : before.next;
        return { ...before, calls: calls.slice(0, CALLS_SHOWN_MAX), next };
      });
    }).finally(() => (newest.current ??= wanted.current === query ? after : undefined));
  }, [request]);
  useRefresh(tail, live ? TAIL_MS : undefined);

  const showOlder = (): void => {
    setLive(false);
    const next = shown?.next ?? null;
    void addOlder(next, next === FROM_NEWEST ? PAGE_CALLS + CALLS_SHOWN_MAX : PAGE_CALLS);
  };

  return (
    <>
      <div class="head">
        <h1>Calls</h1>
        <div class="head-end">
          <FindCall />
          <Button aria-pressed={live} onClick={() => setLive(!live)}>
            {live ? 'Pause' : 'Go on live'}
          </Button>
        </div>
      </div>
      <CallFilterFields filters={filters} />
      <ErrorText text={error} />
      {shown !== undefined && (
        <>
          <p class="count muted" role="status">
            {counted(shown.calls.length, 'call')} shown{live ? ', live' : ''}
          </p>
          {shown.calls.length === 0 ? (
            <p class="empty">
              {shown.next === null ? 'No such calls are kept.' : 'No such calls were found yet.'}
            </p>
          ) : (
            <CallTable calls={shown.calls} all={() => allOf<CallView>('/calls', filter)} />
          )}
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

/** The search for one call by its id, which a caller who complains has. */
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

const OUTCOMES: readonly (readonly [string, string])[] = [
  ['', 'Any'],
  ['true', 'Failed'],
  ['false', 'Good'],
];

/** On a phone the fields are folded, because they would fill the first screen. */
function CallFilterFields({ filters }: { readonly filters: Filters }) {
  const models = useView<ListView<ModelView>>('/models');
  const [open, setOpen] = useState(false);
  const given = CALL_FILTERS.filter((name) => filters[name] !== undefined).length;
  const inputOf = (name: keyof CallFilters) => ({
    value: filters[name] ?? '',
    onValue: (text: string): void => putFilters('calls', { ...filters, [name]: text }),
  });
  return (
    <>
      <button type="button" class="fold" aria-expanded={open} onClick={() => setOpen(!open)}>
        Filters{given === 0 ? '' : `: ${given}`}
      </button>
      <div class={open ? 'filters' : 'filters folded'}>
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
    value: ({ time }) => time,
    cell: ({ time, request_id: id }) => (
      <a href={callAddress(id)} title={id}>
        {recentMoment(Date.parse(time))}
      </a>
    ),
  },
  {
    head: 'Status',
    value: ({ status }) => status,
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
    value: ({ cost }) => cost,
    cell: ({ cost }) =>
      cost === null ? '–' : <span title={money(cost, 12)}>{roughMoney(Number(cost))}</span>,
    class: 'figure',
  },
  { head: 'Duration, ms', figure: (call) => call.duration_ms, format: wholeMs },
  { head: 'First token, ms', figure: (call) => call.first_token_ms, format: wholeMs },
  { head: 'Request', text: (call) => call.request_id },
];

function tokensOf({ prompt_tokens: prompt, completion_tokens: completion }: CallView): number | null {
  return prompt === null ? null : prompt + (completion ?? 0);
}

interface CallTableProps {
  readonly calls: readonly CallView[];
  readonly all: () => Promise<FirstRows<CallView>>;
}

function CallTable({ calls, all }: CallTableProps) {
  return (
    <Table
      label="Calls"
      class="dense"
      rows={calls}
      keyOf={(call) => call.request_id}
      all={all}
      columns={CALL_COLUMNS}
    />
  );
}
