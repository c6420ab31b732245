/**
 * The HTTP/1.1 client of an upstream worker, with keep-alive pools. README.md says why it is not a library.
 * It has one pool for each origin and way of connecting, and no pipelining: one call on a connection at a
 * time. upstream/upstream-task.ts makes the client, upstream/attempt.ts starts calls. Upstream worker; the
 * main thread has a client too, for `tollgate upstreams test` (gateway/upstream-probe.ts).
 *
 * Must hold: nothing that ends a line gets into a head, or a caller could add a request of its own
 * (test/unit/http1/connection.test.ts). Every call that started gets an end or an error, also at `close`
 * (test/unit/http1/client.test.ts, test/unit/http1/client.retain.test.ts).
 */
import { type Clock, onEachTick } from '../core/clock.js';
import { SlotArray } from '../core/slot-array.js';
import type { MonotonicMs } from '../core/units.js';
import type { HttpTarget, HttpCall, HttpClient, HttpHandler } from './http-client.js';
import { Http1Call } from './call.js';
import type { ConnectionError } from './connection.js';
import { Http1Pool } from './pool.js';

/** How late a timeout may be noticed. A sweep over 10,000 calls takes 0.1 ms; an idle client has none. */
const SWEEP_PERIOD_MS = 50;
/** The period while there are only idle connections. It is longer because each sweep wakes an idle thread. */
const IDLE_SWEEP_PERIOD_MS = 1_000;

const UNSENDABLE: ConnectionError = {
  code: 'HTTP1_UNSENDABLE',
  message: 'a header or the path holds what cannot be sent',
};
const CLIENT_CLOSED: ConnectionError = { code: 'HTTP1_CLIENT_CLOSED', message: 'the client was closed' };

interface Http1ClientOptions {
  readonly clock: Clock;
  /** Tollgate's version, for the User-Agent. */
  readonly version: string;
  /** Called if a response came that no request asked for. `target`: the first one of the distrusted pool. */
  readonly onUnsolicited?: (target: HttpTarget) => void;
}

/** A target's pool, and what the request heads of its calls share. Undefined: a part that cannot be sent. */
interface TargetHeads {
  readonly pool: Http1Pool;
  /** The target's header lines. */
  readonly lines: string | undefined;
  /** Request line and the target's header lines, with the target's own path. */
  readonly start: string | undefined;
  /** As `start`, with the path of the last call that named one: most of the next calls name the same path. */
  lastPath: { readonly path: string; readonly start: string | undefined };
  /** The further headers of the last call, and their lines, for a next call with the same array. */
  lastFurther: { readonly headers: readonly string[]; readonly lines: string | undefined };
}

const NO_HEADERS: readonly string[] = Object.freeze([]);

export class Http1Client implements HttpClient {
  readonly #clock: Clock;
  readonly #userAgent: string;
  readonly #onUnsolicited: (target: HttpTarget) => void;
  readonly #pools = new Map<string, Http1Pool>();
  /** By target, of the targets that were called. `retain` removes targets of former settings. */
  readonly #heads = new Map<HttpTarget, TargetHeads>();
  /** Pools of removed targets, until their last call has ended. */
  readonly #retired = new Set<Http1Pool>();
  readonly #calls = new SlotArray<Http1Call>();
  /** Stops the timer, which runs from the first call until the last connection has gone. */
  #stopSweeps: (() => void) | undefined;
  /** When a sweep first found no call; undefined while there are calls. */
  #idleSinceMs: MonotonicMs | undefined;
  /** Whether the timer runs at the period IDLE_SWEEP_PERIOD_MS. */
  #sweepsSlowly = false;
  #isClosed = false;

  constructor(options: Http1ClientOptions) {
    this.#clock = options.clock;
    this.#userAgent = `tollgate/${options.version}`;
    this.#onUnsolicited = options.onUnsolicited ?? (() => undefined);
  }

