/**
 * The stream of stats from the gateway (`/admin/v1/live`, which admin/live-feed.ts sends), and the rates,
 * shares and percentiles that pages make of the stats. main.tsx opens one stream for the whole console and
 * gives the stats to the pages. Browser.
 *
 * Must hold: a stream without an event for SILENCE_MS is shown as broken. A stream that broke or was rejected
 * is requested again until it opens. After the end of a console session the form to sign in is shown
 * (test/e2e/console.test.ts).
 */
import { useEffect, useState } from 'preact/hooks';
import { ROOT } from '../admin/addresses.js';
import { ERROR_CODES, ERROR_KINDS } from '../core/errors.js';
import {
  type CallGrowth,
  callGrowthOf,
  countsGrowth,
  HISTORY_RINGS,
  type HistorySpan,
  RING_NAMES,
  type RingName,
} from '../telemetry/history.js';
import type { StatusDocument } from '../telemetry/status-document.js';
import { checkSession } from './session.js';

/** How far back charts go: the name of a ring of the history. */
export type Range = RingName;
export const RANGES = RING_NAMES;
export const rangeSeconds = (range: Range): number =>
  HISTORY_RINGS[range].seconds * HISTORY_RINGS[range].spans;

/** By how much the counts of calls grew in a time. */
export type Growth = Readonly<CallGrowth>;
/** A span of the history, and its growth. */
export type Span = Readonly<HistorySpan>;

/** Snapshots come every 2 seconds, so these span 10 seconds: a rate over that time does not flicker. */
const SNAPSHOTS_KEPT = 6;
/** The stream counts as broken after this time without an event. It should have brought two events. */
const SILENCE_MS = 6_000;
/** The pause before a broken stream is requested again. */
const RECONNECT_MS = 5_000;

/** The status, and when it came, in seconds of the browser's clock. */
export interface Snapshot extends StatusDocument {
  readonly atSeconds: number;
}

export interface Live {
  readonly range: Range;
  /** Length of each span. */
  readonly spanSeconds: number;
  /** The spans of the range that have ended, oldest first. */
  readonly spans: readonly Span[];
  /** The last snapshots, two seconds apart, the newest last, at most SNAPSHOTS_KEPT. */
  readonly snapshots: readonly Snapshot[];
  /** Whether the stream is open. */
  readonly isConnected: boolean;
}

/** Returns the stats of the stream of that range. Another range opens another stream. */
export function useLive(range: Range): Live {
  const [live, setLive] = useState<Live>(() => emptyLive(range));
  useEffect(() => {
    // The snapshots are the same for all ranges, so they stay.
    setLive(({ snapshots }) => ({ ...emptyLive(range), snapshots }));
    const reducers: Reducers = {
      history: (former, data) => {
        const { seconds, spans } = data as { seconds: number; spans: readonly Span[] };
        return { ...former, spanSeconds: seconds, spans, isConnected: true };
      },
      now: (former, data) => {
        const snapshot: Snapshot = { ...(data as StatusDocument), atSeconds: performance.now() / 1_000 };
        return {
          ...former,
          snapshots: [...former.snapshots, snapshot].slice(-SNAPSHOTS_KEPT),
          isConnected: true,
        };
      },
      span: (former, data) => ({ ...former, spans: spansIn(range, [...former.spans, data as Span]) }),
    };
    return follow(`${ROOT}/live?range=${range}`, reducers, setLive);
  }, [range]);
  return live;
}

/** By the name of an event: the function that returns the page's stats after the event. */
type Reducers = Readonly<Record<string, (former: Live, data: unknown) => Live>>;

