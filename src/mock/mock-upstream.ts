/**
 * The mock upstream: a server with scripted responses in the protocol of a provider, for trials (`tollgate
 * mock-upstream`), tests and benches. One thread.
 *
 *     POST /v1/chat/completions   answers as the options say, or for one call as its steering says: options
 *                                 written as a query string (mock-options.ts), in a header `x-mock` or after
 *                                 `x-mock:` in the last user message; with `--provider`, the paths are the
 *                                 provider's
 *     POST /v1/embeddings, /v1/completions, /v1/moderations, /v1/rerank
 *                                 likewise (mock-openai-doors.ts)
 *     POST /v1/responses          likewise, in the form of the Responses API
 *     GET  /v1/models             one model
 *     GET  /mock/stats            MockStats as JSON
 *     POST /mock/reset-stats
 *
 * Must hold: the cache key of an encoded response has every member of MockRequest that the response depends
 * on, or a test gets the response to another request. No test checks it.
 */
import uws from 'uWebSockets.js';
import type { HttpRequest, HttpResponse, us_listen_socket } from 'uWebSockets.js';
import type { ProviderName } from '../core/provider-names.js';
import { ANTHROPIC_MOCK } from './mock-anthropic.js';
import { BEDROCK_MOCK } from './mock-bedrock.js';
import { errorResponse, type Response, responseTo } from './mock-completion.js';
import { createMockStats, Delivery, type MockStats, resetMockStats } from './mock-delivery.js';
import { GEMINI_MOCK } from './mock-gemini.js';
import { OPENAI_DOOR_PATHS } from './mock-openai-doors.js';
import { AZURE_MOCK, OPENAI_MOCK } from './mock-openai.js';
import { MOCK_DEFAULTS, MockOptionError, type MockOptions, optionsWithQuery } from './mock-options.js';
import type { MockCall, MockProtocol, MockRequest } from './mock-protocol.js';
import { RESPONSES_MOCK } from './mock-responses.js';
import { VERTEX_MOCK } from './mock-vertex.js';

/** By the names of `mock-upstream --provider`. */
export const MOCK_PROTOCOLS: Readonly<Record<ProviderName, MockProtocol>> = {
  openai: OPENAI_MOCK,
  azure: AZURE_MOCK,
  anthropic: ANTHROPIC_MOCK,
  gemini: GEMINI_MOCK,
  vertex: VERTEX_MOCK,
  bedrock: BEDROCK_MOCK,
};

export interface MockUpstreamOptions {
  readonly host: string;
  /** 0 means any free port. */
  readonly port: number;
  /** Whether to keep the last request's headers and body for /mock/stats; costs some µs a request. */
  readonly record: boolean;
  /** `openai` if undefined. */
  readonly provider?: ProviderName | undefined;
  readonly defaults: MockOptions;
}

export interface MockUpstream {
  readonly port: number;
  /** The live counters. */
  readonly stats: Readonly<MockStats>;
  /** Closes the listen socket and every connection. */
  close(): void;
}

const RESPONSES_PATH = '/v1/responses';
/** Above what any gateway lets through. Requests are held whole. */
const REQUEST_BYTES_MAX = 64 * 1024 * 1024;
/** Encoded responses that are kept, one for each key; a bench has one. When there are so many, all go. */
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

/** Responses to requests without steering, encoded once, unless they call tools, which are the request's. */
class EncodedResponses {
  readonly #options: MockOptions;
  readonly #protocol: MockProtocol;
  readonly #responses = new Map<string, Response>();

  constructor(options: MockOptions, protocol: MockProtocol) {
    this.#options = options;
    this.#protocol = protocol;
  }

