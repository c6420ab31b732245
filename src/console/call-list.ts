/**
 * The list of ended calls on the page of calls (calls-page.tsx): the newest page, then new calls at its top
 * while the list is live (the live tail), and older ones at its end if the operator asks. Browser.
 *
 * Must hold: the list has no gap, also if the live tail cuts its end while older calls are fetched
 * (test/e2e/console-calls.test.ts).
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { CallsPageView, CallView } from '../admin/call-routes.js';
import { get, queryOf, textOf } from './api.js';
import { useRefresh, TYPING_MS } from './api-hooks.js';

const PAGE_CALLS = 100;
/** How many searches are made in sequence, some 70 ms each, before the operator has to ask again. */
const SEARCHES_MAX = 50;
/** How many calls the live tail leaves in the list, so that a page that stays open does not grow. */
const CALLS_SHOWN_MAX = 500;
/** In place of a cursor: all shown calls are fetched again, from the newest on. */
const FROM_NEWEST = '';
/** The period of the live tail. */
const TAIL_MS = 1_000;

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
export function useCallList(filter: Readonly<Record<string, string | undefined>>): CallList {
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
