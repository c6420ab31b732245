/**
 * Preact hooks by which components read the admin interface and run actions: `useView` for one view,
 * `useRows` for the first rows of a list, `usePagedRows` for a list that the operator reads page by page,
 * `useRefresh`, and `useAction` for a button or a form. All pages use them. Browser.
 *
 * Must hold: a response for a path that is no longer open is dropped (test/e2e/console.test.ts), and so is
 * one that comes after that of a later request (test/unit/console/api-hooks.test.ts). Rows of two filters are
 * never shown together (test/e2e/console-pages.test.ts).
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { ListView } from '../admin/views.js';
import { fetchRows, type FirstRows, get, isUnreached, queryOf, type QueryValues, textOf } from './api.js';

/** The pause before what is requested only once is requested again, if the gateway could not be reached. */
export const RETRY_MS = 5_000;
/** How long no other request is sent by the clock while one is awaited. Its connection may be dead then. */
const AWAITED_MS_MAX = 30_000;

interface ViewState<View> {
  /** The last view that came. After a change of the path: the former path's view until the next comes. */
  readonly view: View | undefined;
  /** Why the last request failed; undefined if it did not. `setView` leaves it. */
  readonly error: string | undefined;
  /** Sends the request again, at once. */
  readonly reload: () => void;
  /** To be called with a newer view that came as the response to a change. */
  readonly setView: (view: View) => void;
}

/**
 * Requests a path below `/admin/v1`, and again every `refreshMs` while the browser shows the console.
 * Requests nothing if `path` is undefined. If `refreshMs` is, it requests until the gateway has responded.
 */
export function useView<View>(path: string | undefined, refreshMs?: number): ViewState<View> {
  return useRead(path, get<View>, refreshMs);
}

/** As `useView`, for the first rows of a list, at most `rowsMax`, from as many pages as needed. */
export function useRows<Row>(
  path: string | undefined,
  query: QueryValues,
  rowsMax: number,
  refreshMs?: number,
): ViewState<FirstRows<Row>> {
  const pathAndQuery = path === undefined ? undefined : path + queryOf(query);
  // `read` is not called for an undefined path.
  return useRead(pathAndQuery, () => fetchRows<Row>(path!, query, rowsMax), refreshMs);
}

/**
 * As `useView`, for what is not one view below `/admin/v1`. Calls `read` at first, at each change of `path`,
 * and every `refreshMs`. `path` identifies what is read: responses for an earlier path are dropped. So is a
 * response that comes after that of a later request, and one of a request from before `setView`.
 */
export function useRead<View>(
  path: string | undefined,
  read: (path: string) => Promise<View>,
  refreshMs?: number,
): ViewState<View> {
  const [view, setView] = useState<View>();
  const [error, setError] = useState<unknown>();
  const latestPath = useRef(path);
  latestPath.current = path;
  /** Numbers of requests: of the last one that was sent, and of the one whose response is shown. */
  const requests = useRef({ sent: 0, shown: 0 }).current;
  const request = useCallback(async (): Promise<void> => {
    if (path === undefined) return;
    const requestNumber = ++requests.sent;
    const isNewer = (): boolean => latestPath.current === path && requestNumber > requests.shown;
    await read(path).then(
      (newView) => {
        if (!isNewer()) return;
        requests.shown = requestNumber;
        setView(newView);
        setError(undefined);
      },
      (reason: unknown) => {
        if (!isNewer()) return;
        requests.shown = requestNumber;
        setError(reason);
      },
    );
    // `read` is another function at each call, but reads the same for the same path.
  }, [path]);
  const reload = useCallback((): void => void request(), [request]);
  useEffect(reload, [reload]);
  // The plans or models that a page needs would be missing for as long as it is open.
  useRefresh(request, refreshMs ?? (isUnreached(error) ? RETRY_MS : undefined));
  const setNewer = (newer: View): void => {
    requests.shown = requests.sent;
    setView(newer);
  };
  return { view, error: error === undefined ? undefined : textOf(error), reload, setView: setNewer };
}

/**
 * Calls `refresh` every `periodMs` while the browser shows the console; never if `periodMs` is undefined.
 * While its last promise is pending, it is not called, for at most AWAITED_MS_MAX: a slow gateway would get
 * ever more requests. The promise must not reject. Another function begins the period anew.
 */
export function useRefresh(refresh: () => void | Promise<void>, periodMs: number | undefined): void {
  useEffect(() => {
    if (periodMs === undefined) return undefined;
    /** When the call was made that is awaited; -Infinity if none is. */
    let awaitedSinceMs = -Infinity;
    const timer = setInterval(() => {
      const nowMs = performance.now();
      if (document.hidden || nowMs - awaitedSinceMs < AWAITED_MS_MAX) return;
      awaitedSinceMs = nowMs;
      void Promise.resolve(refresh()).then(() => {
        if (awaitedSinceMs === nowMs) awaitedSinceMs = -Infinity;
      });
    }, periodMs);
    return () => clearInterval(timer);
  }, [refresh, periodMs]);
}

