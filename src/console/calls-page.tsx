/**
 * The page of calls, which main.tsx shows: calls that have ended, newest first, by the filters in the
 * address. While the page is live, new calls are added at its top (the live tail). Browser.
 *
 * Must hold: the list has no gap, also if the live tail cuts its end while older calls are fetched
 * (test/e2e/console-calls.test.ts).
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { CallsPageView, CallView } from '../admin/call-routes.js';
import type { ListView, ModelView } from '../admin/views.js';
import { fetchRows, get, queryOf, textOf } from './api.js';
import { useRefresh, useView, TYPING_MS } from './api-hooks.js';
import {
  addressOf,
  CALL_FILTERS,
  type CallFilters,
  callAddress,
  type Filters,
  openPage,
  putFilters,
} from './address.js';
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

const PAGE_CALLS = 100;
/** How many searches are made in sequence, some 70 ms each, before the operator has to ask again. */
const SEARCHES_MAX = 50;
/** How many calls the live tail leaves in the list, so that a page that stays open does not grow. */
const CALLS_SHOWN_MAX = 500;
/** In place of a cursor: all shown calls are fetched again, from the newest on. */
const FROM_NEWEST = '';
/** The period of the live tail. */
const TAIL_MS = 1_000;

/** `bad`: the gateway or an upstream has failed. `warn`: the call was rejected, or its caller left. */
export const toneOfCall = ({ status, code }: CallView): Tone => {
  if (code === null) return 'good';
  return code === 'client_gone' || (status !== null && status < 500) ? 'warn' : 'bad';
};

interface ShownCalls {
  readonly calls: readonly CallView[];
  /** The cursor of older calls; FROM_NEWEST if the list was cut, null if there are no older calls. */
  readonly next: string | null;
  /** `searched_to` of the last page. */
  readonly searchedTo: string | null;
}

interface CallList {
  /** Undefined until the first page has come. */
  readonly shown: ShownCalls | undefined;
  /** Why the last request failed; undefined if it did not. */
  readonly error: string | undefined;
  /** Whether the live tail runs. */
  readonly isLive: boolean;
  readonly setLive: (isLive: boolean) => void;
  readonly showOlder: () => void;
}

/** The list of calls and its requests. Responses to earlier filters are dropped. */
function useCallList(filter: Readonly<Record<string, string | undefined>>): CallList {
  const query = queryOf(filter);
  const [shown, setShown] = useState<ShownCalls>();
  const [error, setError] = useState<string>();
  const [isLive, setLive] = useState(true);
  /** The cursor of the tail's next request; undefined until the first page has come, and during a request. */
  const tailCursor = useRef<string | undefined>(undefined);
  const latestQuery = useRef(query);
  latestQuery.current = query;

  /** Requests a page by the filters and `parameters`. Drops the response if the filters have changed. */
  const request = useCallback(
    async (parameters: Parameters<typeof queryOf>[0], onPage: (page: CallsPageView) => void) => {
      try {
        const page = await get<CallsPageView>(`/calls${queryOf({ ...filter, ...parameters })}`);
        if (latestQuery.current !== query) return;
        setError(undefined);
        onPage(page);
      } catch (reason) {
        if (latestQuery.current === query) setError(textOf(reason));
      }
    },
    [query],
  );
  /**
   * Adds `count` older calls from the cursor on, or as many as SEARCHES_MAX searches find: a page is short,
   * or empty, if its search took too long. With FROM_NEWEST the found calls replace all shown ones.
   */
  const addOlder = useCallback(
    async (firstCursor: string | null, count: number): Promise<void> => {
      let cursor = firstCursor;
      let missingCount = count;
      for (let searches = 0; cursor !== null && missingCount > 0 && searches < SEARCHES_MAX; searches++) {
        const isFromNewest = cursor === FROM_NEWEST;
        const parameters = { limit: missingCount, cursor };
        // The cursor stays null, which ends the loop, if the request fails or its response is dropped.
        cursor = null;
        await request(parameters, ({ data, next, newest, searched_to: searchedTo }) => {
          cursor = next;
          missingCount -= data.length;
          if (isFromNewest) tailCursor.current = newest;
          setShown((former) => {
            if (former === undefined || isFromNewest) return former && { calls: data, next, searchedTo };
            // If the tail has cut the list meanwhile, these calls would follow after a gap.
            if (former.next === FROM_NEWEST) return former;
            return { calls: [...former.calls, ...data], next, searchedTo };
          });
        });
      }
    },
    [request],
  );
  useEffect(() => {
    tailCursor.current = undefined;
    const timer = setTimeout(
      () =>
        void request({ limit: PAGE_CALLS }, ({ data, next, newest, searched_to: searchedTo }) => {
          tailCursor.current = newest;
          setShown({ calls: data, next, searchedTo });
          if (searchedTo !== null) void addOlder(next, PAGE_CALLS - data.length);
        }),
      shown === undefined ? 0 : TYPING_MS,
    );
    return () => clearTimeout(timer);
  }, [request]);

  const addNewer = useCallback((): void => {
    const after = tailCursor.current;
    if (after === undefined) return;
    // Without a cursor no second request of the tail is sent while this one runs. After a failure `finally`
    // sets the same cursor again, unless the filters have changed.
    tailCursor.current = undefined;
    void request({ after, limit: PAGE_CALLS }, ({ data, newest }) => {
      tailCursor.current = newest;
      if (data.length === 0) return;
      // The calls come in the order in which they were recorded; the list has those that ended last first.
      const added = data.toSorted((first, second) => second.time.localeCompare(first.time));
      setShown((former) => {
        if (former === undefined) return former;
        const calls = [...added, ...former.calls];
        // `former.next` is the cursor after the calls that are cut: calls from there on would leave a gap.
        const next = calls.length > CALLS_SHOWN_MAX ? FROM_NEWEST : former.next;
        return { ...former, calls: calls.slice(0, CALLS_SHOWN_MAX), next };
      });
    }).finally(() => (tailCursor.current ??= latestQuery.current === query ? after : undefined));
  }, [request]);
  useRefresh(addNewer, isLive ? TAIL_MS : undefined);

  const showOlder = (): void => {
    // The tail is stopped, or it would cut off the older calls again.
    setLive(false);
    const next = shown?.next ?? null;
    void addOlder(next, next === FROM_NEWEST ? PAGE_CALLS + CALLS_SHOWN_MAX : PAGE_CALLS);
  };
  return { shown, error, isLive, setLive, showOlder };
}

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
