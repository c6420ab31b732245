/**
 * `POST /admin/playground`: the console's chat calls. server.ts calls it; it sends each call to the gateway's
 * own public port and relays the response as it arrives (a reverse proxy). Main thread of the gateway.
 *
 * The page cannot call the public port itself: that is another origin, which the page's policy forbids and
 * the listener does not allow.
 *
 * Must hold: the call has only the rights of the key that the operator gave, and is cancelled when the page
 * disconnects (test/unit/admin/playground.test.ts).
 */
import { STATUS_CODES, request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { HttpResponse } from 'uWebSockets.js';
import { type AdminResponse, type Guard, isFull, ok, responseOfError, send } from './http.js';

/** Enough for a long conversation. */
export const PLAYGROUND_BODY_BYTES_MAX = 1024 * 1024;
/** How many calls run at a time: a few for each operator with a window open. See `isFull`. */
const CALLS_MAX = 16;
/** Keys have 46 characters. The bound keeps the header line short. */
const KEY_PATTERN = /^[\x21-\x7e]{1,500}$/;

/** The headers of the response that are relayed to the page. */
const HEADERS_SHOWN = /^(?:content-type|retry-after|x-request-id|x-ratelimit-.*)$/;

/** Where the listeners serve callers. */
export interface PublicAddress {
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
}

export class Playground {
  readonly #addressOf: () => PublicAddress;
  /** The calls under way, each with the operator's name. */
  readonly #calls = new Set<{ readonly who: string }>();

  constructor(addressOf: () => PublicAddress) {
    this.#addressOf = addressOf;
  }

  /** `GET /admin/playground`: the base address of the public port, as this host reaches it. */
  describe(): AdminResponse {
    const { host, port, tls } = this.#addressOf();
    return ok({
      base_url: `${tls ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}/v1`,
    });
  }

  /**
   * `body`: `{"key":"sk-…","request":{…}}`; the request is the body of the chat call. `who` is the operator's
   * name. What comes later runs within `guard`.
   */
  serve(response: HttpResponse, body: string, who: string, guard: Guard): void {
    const given = callIn(body);
    if (given === undefined) {
      const message = 'the body must be {"key":"sk-…","request":{…}}, with a chat call as its request';
      send(response, responseOfError({ code: 'invalid_parameters', message }), false, false);
      return;
    }
    if (isFull(this.#calls, CALLS_MAX, who)) {
      const message = `${CALLS_MAX} calls of the playground are under way: wait for one of them.`;
      send(response, responseOfError({ code: 'overloaded', message, retryAfterSeconds: 5 }), false, false);
      return;
    }
    const outgoing = this.#call(given.key, given.request);
    const call = { who };
    this.#calls.add(call);
    let ended = false;
    let begun = false;
    const end = (): void => {
      this.#calls.delete(call);
      ended = true;
    };
    response.onAborted(() => {
      end();
      outgoing.destroy();
    });
    outgoing.on('error', (error) => {
      // A connection that is reset within the response fails both: what is relayed ends the page's response.
      if (ended || begun) return;
      end();
      const message = `The gateway's own public port cannot be reached: ${error.message}`;
      send(response, responseOfError({ code: 'internal_error', message }), false, false);
    });
    outgoing.once('response', (incoming) => {
      begun = true;
      // The client may have left meanwhile.
      if (!ended) guard(() => relay(response, incoming, end));
    });
  }

  #call(key: string, body: string): ClientRequest {
    const { host, port, tls } = this.#addressOf();
    const outgoing = (tls ? httpsRequest : httpRequest)({
      host,
      port,
      method: 'POST',
      path: '/v1/chat/completions',
      agent: false,
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
      },
      // The other end is this process, whose certificate names the service and not this address.
      rejectUnauthorized: false,
    });
    outgoing.end(body);
    return outgoing;
  }
}

/** Relays the response with back-pressure: reads from the gateway only as fast as the page reads. */
function relay(response: HttpResponse, incoming: IncomingMessage, end: () => void): void {
  let open = true;
  const finish = (): boolean => {
    const first = open;
    open = false;
    end();
    return first;
  };
  response.onAborted(() => {
    finish();
    incoming.destroy();
  });
  response.onWritable(() => {
    incoming.resume();
    return true;
  });
  response.cork(() => {
    const { statusCode = 500 } = incoming;
    response.writeStatus(`${statusCode} ${STATUS_CODES[statusCode] ?? ''}`);
    response.writeHeader('cache-control', 'no-store');
    for (const [name, value] of Object.entries(incoming.headers)) {
      if (HEADERS_SHOWN.test(name) && typeof value === 'string') response.writeHeader(name, value);
    }
  });
  incoming.on('data', (chunk: Buffer) => {
    if (!open) return;
    response.cork(() => {
      if (!response.write(chunk)) incoming.pause();
    });
  });
  incoming.once('end', () => {
    if (finish()) response.cork(() => response.end());
  });
  // The listener's response broke off, so the page's response must not look complete.
  incoming.on('error', () => {
    if (finish()) response.close();
  });
}

function callIn(body: string): { readonly key: string; readonly request: string } | undefined {
  try {
    const given = JSON.parse(body) as { key?: unknown; request?: unknown } | null;
    if (typeof given?.key !== 'string' || !KEY_PATTERN.test(given.key)) return undefined;
    if (typeof given.request !== 'object' || given.request === null) return undefined;
    // Within the `try`: JSON.stringify overflows the stack on values that JSON.parse could still read.
    return { key: given.key, request: JSON.stringify(given.request) };
  } catch {
    return undefined;
  }
}