  to(request: MockRequest): Response {
    if (this.#options.toolCalls > 0) return responseTo(this.#options, request, undefined, this.#protocol);
    const { door } = request;
    const key =
      door === undefined
        ? `${request.isCount ?? false} ${request.isNative ?? false} ${request.stream} ${request.includeUsage} ${request.promptTokens} ${request.model}`
        : `${door.kind} ${JSON.stringify(door.body)}`;
    const known = this.#responses.get(key);
    if (known !== undefined) return known;
    if (this.#responses.size === ENCODED_MAX) this.#responses.clear();
    const encoded = responseTo(this.#options, request, undefined, this.#protocol);
    this.#responses.set(key, encoded);
    return encoded;
  }
}

class MockServer {
  readonly stats = createMockStats();
  readonly #settings: MockUpstreamOptions;
  readonly #protocol: MockProtocol;
  readonly #isOpenAi: boolean;
  readonly #encoded: EncodedResponses;
  readonly #responses: EncodedResponses;

  constructor(settings: MockUpstreamOptions) {
    const { provider = 'openai', defaults } = settings;
    this.#settings = settings;
    this.#protocol = MOCK_PROTOCOLS[provider];
    this.#isOpenAi = provider === 'openai';
    this.#encoded = new EncodedResponses(defaults, this.#protocol);
    this.#responses = new EncodedResponses(defaults, RESPONSES_MOCK);
  }

  /** Reads all it needs of the request, which µWS keeps valid in this callback only. */
  chat(response: HttpResponse, request: HttpRequest): void {
    const delivery = new Delivery(response, this.stats);
    const steering = request.getHeader('x-mock');
    // A prompt may ask for an echo after the headers are gone: then they are in it only if they were
    // recorded.
    const { record, defaults } = this.#settings;
    const isWanted = record || defaults.echo || steering !== '' || !this.#isOpenAi;
    const headers = isWanted ? headersOf(request) : {};
    // Without `?` µWS gives undefined, whatever its types say.
    const [path, query] = [request.getUrl(), request.getQuery() || ''];
    const earlier: Buffer[] = [];
    let earlierBytes = 0;
    response.onData((bytes, isLast) => {
      if (delivery.over) return;
      if (isLast) {
        const last = Buffer.from(bytes);
        const body = (earlierBytes === 0 ? last : Buffer.concat([...earlier, last])).toString();
        this.#respond(delivery, { path, query, headers, body }, steering);
        return;
      }
      earlierBytes += bytes.byteLength;
      if (earlierBytes > REQUEST_BYTES_MAX) response.close();
      else earlier.push(Buffer.from(new Uint8Array(bytes)));
    });
  }

  #respond(delivery: Delivery, call: MockCall, header: string): void {
    const { headers, body } = call;
    const { record, defaults } = this.#settings;
    if (record) this.stats.last = { headers, body };
    const isResponses = this.#isOpenAi && call.path === RESPONSES_PATH;
    const protocol = isResponses ? RESPONSES_MOCK : this.#protocol;
    const request = protocol.read(call);
    if ('error' in request) {
      delivery.send(errorResponse(MOCK_DEFAULTS, request), 0, 0);
      return;
    }
    const steering = header !== '' ? header : request.steering;
    let options = defaults;
    try {
      if (steering !== undefined) options = optionsWithQuery(options, steering);
    } catch (error) {
      if (!(error instanceof MockOptionError)) throw error;
      delivery.send(errorResponse(MOCK_DEFAULTS, protocol.error(400, error.message)), 0, 0);
      return;
    }
    const completion =
      steering === undefined && !options.echo
        ? (isResponses ? this.#responses : this.#encoded).to(request)
        : responseTo(
            options,
            request,
            options.echo ? JSON.stringify({ headers, body }) : undefined,
            protocol,
          );
    delivery.send(completion, options.firstByteMs, options.chunkMs);
  }
}

function json(response: HttpResponse, status: string, body: string): void {
  response.writeStatus(status).writeHeader('content-type', 'application/json').end(Buffer.from(body));
}

/**
 * Starts a mock in this thread. Resolves when it listens.
 * @throws Error if it cannot listen on the port
 */
export function startMockUpstream(settings: MockUpstreamOptions): Promise<MockUpstream> {
  const server = new MockServer(settings);
  const app = uws.App({});
  app.get('/v1/models', (response) => json(response, '200 OK', MODELS));
  app.get('/mock/stats', (response) => json(response, '200 OK', JSON.stringify(server.stats)));
  app.post('/mock/reset-stats', (response) => {
    resetMockStats(server.stats);
    json(response, '200 OK', '{}');
  });
  const isOpenAi = (settings.provider ?? 'openai') === 'openai';
  for (const path of isOpenAi ? ['/v1/chat/completions', RESPONSES_PATH, ...OPENAI_DOOR_PATHS] : ['/*'])
    app.post(path, (response, request) => server.chat(response, request));
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
