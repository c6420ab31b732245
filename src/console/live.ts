/**
 * The stream of figures from the gateway: one for the whole page, whichever part of it looks. Browser.
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { get, isSignedIn, textOf } from './api.js';
import { type Range, RANGE_SECONDS, type Span, type Status } from './views.js';

/** Rates are taken over the last pictures of the moment: 10 seconds, so that a number does not flicker. */
const PICTURES_KEPT = 6;

/** Of the moment, and when it came, in seconds of the browser's clock. */
export interface Picture extends Status {
  readonly atSeconds: number;
}

export interface Live {
  readonly range: Range;
  /** Length of each span. */
  readonly spanSeconds: number;
  /** Ended ones, oldest first. */
  readonly spans: readonly Span[];
  /** The newest last, two seconds apart. */
  readonly pictures: readonly Picture[];
  readonly connected: boolean;
}

/** How long a stream may be silent before the page says that it is: two events that did not come. */
const SILENCE_MS = 6_000;

export function useLive(range: Range, onSignedOut: () => void): Live {
  const [live, setLive] = useState<Live>(() => nothing(range));
  useEffect(() => {
    setLive((before) => ({ ...nothing(range), pictures: before.pictures }));
    let silence: ReturnType<typeof setTimeout> | undefined;
    const source = new EventSource(`/admin/v1/live?range=${range}`);
    const heard = (): void => {
      clearTimeout(silence);
      silence = setTimeout(() => setLive((before) => ({ ...before, connected: false })), SILENCE_MS);
    };
    const on = (name: string, take: (before: Live, data: unknown) => Live): void => {
      source.addEventListener(name, (event: MessageEvent<string>) => {
        heard();
        const data: unknown = JSON.parse(event.data);
        setLive((before) => take(before, data));
      });
    };
    on('history', (before, data) => {
      const { seconds, spans } = data as { seconds: number; spans: readonly Span[] };
      return { ...before, spanSeconds: seconds, spans, connected: true };
    });
    on('now', (before, data) => {
      const picture: Picture = { ...(data as Status), atSeconds: performance.now() / 1_000 };
      return { ...before, pictures: [...before.pictures, picture].slice(-PICTURES_KEPT), connected: true };
    });
    on('span', (before, data) => ({ ...before, spans: recent([...before.spans, data as Span], range) }));
    source.addEventListener('error', () => {
      setLive((before) => ({ ...before, connected: false }));
      // The browser comes back by itself, unless it was told to stay away.
      if (source.readyState === EventSource.CLOSED) {
        void isSignedIn().then(
          (signedIn) => {
            if (!signedIn) onSignedOut();
          },
          () => undefined,
        );
      }
    });
    return () => {
      clearTimeout(silence);
      source.close();
    };
  }, [range]);
  return live;
}

function nothing(range: Range): Live {
  return { range, spanSeconds: 2, spans: [], pictures: [], connected: false };
}

function recent(spans: readonly Span[], range: Range): Span[] {
  const oldest = (spans.at(-1)?.start ?? 0) - RANGE_SECONDS[range];
  return spans.filter(({ start }) => start > oldest);
}

/*
 * What a place of the admin interface answers, asked for again and again while it is looked at. Browser.
 */

export interface Polled<Response> {
  /** The last that came, of a former place until that of the new one is there; undefined at first. */
  readonly answer: Response | undefined;
  readonly problem: string | undefined;
  readonly reload: () => void;
  /** Where something else was told the newest. */
  readonly setResponse: (answer: Response) => void;
}

export function usePolled<Response>(place: string, refreshMs: number): Polled<Response> {
  const [answer, setResponse] = useState<Response>();
  const [problem, setError] = useState<string>();
  const wanted = useRef(place);
  wanted.current = place;
  const reload = useCallback((): void => {
    if (document.hidden) return;
    get<Response>(place).then(
      (found) => {
        if (wanted.current !== place) return;
        setResponse(found);
        setError(undefined);
      },
      (error: unknown) => {
        if (wanted.current === place) setError(textOf(error));
      },
    );
  }, [place]);
  useEffect(() => {
    reload();
    const timer = setInterval(reload, refreshMs);
    return () => clearInterval(timer);
  }, [reload, refreshMs]);
  return { answer, problem, reload, setResponse };
}
