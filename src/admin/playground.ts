/**
 * `POST /admin/playground`: the console's chat calls. It sends each call to the gateway's own public port and
 * relays the response as it arrives (a reverse proxy). `GET /admin/playground`: the address of that port.
 * server.ts calls both, after it has checked the operator and the body's length. Main thread of the gateway.
 *
 * The page cannot call the public port itself: that port is another origin, which the page's policy
 * (console-files.ts) forbids and the listener does not allow.
 *
 * There is no timeout here, because the listener ends every call by the timeouts of its upstreams, as for any
 * caller. If the listener's thread hangs, the call stands still until the page leaves.
 *
 * Must hold: the call has only the rights of the key that the operator gave, and is cancelled when the page
 * disconnects (test/unit/admin/playground.test.ts).
 */
import { STATUS_CODES, request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import type { HttpResponse } from 'uWebSockets.js';
import { isRecord } from '../core/json.js';
import { localAuthority } from './gateway-file.js';
import { type AdminResponse, type Guard, isFull, okResponse, responseOfError, send } from './http.js';
import { parseBody } from './json-body.js';

/** Enough for a long conversation. server.ts rejects a longer body. */
export const PLAYGROUND_BODY_BYTES_MAX = 1024 * 1024;
/** From this many calls in flight on, only operators without a call may begin one (`isFull` of http.ts). */
const CALLS_MAX = 16;
/** Any text that a header can carry. The listener checks whether the text is a key, and explains errors. */
const KEY_PATTERN = /^[\x21-\x7e]{1,500}$/;

/** The headers of the listener's response that are relayed to the page. */
const HEADERS_RELAYED = /^(?:content-type|retry-after|x-request-id|x-ratelimit-.*)$/;

/** Where the listeners serve callers. */
export interface PublicAddress {
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
}

export class Playground {
  readonly #addressOf: () => PublicAddress;
  /** The calls in flight, each with the operator's name. */
  readonly #calls = new Set<{ readonly who: string }>();

  constructor(addressOf: () => PublicAddress) {
    this.#addressOf = addressOf;
  }

  /** `GET /admin/playground`: the base address of the public port, as this host reaches it. */
  describe(): AdminResponse {
    const { host, port, tls } = this.#addressOf();
    return okResponse({ base_url: `${tls ? 'https' : 'http'}://${localAuthority(host, port)}/v1` });
  }

  /**
   * `body`: `{"key":"sk-…","request":{…}}`; the request is the body of the chat call. `who`: the operator's
   * name. The caller calls `serve` within `guard`, and `relay` is called within it too. Handlers of later
   * events need no guard: µWS throws only if the response is not open, which each handler checks first.
   */
  serve(response: HttpResponse, body: string, who: string, guard: Guard): void {
    const chatCall = chatCallIn(body);
    if (chatCall === undefined) {
      const message = 'the body must be {"key":"sk-…","request":{…}}, with a chat call as its request';
      send(response, responseOfError({ code: 'invalid_parameters', message }));
      return;
    }
    if (isFull(this.#calls, CALLS_MAX, who)) {
      const message = `${this.#calls.size} calls of the playground are under way: wait for one of them`;
      const error = responseOfError({ code: 'overloaded', message, retryAfterSeconds: 5 });
      send(response, error);
      return;
    }
    const outgoing = this.#send(chatCall.key, chatCall.request);
    const callInFlight = { who };
    this.#calls.add(callInFlight);
    /** Whether the page has left, or the response is complete or has broken off. */
    let hasEnded = false;
    /** Whether the listener has responded. From then on `relay` handles all events. */
    let hasResponded = false;
    const onEnd = (): void => {
      this.#calls.delete(callInFlight);
      hasEnded = true;
    };
    // When the listener responds, `relay` replaces this handler.
    response.onAborted(() => {
      onEnd();
      outgoing.destroy();
    });
    outgoing.on('error', (error) => {
      // A connection that breaks within the response fails `incoming` too, and `relay` handles that.
      if (hasEnded || hasResponded) return;
      onEnd();
      const message = `the gateway's own public port cannot be reached: ${error.message}`;
      send(response, responseOfError({ code: 'internal_error', message }));
    });
    outgoing.once('response', (incoming) => {
      hasResponded = true;
      // The page may have left meanwhile.
      if (!hasEnded) guard(() => relay(response, incoming, onEnd));
    });
  }

  /** Sends a chat call to the public port. `body`: its JSON. */
  #send(key: string, body: string): ClientRequest {
    const { host, port, tls } = this.#addressOf();
    // `node:https` is loaded here, and not at the start of each gateway.
    const outgoing = (tls ? process.getBuiltinModule('node:https').request : httpRequest)({
      host,
      port,
      method: 'POST',
      path: '/v1/chat/completions',
      // Without a pool: no connection is kept open after its call.
      agent: false,
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
      },
      // The port is this gateway's own, and its certificate names the service, not this address.
      rejectUnauthorized: false,
    });
    outgoing.end(body);
    return outgoing;
  }
}

/**
 * Relays the response with back-pressure: reads from the listener only as fast as the page reads. Calls
 * `onEnd` when the response is over or the page has left, perhaps more than once.
 */
function relay(response: HttpResponse, incoming: IncomingMessage, onEnd: () => void): void {
  /** Whether the response may still be written to. */
  let isOpen = true;
  /** Ends the call. Returns whether the response was open until now: then the caller ends or closes it. */
  const endCall = (): boolean => {
    const wasOpen = isOpen;
    isOpen = false;
    onEnd();
    return wasOpen;
  };
  response.onAborted(() => {
    endCall();
    incoming.destroy();
  });
  response.onWritable(() => {
    // With this handler µWS sends what it keeps only with a further write, which may not come for long, or
    // with an empty cork.
    response.cork(() => undefined);
    incoming.resume();
    // µWS wants true of a handler that writes nothing.
    return true;
  });
  response.cork(() => {
    const { statusCode = 500 } = incoming;
    response.writeStatus(`${statusCode} ${STATUS_CODES[statusCode] ?? ''}`);
    response.writeHeader('cache-control', 'no-store');
    for (const [name, value] of Object.entries(incoming.headers)) {
      if (HEADERS_RELAYED.test(name) && typeof value === 'string') response.writeHeader(name, value);
    }
  });
  incoming.on('data', (chunk: Buffer) => {
    if (!isOpen) return;
    response.cork(() => {
      if (!response.write(chunk)) incoming.pause();
    });
  });
  incoming.once('end', () => {
    if (endCall()) response.cork(() => response.end());
  });
  // The listener's response broke off, so the page's response must not look complete.
  incoming.on('error', () => {
    if (endCall()) response.close();
  });
}

/** Returns undefined if the body is not as `serve` says. `request` is JSON again. */
function chatCallIn(body: string): { readonly key: string; readonly request: string } | undefined {
  try {
    const { key, request } = (parseBody(body) ?? {}) as { key?: unknown; request?: unknown };
    if (typeof key !== 'string' || !KEY_PATTERN.test(key) || !isRecord(request)) return undefined;
    // Within the `try`: JSON.stringify overflows the stack on values that JSON.parse could still read.
    return { key, request: JSON.stringify(request) };
  } catch {
    return undefined;
  }
}
