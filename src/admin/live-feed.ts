/**
 * `GET /admin/v1/live`: the status every two seconds and the history of its stats, as server-sent events.
 * server.ts calls this for the console, whose open pages are the subscribers. Main thread of the gateway.
 *
 *     history   once, first: the ended spans of the ring that was asked for, `?range=5m`, `1h`, `6h` or `24h`
 *     now       every two seconds: the document of `/admin/v1/status`
 *     span      whenever a span of that ring has ended
 *
 * The text of `now` is made once for all subscribers, that of a `span` once for those of its ring; `history`
 * is made for each subscriber. Without subscribers no text is made.
 *
 * Must hold: a subscriber misses no span: a slow one gets spans alone, and if it stays slow its connection is
 * closed, and the page reconnects and gets all spans. So what waits for a slow reader is bounded. A page that
 * took its history late keeps its stream (test/unit/admin/live-feed.slow-sockets.test.ts). A stream ends with
 * the console session or the token that began it. An operator with many pages keeps out no other operator.
 * When another gateway process of the host takes over the interface, all streams end here.
 */
import type { HttpResponse } from 'uWebSockets.js';
import { jsonText } from '../core/json.js';
import { SSE_KEEP_ALIVE, sseEvent } from '../protocol/sse.js';
import type { AccountHistory } from '../telemetry/account-history.js';
import { type EndedSpan, type History, HISTORY_RINGS, type RingName } from '../telemetry/history.js';
import { RangeQuery } from './fields.js';
import { createReader, parseQuery } from './input-reader.js';
import { isFull, responseOfError, send } from './http.js';

const readQuery = createReader(RangeQuery, 'query parameter');

/**
 * From this many open streams on, only operators without a stream may open one (`isFull` of http.ts). Sixty
 * streams took no measurable CPU.
 */
const SUBSCRIBERS_MAX = 64;

/**
 * A connection is closed if its socket has not sent all that was written at so many reads of the status in a
 * row, in 60 s: a history of 3 MB, the longest, needs 50 KB/s.
 */
const BLOCKED_READS_MAX = 30;

/** Gets the status and the spans that have ended since the last read. */
export type LiveWatcher = (status: object, ended: readonly EndedSpan[]) => void;

/** Where the stats come from: gateway/history-recorder.ts. */
export interface LiveSource {
  readonly history: History;
  /** For the routes of the busiest accounts (server.ts). */
  readonly accounts: AccountHistory;
  /** Calls `watcher` every two seconds. Returns its stop function. */
  watch(watcher: LiveWatcher): () => void;
}

interface Subscriber {
  readonly response: HttpResponse;
  readonly ring: RingName;
  /** The operator's name. */
  readonly who: string;
  /** Whether the console session or the token that began the stream is still valid. */
  readonly stillAdmitted: () => boolean;
  /** At how many reads in a row the socket had not sent all that was written (backpressure). */
  blockedReads: number;
}

export class LiveFeed {
  readonly #source: Pick<LiveSource, 'history' | 'watch'>;
  readonly #subscribers = new Set<Subscriber>();
  /** Stops `watch` of the source; undefined while there is no subscriber. */
  #unwatch: (() => void) | undefined;
  #isClosed = false;

  constructor(source: Pick<LiveSource, 'history' | 'watch'>) {
    this.#source = source;
  }

  /**
   * Starts the stream of the operator `who`, whom admin authentication has admitted, or sends an error
   * response. Calls `stillAdmitted` before each event after the history. The promise rejects with
   * `invalid_parameters` if the query is wrong, so `subscribe` must be called within a Guard.
   */
  async subscribe(
    response: HttpResponse,
    query: string,
    who: string,
    stillAdmitted: () => boolean,
  ): Promise<void> {
    // The client may leave while the query is read, and then the response must not be used. The cast keeps
    // TypeScript from assuming `false` below.
    let hasLeft = false as boolean;
    let subscriber: Subscriber | undefined;
    // The only handler: µWS has one for each response. There is none for `onWritable`, because with one µWS
    // would send what it keeps only at the next write.
    response.onAborted(() => {
      hasLeft = true;
      if (subscriber !== undefined) this.#forget(subscriber);
    });
    const { range: ring = '5m' } = await readQuery(parseQuery(query, RangeQuery));
    if (hasLeft) return;
    if (this.#isClosed) {
      const message = 'Another process of this gateway has the interface now: connect again.';
      const error = responseOfError({ code: 'overloaded', message, retryAfterSeconds: 1 });
      // Closes the connection, on which the page would reach this gateway again.
      send(response, error, 'close');
      return;
    }
    if (isFull(this.#subscribers, SUBSCRIBERS_MAX, who)) {
      const message = `${this.#subscribers.size} pages watch already: close one.`;
      const error = responseOfError({ code: 'overloaded', message, retryAfterSeconds: 60 });
      send(response, error);
      return;
    }
    const { seconds } = HISTORY_RINGS[ring];
    const spans = this.#source.history.spans(ring);
    response.cork(() => {
      response.writeHeader('content-type', 'text/event-stream');
      response.writeHeader('cache-control', 'no-store');
      response.writeHeader('x-accel-buffering', 'no');
      const isTaken = response.write(sseEvent(jsonText({ range: ring, seconds, spans }), 'history'));
      subscriber = { response, ring, who, stillAdmitted, blockedReads: isTaken ? 0 : 1 };
      this.#subscribers.add(subscriber);
    });
    this.#unwatch ??= this.#source.watch((status, ended) => this.#send(status, ended));
  }

  /**
   * To be called when the source will send no more. Closes the connections of all streams, on which the pages
   * would reach this gateway again. From then on `subscribe` starts no stream.
   */
  close(): void {
    this.#isClosed = true;
    // A copy, because `close` calls `onAborted`, which removes the subscriber.
    for (const { response } of [...this.#subscribers]) response.close();
  }

  #send(status: object, ended: readonly EndedSpan[]): void {
    const nowEvent = sseEvent(jsonText(status), 'now');
    // With each status at most one span of a ring ends (StatusRing.add of history.ts).
    const spanEvents = new Map<RingName, string>(
      ended.map(({ ring, span }) => [ring, sseEvent(jsonText(span), 'span')]),
    );
    for (const subscriber of this.#subscribers) {
      const { response, ring, stillAdmitted } = subscriber;
      const spanEvent = spanEvents.get(ring);
      if (!stillAdmitted()) {
        this.#forget(subscriber);
        response.cork(() => response.end());
        continue;
      }
      // A comment shows whether a blocked socket has sent all by now.
      const text = subscriber.blockedReads > 0 ? (spanEvent ?? SSE_KEEP_ALIVE) : nowEvent + (spanEvent ?? '');
      response.cork(() => {
        subscriber.blockedReads = response.write(text) ? 0 : subscriber.blockedReads + 1;
      });
      // Restarts a timer of µWS (request/response-writer.ts). µWS sets it when the socket does not take all,
      // which `write` may not tell, and again when it has sent the rest. A write that succeeds does not end
      // it: 8 to 12 s later the connection would be cut.
      response.pause();
      response.resume();
      // µWS calls `onAborted` for a closed connection, which forgets the subscriber.
      if (subscriber.blockedReads >= BLOCKED_READS_MAX) response.close();
    }
  }

  #forget(subscriber: Subscriber): void {
    this.#subscribers.delete(subscriber);
    if (this.#subscribers.size > 0) return;
    this.#unwatch?.();
    this.#unwatch = undefined;
  }
}