interface Action<Args extends readonly unknown[]> {
  /** Why the last run failed; undefined if it did not, and during a run. */
  readonly error: string | undefined;
  /** Whether the last run failed because the gateway could not be reached. */
  readonly isUnreached: boolean;
  readonly isBusy: boolean;
  readonly run: (...args: Args) => void;
}

/** The action of a button or a form, with its state: whether it runs, and why it has failed. */
export function useAction<Args extends readonly unknown[]>(
  act: (...args: Args) => Promise<void>,
): Action<Args> {
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const lastRunNumber = useRef(0);
  const run = (...args: Args): void => {
    const runNumber = ++lastRunNumber.current;
    setBusy(true);
    setError(undefined);
    void act(...args)
      .catch(setError)
      .finally(() => {
        // A later run may still go on, such as one with other filters.
        if (runNumber === lastRunNumber.current) setBusy(false);
      });
  };
  return {
    error: error === undefined ? undefined : textOf(error),
    isUnreached: isUnreached(error),
    isBusy,
    run,
  };
}

/** How long a page with filters waits for the next keystroke before it sends a request. */
export const TYPING_MS = 250;
/** How many pages are requested before the operator has to ask again: an empty page may not be the last. */
const REQUESTS_MAX = 50;

/** The rows of one filter, from the first page to the last that has come. */
export interface ShownRows<Row, Filter> extends ListView<Row> {
  readonly filter: Filter;
}

interface PagedRows<Row, Filter> {
  /** Undefined until a page has come. After a change of the filter: the former rows until others come. */
  readonly shown: ShownRows<Row, Filter> | undefined;
  /** Whether the shown rows are those of the filter, and not of a former one. */
  readonly isCurrent: boolean;
  /** Why the last request failed; undefined if it did not. */
  readonly error: string | undefined;
  /**
   * Requests the next page. Undefined after the last page, while rows of a former filter are shown, and while
   * a request runs.
   */
  readonly showMore: (() => void) | undefined;
}

/**
 * The rows of a list that the operator filters and reads page by page. `path`: below `/admin/v1`. Responses
 * to earlier filters are dropped, so rows of two filters are never shown together.
 */
export function usePagedRows<Row, Filter extends QueryValues>(
  path: string,
  filter: Filter,
  pageRows?: number,
): PagedRows<Row, Filter> {
  const query = queryOf(filter);
  const [shown, setShown] = useState<ShownRows<Row, Filter>>();
  /** The query of the present filter; undefined once the page is left. */
  const latestQuery = useRef<string | undefined>(query);
  latestQuery.current = query;
  const hasRequested = useRef(false);
  const isLatest = (): boolean => latestQuery.current === query;
  // A run does not wait for an earlier run, whose responses and errors are dropped if the filter has changed.
  const {
    error,
    isUnreached: wasUnreached,
    isBusy,
    run,
  } = useAction(async (shownRows: readonly Row[], cursor?: string) => {
    let next = cursor;
    for (let requests = 0; requests < REQUESTS_MAX; requests++) {
      const request = get<ListView<Row>>(path + queryOf({ ...filter, limit: pageRows, cursor: next }));
      const page = await request.catch((reason: unknown) => {
        if (isLatest()) throw reason;
        return undefined;
      });
      if (page === undefined || !isLatest()) return;
      setShown({ filter, data: [...shownRows, ...page.data], next: page.next });
      if (page.data.length > 0 || page.next === null) return;
      next = page.next;
    }
  });
  useEffect(() => {
    // The first request is sent at once, and each later one when nothing has been typed for a while.
    const timer = setTimeout(() => run([]), hasRequested.current ? TYPING_MS : 0);
    hasRequested.current = true;
    return () => clearTimeout(timer);
  }, [query]);
  useEffect(() => () => void (latestQuery.current = undefined), []);
  const isCurrent = shown !== undefined && queryOf(shown.filter) === query;
  // Later pages are requested by a button, and the first one by nobody. `retry` stays the same function: the
  // console draws its page every two seconds, and another function would begin the period anew each time.
  const latestRun = useRef(run);
  latestRun.current = run;
  const retry = useCallback((): void => latestRun.current([]), []);
  useRefresh(retry, wasUnreached && !isCurrent ? RETRY_MS : undefined);
  // Without a cursor the first page would come again, below its own rows.
  const canShowMore = isCurrent && !isBusy && shown.next !== null;
  const showMore = canShowMore ? () => run(shown.data, shown.next ?? undefined) : undefined;
  return { shown, isCurrent, error, showMore };
}
