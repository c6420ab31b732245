/**
 * The list of ended calls on the page of calls (calls-page.tsx): the newest page, then new calls at its top
 * while the list is live (the live tail), and older ones at its end if the operator asks. Browser.
 *
 * Must hold:
 * - The list has no gap, also if the live tail cuts its end while older calls are fetched
 *   (test/e2e/console-calls.test.ts).
 * - The live tail does not fall behind, however many calls end: after a full page the list begins anew.
 * - The list has no call twice, and never calls of two filters, in whatever order responses come.
 * The test of the last two is test/unit/console/call-list.test.ts.
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { CallsPageView, CallView } from '../admin/call-routes.js';
import { get, isUnreached, queryOf, textOf } from './api.js';
import { RETRY_MS, useRefresh, TYPING_MS } from './api-hooks.js';

const PAGE_CALLS = 100;
/** How many searches are made in sequence, some 70 ms each, before the operator has to ask again. */
const SEARCHES_MAX = 50;
/** How many calls the live tail leaves in the list, so that a page that stays open does not grow. */
const CALLS_SHOWN_MAX = 500;
/** In place of a cursor: all shown calls are fetched again, from the newest on. */
const FROM_NEWEST = '';
/** The period of the live tail: as long as an ended call may wait until the call log has written it. */
const TAIL_MS = 1_000;

/** A page that stays open may be answered by a gateway of an earlier version, which sends no `unread`. */
type FetchedPage = Omit<CallsPageView, 'unread'> & Partial<Pick<CallsPageView, 'unread'>>;

interface ShownCalls {
  /** The newest first, as far as `addNewer` can tell. */
  readonly calls: readonly CallView[];
  /** The cursor of older calls; FROM_NEWEST if the list was cut, null if there are no older calls. */
  readonly next: string | null;
  /** `searched_to` of the last page. */
  readonly searchedTo: string | null;
  /** `unread` of the last page. */
  readonly unread: readonly string[];
}

/**
 * The state of one list's requests. The filters begin a list when they change, and so does a page that is
 * fetched again from the newest call on. Responses to a former list's requests are dropped.
 */
interface ListRequests {
  /** The cursor of the tail's next request; undefined until the first page has come, and during a request. */
  tailCursor: string | undefined;
  /** Whether the first page or older calls are being fetched: another fetch would add the same calls. */
  isFetchingOlder: boolean;
}

interface CallList {
  /** Undefined until the first page has come. */
  readonly shown: ShownCalls | undefined;
  /** Why the last request failed; undefined if it did not. */
  readonly error: string | undefined;
  /** Whether the live tail runs. */
  readonly isLive: boolean;
  readonly setLive: (isLive: boolean) => void;
  /**
   * Stops the tail, and adds older calls at the end. Adds none while the first page or older calls are being
   * fetched, nor if the first page could not be fetched: the shown calls are those of former filters then.
   */
  readonly showOlder: () => void;
}

