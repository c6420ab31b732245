/**
 * The stream of stats from the gateway (`/admin/v1/live`), one for the whole console, and the rates, shares
 * and percentiles that pages show of it. main.tsx opens it and gives it to the pages. Browser.
 *
 * Must hold: a stream that is silent for SILENCE_MS is shown as broken; one that broke or was rejected is
 * requested again until it comes; after the end of a console session the form to sign in is shown
 * (test/unit/admin/live-feed.test.ts, test/e2e/console.test.ts).
 */
import { useEffect, useState } from 'preact/hooks';
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
import { checkSession } from './api.js';

/** How far back charts go. */
export type Range = RingName;
export const RANGES = RING_NAMES;
export const rangeSeconds = (range: Range): number =>
  HISTORY_RINGS[range].seconds * HISTORY_RINGS[range].spans;

export type Growth = Readonly<CallGrowth>;
export type Span = Readonly<HistorySpan>;

/** Rates are taken over so many snapshots: 10 seconds, so that a number does not flicker. */
const SNAPSHOTS_KEPT = 6;
/** The stream counts as broken after this silence, in which two events should have come. */
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
  /** Ended ones, oldest first. */
  readonly spans: readonly Span[];
  /** Two seconds apart, the newest last. */
  readonly snapshots: readonly Snapshot[];
  readonly connected: boolean;
}

export function useLive(range: Range): Live {
  const [live, setLive] = useState<Live>(() => nothing(range));
  useEffect(() => {
    setLive(({ snapshots }) => ({ ...nothing(range), snapshots }));
    const takes: Takes = {
      history: (before, data) => {
        const { seconds, spans } = data as { seconds: number; spans: readonly Span[] };
        return { ...before, spanSeconds: seconds, spans, connected: true };
      },
      now: (before, data) => {
        const snapshot: Snapshot = { ...(data as StatusDocument), atSeconds: performance.now() / 1_000 };
        return {
          ...before,
          snapshots: [...before.snapshots, snapshot].slice(-SNAPSHOTS_KEPT),
          connected: true,
        };
      },
      span: (before, data) => ({ ...before, spans: recent([...before.spans, data as Span], range) }),
    };
    return follow(`/admin/v1/live?range=${range}`, takes, setLive);
  }, [range]);
  return live;
}

/** What becomes of the page's state with an event, by its name. */
type Takes = Readonly<Record<string, (before: Live, data: unknown) => Live>>;

/** Follows the stream, whatever happens to it, until the function is called that is returned. */
function follow(url: string, takes: Takes, change: (next: (before: Live) => Live) => void): () => void {
  let source: EventSource;
  let timer: ReturnType<typeof setTimeout>;
  let isOver = false;
  const disconnected = (): void => change((before) => ({ ...before, connected: false }));
  const connectLater = (): void => {
    if (!isOver) timer = setTimeout(connect, RECONNECT_MS);
  };
  const onSilence = (): void => {
    disconnected();
    source.close();
    connectLater();
  };
  const connect = (): void => {
    source = new EventSource(url);
    timer = setTimeout(onSilence, SILENCE_MS);
    for (const [name, take] of Object.entries(takes)) {
      source.addEventListener(name, (event: MessageEvent<string>) => {
        clearTimeout(timer);
        timer = setTimeout(onSilence, SILENCE_MS);
        const data: unknown = JSON.parse(event.data);
        change((before) => take(before, data));
      });
    }
    source.addEventListener('error', () => {
      disconnected();
      // The browser connects again by itself, unless the response was an error, such as a proxy's 502.
      if (source.readyState !== EventSource.CLOSED) return;
      clearTimeout(timer);
      void checkSession().then((goesOn) => (goesOn ? connectLater() : undefined), connectLater);
    });
  };
  connect();
  return () => {
    isOver = true;
    clearTimeout(timer);
    source.close();
  };
}

/** Before the first event, which says how long spans are. */
function nothing(range: Range): Live {
  return { range, spanSeconds: 2, spans: [], snapshots: [], connected: false };
}

function recent(spans: readonly Span[], range: Range): Span[] {
  const oldest = (spans.at(-1)?.start ?? 0) - rangeSeconds(range);
  return spans.filter(({ start }) => start > oldest);
}

/**
 * Outcomes that the gateway or an upstream caused. All others, but two, are rejections that the caller
 * caused.
 */
const FAILURES: readonly string[] = ['provider_unavailable', 'internal_error', 'overloaded'];
/** Finds the failed calls in the call log, those too that broke after their status 200. */
export const FAILURE_CODES = FAILURES.join(',');

export function sumOf(counts: Readonly<Record<string, number>> = {}): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

/** Calls by outcome. */
export function sharesOf(outcomes: Readonly<Record<string, number>> = {}) {
  const shares = { answered: 0, rejected: 0, failed: 0, left: 0 };
  for (const [outcome, count] of Object.entries(outcomes)) {
    if (outcome === 'ok') shares.answered += count;
    else if (outcome === 'client_gone') shares.left += count;
    else if (FAILURES.includes(outcome)) shares.failed += count;
    else shares.rejected += count;
  }
  return shares;
}

/**
 * The value below which the share `p` of all lies, by a straight line within its bucket; null if there are
 * none. `counts` are by the index of the bucket; `bounds` are the upper ends of all buckets but the last.
 */
export function percentile(
  counts: Readonly<Record<string, number>> | undefined,
  bounds: readonly number[],
  p: number,
): number | null {
  const total = sumOf(counts);
  if (counts === undefined || total === 0 || bounds.length === 0) return null;
  let below = 0;
  for (let bucket = 0; bucket <= bounds.length; bucket++) {
    const count = counts[bucket] ?? 0;
    if (count > 0 && below + count >= p * total) {
      const low = bounds[bucket - 1] ?? 0;
      const high = bounds[bucket] ?? low;
      return low + ((p * total - below) / count) * (high - low);
    }
    below += count;
  }
  return null;
}

/** The calls of a span, of all models or of one. */
export function growthOf(span: Span, model: string): Growth {
  return model === '' ? span : (span.models?.[model] ?? {});
}

export interface LastSeconds extends Growth {
  readonly seconds: number;
  readonly refusals?: Readonly<Record<string, number>> | undefined;
}

/**
 * The calls between the first snapshot and the last, of all models or of one; undefined if there are not two.
 */
export function lastSecondsOf(snapshots: readonly Snapshot[], model: string): LastSeconds | undefined {
  const first = snapshots[0];
  const last = snapshots.at(-1);
  if (first === undefined || last === undefined || last.atSeconds <= first.atSeconds) return undefined;
  const statsOf = (status: StatusDocument) =>
    model === '' ? status : status.models.find(({ id }) => id === model);
  const after = statsOf(last);
  return {
    ...(after === undefined ? {} : callGrowthOf(statsOf(first), after)),
    seconds: last.atSeconds - first.atSeconds,
    refusals: after === undefined ? {} : countsGrowth(first.refusals, last.refusals),
  };
}
