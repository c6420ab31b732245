/**
 * The mock upstream: an OpenAI-compatible server with scripted responses, for trials (`tollgate
 * mock-upstream`), tests and benches. One thread.
 *
 *     POST /v1/chat/completions   answers as the options say, or for one call as a query string says
 *                                 (mock-options.ts), in a header `x-mock` or after `x-mock:` in the last
 *                                 user message
 *     GET  /v1/models             one model
 *     GET  /mock/stats            MockStats as JSON
 *     POST /mock/reset-stats
 */
import uws from 'uWebSockets.js';
import type { HttpRequest, HttpResponse, us_listen_socket } from 'uWebSockets.js';
import {
  plainResponse,
  readMockRequest,
  responseTo,
  type MockRequest,
  type Response,
} from './mock-answer.js';
import { createMockStats, Delivery, resetMockStats, type MockStats } from './mock-delivery.js';
import { MOCK_DEFAULTS, MockOptionError, steeredOptions, type MockOptions } from './mock-options.js';

export interface MockUpstreamOptions {
  readonly host: string;
  /** 0 means any free port. */
  readonly port: number;
  /** Whether to keep the last request's headers and body for /mock/stats; costs some µs a request. */
  readonly record: boolean;
  readonly answers: MockOptions;
}

export interface MockUpstream {
  readonly port: number;
  /** The live counters. */
  readonly stats: Readonly<MockStats>;
  /** Closes the listen socket and every connection. */
  close(): void;
}

/** Above what any gateway lets through. Requests are held whole. */
const REQUEST_BYTES_MAX = 64 * 1024 * 1024;
/** Encoded responses that are kept: one for each model and prompt length in use; a bench has one. */
const ENCODED_MAX = 256;

const MODELS = JSON.stringify({
  object: 'list',
  data: [{ id: 'mock-model', object: 'model', created: 1_700_000_000, owned_by: 'mock' }],
});

const refusal = (message: string): string =>
  JSON.stringify({ error: { message, type: 'mock_error', code: 'mock' } });

function headersOf(request: HttpRequest): Record<string, string> {
  const headers: Record<string, string> = {};
  request.forEach((name, value) => (headers[name] = value));
  return headers;
}

/** Responses to requests without steering, encoded once. */
class EncodedResponses {
  readonly #options: MockOptions;
  readonly #responses = new Map<string, Response>();

  constructor(options: MockOptions) {
    this.#options = options;
  }

  to(request: MockRequest): Response {
    const key = `${request.stream} ${request.includeUsage} ${request.promptTokens} ${request.model}`;
    const known = this.#responses.get(key);
    if (known !== undefined) return known;
    if (this.#responses.size === ENCODED_MAX) this.#responses.clear();
    const encoded = responseTo(this.#options, request, undefined);
    this.#responses.set(key, encoded);
    return encoded;
  }
}

class MockServer {
  readonly stats = createMockStats();
  readonly #settings: MockUpstreamOptions;
  readonly #encoded: EncodedResponses;

  constructor(settings: MockUpstreamOptions) {
    this.#settings = settings;
    this.#encoded = new EncodedResponses(settings.answers);
  }

  /** Reads all it needs of the request, which µWS keeps valid in this callback only. */
  chat(response: HttpResponse, request: HttpRequest): void {
    const delivery = new Delivery(response, this.stats);
    const steering = request.getHeader('x-mock');
    // A prompt may ask for an echo after the headers are gone: then they are in it only if they were
    // recorded.
    const wanted = this.#settings.record || this.#settings.answers.echo || steering !== '';
    const headers = wanted ? headersOf(request) : undefined;
    const earlier: Buffer[] = [];
    let earlierBytes = 0;
    response.onData((bytes, isLast) => {
      if (delivery.over) return;
      if (isLast) {
        const last = Buffer.from(bytes);
        this.#response(
          delivery,
          earlierBytes === 0 ? last : Buffer.concat([...earlier, last]),
          steering,
          headers,
        );
        return;
      }
      earlierBytes += bytes.byteLength;
      if (earlierBytes > REQUEST_BYTES_MAX) response.close();
      else earlier.push(Buffer.from(new Uint8Array(bytes)));
    });
  }

  #response(
    delivery: Delivery,
    bytes: Buffer,
    header: string,
    headers: Record<string, string> | undefined,
  ): void {
    const body = bytes.toString();
    if (this.#settings.record) this.stats.last = { headers: headers ?? {}, body };
    const request = readMockRequest(body);
    if (request === undefined) {
      delivery.send(
        plainResponse(MOCK_DEFAULTS, { status: 400 }, refusal('the body is not a JSON object')),
        0,
        0,
      );
      return;
    }
    const steering = header !== '' ? header : request.steering;
    let options = this.#settings.answers;
    try {
      if (steering !== undefined) options = steeredOptions(options, steering);
    } catch (error) {
      if (!(error instanceof MockOptionError)) throw error;
      delivery.send(plainResponse(MOCK_DEFAULTS, { status: 400 }, refusal(error.message)), 0, 0);
      return;
    }
    const answer =
      steering === undefined && !options.echo
        ? this.#encoded.to(request)
        : responseTo(
            options,
            request,
            options.echo ? JSON.stringify({ headers: headers ?? {}, body }) : undefined,
          );
    delivery.send(answer, options.firstByteMs, options.chunkMs);
  }
}

function json(response: HttpResponse, status: string, body: string): void {
  response.writeStatus(status).writeHeader('content-type', 'application/json').end(Buffer.from(body));
}

/**
 * Starts a mock in this thread. Resolves when it listens.
 * @throws Error if it cannot listen on the port
 */
export function started(settings: MockUpstreamOptions): Promise<MockUpstream> {
  const server = new MockServer(settings);
  const app = uws.App({});
  app.post('/v1/chat/completions', (response, request) => server.chat(response, request));
  app.get('/v1/models', (response) => json(response, '200 OK', MODELS));
  app.get('/mock/stats', (response) => json(response, '200 OK', JSON.stringify(server.stats)));
  app.post('/mock/reset-stats', (response) => {
    resetMockStats(server.stats);
    json(response, '200 OK', '{}');
  });
  app.any('/*', (response) => json(response, '404 Not Found', refusal('no such path on the mock')));
  return new Promise((resolve, reject) => {
    app.listen(settings.host, settings.port, (socket: us_listen_socket | false) => {
      if (socket === false) {
        reject(new Error(`cannot listen on ${settings.host}:${settings.port}`));
        return;
      }
      const port = uws.us_socket_local_port(socket);
      resolve({ port, stats: server.stats, close: () => app.close() });
    });
  });
}