/** Fetches the calls that pass the filter. While a first page is awaited, the former list is shown. */
export function useCallList(filter: Readonly<Record<string, string | undefined>>): CallList {
  const query = queryOf(filter);
  const [shown, setShown] = useState<ShownCalls>();
  const [error, setError] = useState<unknown>();
  /** Whether the first page of the latest list could not be fetched: without it there is no tail either. */
  const [isFirstMissing, setFirstMissing] = useState(false);
  /** Counts lists that were begun anew because the first page was missing. */
  const [retries, setRetries] = useState(0);
  const [isLive, setLive] = useState(true);
  /** Undefined before the first list, and once the page is left. */
  const latestList = useRef<ListRequests | undefined>(undefined);

  /** Requests a page by the filters and `parameters`. Drops the response if `list` is not the latest one. */
  const request = useCallback(
    async (
      list: ListRequests,
      parameters: Parameters<typeof queryOf>[0],
      onPage: (page: FetchedPage) => void,
    ) => {
      try {
        const page = await get<FetchedPage>(`/calls${queryOf({ ...filter, ...parameters })}`);
        if (latestList.current !== list) return;
        setError(undefined);
        onPage(page);
      } catch (reason) {
        if (latestList.current === list) setError(reason);
      }
    },
    // `filter` is another object at each call, but `query` is the same text for the same filters.
    [query],
  );
  /**
   * Adds `count` older calls from the cursor on, or as many as SEARCHES_MAX searches find: a page is short,
   * or empty, if its search took too long. With FROM_NEWEST the found calls replace all shown ones.
   */
  const addOlder = useCallback(
    async (firstList: ListRequests, firstCursor: string | null, count: number): Promise<void> => {
      let list = firstList;
      let cursor = firstCursor;
      let missingCount = count;
      list.isFetchingOlder = true;
      for (let searches = 0; cursor !== null && missingCount > 0 && searches < SEARCHES_MAX; searches++) {
        const isFromNewest = cursor === FROM_NEWEST;
        const parameters = { limit: missingCount, cursor };
        // The cursor stays null, which ends the loop, if the request fails or its response is dropped.
        cursor = null;
        await request(list, parameters, ({ data, next, newest, searched_to: searchedTo, unread = [] }) => {
          cursor = next;
          missingCount -= data.length;
          if (isFromNewest) {
            // A response that the tail still awaits belongs to the former list: this page has its calls.
            list = { tailCursor: newest, isFetchingOlder: true };
            latestList.current = list;
          }
          setShown((former) => {
            if (former === undefined || isFromNewest) return { calls: data, next, searchedTo, unread };
            // If the tail has cut the list meanwhile, these calls would follow after a gap.
            if (former.next === FROM_NEWEST) return former;
            return { calls: [...former.calls, ...data], next, searchedTo, unread };
          });
        });
      }
      list.isFetchingOlder = false;
    },
    [request],
  );
  useEffect(() => {
    const list: ListRequests = { tailCursor: undefined, isFetchingOlder: true };
    latestList.current = list;
    setFirstMissing(false);
    const timer = setTimeout(
      () =>
        void request(list, { limit: PAGE_CALLS }, (page) => {
          const { data, next, newest, searched_to: searchedTo, unread = [] } = page;
          list.tailCursor = newest;
          setShown({ calls: data, next, searchedTo, unread });
          // A page without `searchedTo` is full, or has all calls.
          if (searchedTo === null) list.isFetchingOlder = false;
          else void addOlder(list, next, PAGE_CALLS - data.length);
        }).then(() => {
          if (latestList.current === list) setFirstMissing(list.tailCursor === undefined);
        }),
      // Only changed filters are being typed.
      shown === undefined ? 0 : TYPING_MS,
    );
    return () => {
      clearTimeout(timer);
      latestList.current = undefined;
    };
    // Without `shown`: calls that come later begin no other list.
  }, [request, retries]);
  const beginAnew = useCallback((): void => setRetries((count) => count + 1), []);
  useRefresh(beginAnew, isFirstMissing && isUnreached(error) ? RETRY_MS : undefined);

  const addNewer = useCallback((): void => {
    const list = latestList.current;
    const after = list?.tailCursor;
    if (list === undefined || after === undefined) return;
    // Without a cursor no second request of the tail is sent while this one runs. After a failure `finally`
    // sets the same cursor again.
    list.tailCursor = undefined;
    void request(list, { after, limit: PAGE_CALLS }, ({ data, newest, unread = [] }) => {
      list.tailCursor = newest;
      // Each process's calls come in the order in which it recorded them. The list has those first that ended
      // last, but calls of a later response are above them all, also if they ended a little earlier.
      const added = data.toSorted((first, second) => second.time.localeCompare(first.time));
      setShown((former) => {
        if (former === undefined) return former;
        // The same object, so that nothing is drawn again.
        if (added.length === 0 && unread.join() === former.unread.join()) return former;
        const calls = [...added, ...former.calls];
        // `former.next` is the cursor after the calls that are cut: calls from there on would leave a gap.
        const next = calls.length > CALLS_SHOWN_MAX ? FROM_NEWEST : former.next;
        return { ...former, calls: calls.slice(0, CALLS_SHOWN_MAX), next, unread };
      });
      // More calls end than the tail can fetch: it would show ever older ones.
      if (data.length === PAGE_CALLS && !list.isFetchingOlder) void addOlder(list, FROM_NEWEST, PAGE_CALLS);
    }).finally(() => (list.tailCursor ??= after));
  }, [request, addOlder]);
  useRefresh(addNewer, isLive ? TAIL_MS : undefined);

  const showOlder = (): void => {
    // The tail is stopped, or it would cut off the older calls again.
    setLive(false);
    const list = latestList.current;
    if (list === undefined || list.isFetchingOlder) return;
    const next = shown?.next ?? null;
    void addOlder(list, next, next === FROM_NEWEST ? PAGE_CALLS + CALLS_SHOWN_MAX : PAGE_CALLS);
  };
  return { shown, error: error === undefined ? undefined : textOf(error), isLive, setLive, showOlder };
}