  start(
    target: HttpTarget,
    body: string | Uint8Array,
    requestId: string,
    handler: HttpHandler,
    furtherHeaders: readonly string[] = NO_HEADERS,
    path?: string,
  ): HttpCall {
    const call = new Http1Call(target, handler, this.#clock, this.#calls);
    if (this.#isClosed) {
      call.reject(CLIENT_CLOSED);
      return call;
    }
    if (this.#sweepsSlowly || this.#stopSweeps === undefined) this.#sweepEach(SWEEP_PERIOD_MS);
    const heads = this.#headsOf(target);
    const lengthBytes = typeof body === 'string' ? Buffer.byteLength(body) : body.length;
    const start = path === undefined ? heads.start : startOfPath(heads, path);
    const further = furtherLinesOf(heads, furtherHeaders);
    const head = start && further !== undefined ? headOf(start, requestId, further, lengthBytes) : undefined;
    if (head === undefined) call.reject(UNSENDABLE);
    else call.dispatch(heads.pool, { head, body, isAscii: lengthBytes === body.length });
    return call;
  }

  /** Calls that still run fail, and so does each call that is started later. */
  close(): Promise<void> {
    this.#isClosed = true;
    this.#stopSweeps?.();
    // A copy: each call that fails leaves the list.
    const calls = [...this.#calls];
    for (const pool of [...this.#pools.values(), ...this.#retired]) pool.destroy();
    for (const call of calls) call.onConnectionError(CLIENT_CLOSED);
    return Promise.resolve();
  }

  /** Closes connections to all other targets, once their calls have ended. Late calls make a new pool. */
  retain(targets: readonly HttpTarget[]): void {
    const kept = new Set(targets);
    for (const target of this.#heads.keys()) if (!kept.has(target)) this.#heads.delete(target);
    const keptKeys = new Set(targets.map(poolKeyOf));
    for (const [key, pool] of this.#pools) {
      if (keptKeys.has(key)) continue;
      this.#pools.delete(key);
      this.#retired.add(pool);
      pool.retire();
    }
  }

  /** Ends calls and connections that are late. Slows or stops the timer if there is nothing to watch. */
  #sweep(): void {
    const nowMs = this.#clock.monotonicMs();
    for (const call of this.#calls) call.expire(nowMs);
    for (const pool of this.#pools.values()) pool.expire(nowMs);
    for (const pool of this.#retired) {
      pool.expire(nowMs);
      if (pool.isEmpty) this.#retired.delete(pool);
    }
    if (this.#calls.size > 0 || this.#retired.size > 0) {
      this.#idleSinceMs = undefined;
      return;
    }
    this.#idleSinceMs ??= nowMs;
    for (const pool of this.#pools.values()) {
      if (pool.isEmpty) continue;
      if (!this.#sweepsSlowly && nowMs - this.#idleSinceMs >= IDLE_SWEEP_PERIOD_MS)
        this.#sweepEach(IDLE_SWEEP_PERIOD_MS);
      return;
    }
    this.#stopSweeps?.();
    this.#stopSweeps = undefined;
  }

  #sweepEach(periodMs: number): void {
    this.#stopSweeps?.();
    this.#sweepsSlowly = periodMs === IDLE_SWEEP_PERIOD_MS;
    this.#idleSinceMs = undefined;
    this.#stopSweeps = onEachTick(periodMs, () => this.#sweep());
  }

  #headsOf(target: HttpTarget): TargetHeads {
    let heads = this.#heads.get(target);
    if (heads === undefined) {
      const lines = targetLinesOf(target, this.#userAgent);
      const start = startOf(target.path, lines);
      const lastPath = { path: target.path, start };
      const lastFurther = { headers: NO_HEADERS, lines: '' };
      heads = { pool: this.#poolOf(target), lines, start, lastPath, lastFurther };
      this.#heads.set(target, heads);
    }
    return heads;
  }

  #poolOf(target: HttpTarget): Http1Pool {
    const key = poolKeyOf(target);
    let pool = this.#pools.get(key);
    if (pool === undefined) {
      pool = new Http1Pool(target, this.#clock, () => this.#onUnsolicited(target));
      this.#pools.set(key, pool);
    }
    return pool;
  }
}

/** Targets with the same key share a pool, and so `connectionsMax` (http-client.ts). */
function poolKeyOf({ connectTimeoutMs, connectionsMax, origin, ca }: HttpTarget): string {
  return `${connectTimeoutMs} ${connectionsMax} ${origin} ${ca ?? ''}`;
}

// The values, names and paths that a head may have. A line end in one would begin another header or request.
const VALUE = /^[\t -~]*$/;
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const PATH = /^\/[!-~]*$/;

/** The target's header lines; undefined if one of them cannot be sent. */
function targetLinesOf(target: HttpTarget, userAgent: string): string | undefined {
  const headers = new Map<string, string>([
    ['host', new URL(target.origin).host],
    ['connection', 'keep-alive'],
    ['content-type', 'application/json'],
    // Responses are relayed as they come: the gateway does not decompress.
    ['accept-encoding', 'identity'],
    ['user-agent', userAgent],
  ]);
  if (target.key !== undefined) headers.set('authorization', `Bearer ${target.key}`);
  // The target's headers replace those above of the same name.
  for (const [name, value] of Object.entries(target.headers)) headers.set(name.toLowerCase(), value);
  return linesOf([...headers].flat());
}

/** The part of a head that all calls to `path` share; undefined if the part cannot be sent. */
function startOf(path: string, lines: string | undefined): string | undefined {
  return lines !== undefined && PATH.test(path) ? `POST ${path} HTTP/1.1\r\n${lines}` : undefined;
}

/** As `startOf`, which is called only if the path is not that of the last call. */
function startOfPath(heads: TargetHeads, path: string): string | undefined {
  if (heads.lastPath.path !== path) heads.lastPath = { path, start: startOf(path, heads.lines) };
  return heads.lastPath.start;
}

/** As `linesOf`, which is called only if the array is not that of the last call. */
function furtherLinesOf(heads: TargetHeads, headers: readonly string[]): string | undefined {
  if (heads.lastFurther.headers !== headers) heads.lastFurther = { headers, lines: linesOf(headers) };
  return heads.lastFurther.lines;
}

/** `headers` are name, value, name, value. Returns undefined if one cannot be sent, or lacks its value. */
function linesOf(headers: readonly string[]): string | undefined {
  let lines = '';
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index]!;
    const value = headers[index + 1];
    if (value === undefined || !NAME.test(name) || !VALUE.test(value)) return undefined;
    lines += `${name}: ${value}\r\n`;
  }
  return lines;
}

/** The whole head; undefined if the request's id cannot be sent. */
function headOf(start: string, requestId: string, further: string, lengthBytes: number): string | undefined {
  if (!VALUE.test(requestId)) return undefined;
  return `${start}x-request-id: ${requestId}\r\ncontent-length: ${lengthBytes}\r\n${further}\r\n`;
}