/** Follows the stream, and reconnects if it breaks, until the returned function is called. */
function follow(
  url: string,
  reducers: Reducers,
  update: (reduce: (former: Live) => Live) => void,
): () => void {
  let source: EventSource;
  /** Ends the wait for an event of the open stream, or the pause before the next request. */
  let timer: ReturnType<typeof setTimeout>;
  let isOver = false;
  const setDisconnected = (): void => update((former) => ({ ...former, isConnected: false }));
  const connectLater = (): void => {
    if (!isOver) timer = setTimeout(connect, RECONNECT_MS);
  };
  const onSilence = (): void => {
    setDisconnected();
    source.close();
    connectLater();
  };
  const connect = (): void => {
    source = new EventSource(url);
    timer = setTimeout(onSilence, SILENCE_MS);
    for (const [name, reduce] of Object.entries(reducers)) {
      source.addEventListener(name, (event: MessageEvent<string>) => {
        clearTimeout(timer);
        timer = setTimeout(onSilence, SILENCE_MS);
        const data: unknown = JSON.parse(event.data);
        update((former) => reduce(former, data));
      });
    }
    source.addEventListener('error', () => {
      setDisconnected();
      // The browser connects again by itself, unless the response was an error, such as a proxy's 502.
      if (source.readyState !== EventSource.CLOSED) return;
      clearTimeout(timer);
      // If the session has ended, `checkSession` shows the form to sign in, which ends this. If a dialog
      // keeps the page, the operator may sign in again in another tab, and the stream goes on.
      void checkSession().then(connectLater, connectLater);
    });
  };
  connect();
  return () => {
    isOver = true;
    clearTimeout(timer);
    source.close();
  };
}

/** The stats before the event `history`, which has the real length of spans. */
function emptyLive(range: Range): Live {
  return { range, spanSeconds: 2, spans: [], snapshots: [], isConnected: false };
}

/** Drops the spans that lie before the range. */
function spansIn(range: Range, spans: readonly Span[]): Span[] {
  const oldest = (spans.at(-1)?.start ?? 0) - rangeSeconds(range);
  return spans.filter(({ start }) => start > oldest);
}

/** Outcomes by which the gateway or an upstream has failed. Other codes are rejections. */
const FAILURES: readonly string[] = ERROR_CODES.filter((code) => ERROR_KINDS[code].status >= 500);
/** The filter `code` that finds failed calls in the call log, also those that failed after a status 200. */
export const FAILURE_CODES = FAILURES.join(',');

export function sumOfCounts(counts: Readonly<Record<string, number>> = {}): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

/** Sums the counts of outcomes by kind of outcome. `left`: the caller left before the end. */
export function callsByKind(outcomes: Readonly<Record<string, number>> = {}) {
  const shares = { answered: 0, rejected: 0, failed: 0, left: 0 };
  for (const [outcome, count] of Object.entries(outcomes)) {
    if (outcome === 'ok') shares.answered += count;
    else if (outcome === 'client_gone') shares.left += count;
    else if (FAILURES.includes(outcome)) shares.failed += count;
    else shares.rejected += count;
  }
  return shares;
}

/** Returns the calls of a span, of all models if `model` is empty. */
export function growthOf(span: Span, model: string): Growth {
  return model === '' ? span : (span.models?.[model] ?? {});
}

/** The calls that ended between the oldest and the newest snapshot. */
interface LastSeconds extends Growth {
  /** The time between the two: about 10 seconds. */
  readonly seconds: number;
  /** Rejections of all models, by reason. */
  readonly refusals?: Readonly<Record<string, number>> | undefined;
}

/** Counts all models if `model` is ''. Returns undefined without two snapshots. */
export function lastSecondsOf(snapshots: readonly Snapshot[], model: string): LastSeconds | undefined {
  const oldest = snapshots[0];
  const newest = snapshots.at(-1);
  if (oldest === undefined || newest === undefined || newest.atSeconds <= oldest.atSeconds) return undefined;
  const statsOf = (status: StatusDocument) =>
    model === '' ? status : status.models.find(({ id }) => id === model);
  const newestStats = statsOf(newest);
  return {
    ...(newestStats === undefined ? {} : callGrowthOf(statsOf(oldest), newestStats)),
    seconds: newest.atSeconds - oldest.atSeconds,
    refusals: newestStats === undefined ? {} : countsGrowth(oldest.refusals, newest.refusals),
  };
}
