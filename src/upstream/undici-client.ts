/**
 * The HTTP client: undici's pools behind UpstreamClient. One pool for each origin and way of connecting; HTTP/1.1, one call a
 * connection at a time, connections kept. A call that finds none free waits as long as it would wait for a connection. Upstream worker.
 */
import { Pool, buildConnector } from 'undici';
import type { Clock } from '../core/clock.js';
import type { UpstreamCall, UpstreamClient, UpstreamHandler } from './client.js';
import type { UpstreamTarget } from './target.js';
import { UndiciCall } from './undici-call.js';

/** An idle connection is closed before the usual servers and balancers (60 s and more) close it under a request. */
const KEEP_ALIVE_MS = 30_000;
/** Where a server announces how long it keeps a connection, that less this, for the time on the way. */
const KEEP_ALIVE_MARGIN_MS = 2_000;
const HEADER_BYTES_MAX = 64 * 1024;
const TLS_SESSIONS_MAX = 100;
/** How late a timeout may be noticed. Looking at 10,000 calls takes 0.1 ms. */
const SWEEP_PERIOD_MS = 50;

export interface UndiciClientOptions {
  readonly clock: Clock;
  /** Of Tollgate, for the User-Agent. */
  readonly version: string;
}

interface Route {
  readonly pool: Pool;
  readonly headers: readonly string[];
}

export class UndiciClient implements UpstreamClient {
  readonly #clock: Clock;
  readonly #userAgent: string;
  readonly #pools = new Map<string, Pool>();
  readonly #routes = new Map<UpstreamTarget, Route>();
  readonly #calls = new Set<UndiciCall>();
  /** How much the sockets that failed had brought, by their error: more than nothing is a connection that had served before. */
  readonly #bytesReadByError = new WeakMap<Error, number>();
  readonly #sweep: NodeJS.Timeout;

  constructor(options: UndiciClientOptions) {
    this.#clock = options.clock;
    this.#userAgent = `tollgate/${options.version}`;
    // undici's own timers of a call tick twice a second and do not run while it waits for a connection.
    this.#sweep = setInterval(() => this.#expire(), SWEEP_PERIOD_MS);
    this.#sweep.unref();
  }

  start(
    target: UpstreamTarget,
    body: string | Uint8Array,
    requestId: string,
    handler: UpstreamHandler,
  ): UpstreamCall {
    const { pool, headers } = this.#routeOf(target);
    const call = new UndiciCall(target, handler, this.#clock, this.#calls, this.#bytesReadByError);
    call.dispatch(pool, [...headers, 'x-request-id', requestId], body);
    return call;
  }

  async close(): Promise<void> {
    clearInterval(this.#sweep);
    await Promise.all([...this.#pools.values()].map((pool) => pool.destroy()));
  }

  #expire(): void {
    const nowMs = this.#clock.monotonicMs();
    for (const call of this.#calls) call.expire(nowMs);
  }

  #routeOf(target: UpstreamTarget): Route {
    let route = this.#routes.get(target);
    if (route === undefined) {
      route = { pool: this.#poolOf(target), headers: this.#headersOf(target) };
      this.#routes.set(target, route);
    }
    return route;
  }

  #poolOf(target: UpstreamTarget): Pool {
    const key = `${target.connectTimeoutMs} ${target.connectionsMax} ${target.origin} ${target.ca ?? ''}`;
    let pool = this.#pools.get(key);
    if (pool === undefined) {
      pool = this.#newPool(target);
      this.#pools.set(key, pool);
    }
    return pool;
  }

  #newPool(target: UpstreamTarget): Pool {
    const connect = buildConnector({
      timeout: target.connectTimeoutMs,
      maxCachedSessions: TLS_SESSIONS_MAX,
      allowH2: false,
      keepAlive: true,
      keepAliveInitialDelay: 60_000,
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: 250,
      ...(target.ca === undefined ? {} : { ca: target.ca }),
    });
    return new Pool(target.origin, {
      connections: target.connectionsMax,
      pipelining: 1,
      allowH2: false,
      clientTtl: null,
      connect: (options, callback) => {
        connect(options, (...result) => {
          const [, socket] = result;
          socket?.on('error', (error: Error) => this.#bytesReadByError.set(error, socket.bytesRead));
          callback(...result);
        });
      },
      keepAliveTimeout: KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_MS,
      keepAliveTimeoutThreshold: KEEP_ALIVE_MARGIN_MS,
      maxHeaderSize: HEADER_BYTES_MAX,
      strictContentLength: true,
      // 0 and -1: none of these; the calls' own clock and the readers bound time and length.
      headersTimeout: 0,
      bodyTimeout: 0,
      maxRequestsPerClient: 0,
      maxResponseSize: -1,
    });
  }

  /** Name, value, name, value: undici's fast form. The target's own headers replace ours of the same name. */
  #headersOf(target: UpstreamTarget): readonly string[] {
    const headers = new Map<string, string>([
      ['content-type', 'application/json'],
      // What comes is relayed and read as it is; nothing here decompresses.
      ['accept-encoding', 'identity'],
      ['user-agent', this.#userAgent],
    ]);
    if (target.key !== undefined) headers.set('authorization', `Bearer ${target.key}`);
    for (const [name, value] of Object.entries(target.headers)) headers.set(name.toLowerCase(), value);
    return [...headers].flat();
  }
}
