/**
 * The mock upstream: a server with scripted responses in the protocol of a provider, for trials (`tollgate
 * mock-upstream`), tests and benches. One thread.
 *
 *     POST /v1/chat/completions   responds as the options say, or for one call as its directives say: options
 *                                 written as a query string (mock-options.ts), in a header `x-mock` or after
 *                                 `x-mock:` in the last user message; with `--provider`, the paths are the
 *                                 provider's
 *     POST /v1/embeddings, /v1/completions, /v1/moderations, /v1/rerank
 *                                 the same (mock-openai-doors.ts)
 *     POST /v1/responses          the same, in the form of the Responses API (mock-responses.ts)
 *     GET  /v1/models             one model
 *     GET  /mock/stats            MockStats as JSON
 *     POST /mock/reset-stats
 *
 * Must hold: µWS keeps a request valid in its first callback only, so all of it is read there.
 */
import uws, { type HttpRequest, type HttpResponse, type us_listen_socket } from 'uWebSockets.js';
import type { ProviderName } from '../core/provider-names.js';
import { ANTHROPIC_MOCK } from './mock-anthropic.js';
import { AZURE_MOCK } from './mock-azure.js';
import { BEDROCK_MOCK } from './mock-bedrock.js';
import { errorResponse, type MockResponse, responseTo } from './mock-completion.js';
import { createMockStats, Delivery, type MockStats, resetMockStats } from './mock-delivery.js';
import { GEMINI_MOCK } from './mock-gemini.js';
import { OPENAI_DOOR_PATHS } from './mock-openai-doors.js';
import { errorText, OPENAI_MOCK } from './mock-openai.js';
import { MOCK_DEFAULTS, MockOptionError, type MockOptions, optionsWithQuery } from './mock-options.js';
import { CREATED_SECONDS, type MockCall, type MockProtocol, type MockRequest } from './mock-protocol.js';
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

interface MockUpstreamOptions {
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
  readonly stats: Readonly<MockStats>;
  /** Closes the listen socket and every connection. */
  close(): void;
}

const RESPONSES_PATH = '/v1/responses';
/** Above what any gateway lets through. The mock buffers each request until it is whole. */
const REQUEST_BYTES_MAX = 64 * 1024 * 1024;
/** How many encoded responses are kept; a bench needs one. At this number all are dropped. */
const ENCODED_MAX = 256;

const MODELS = JSON.stringify({
  object: 'list',
  data: [{ id: 'mock-model', object: 'model', created: CREATED_SECONDS, owned_by: 'mock' }],
});

const NO_SUCH_PATH = errorText('no such path on the mock', 'mock');

function headersOf(request: HttpRequest): Record<string, string> {
  const headers: Record<string, string> = {};
  request.forEach((name, value) => (headers[name] = value));
  return headers;
}

/** Members of a request that decide on no kept response: those of tools, and directives. */
type MemberWithoutEffect = 'toolNames' | 'forbidsTools' | 'endsWithToolResult' | 'callsBefore' | 'directives';
/** What decides on a kept response. A new member of MockRequest does not compile until it is in this key. */
type ResponseKey = Readonly<Record<keyof Omit<MockRequest, MemberWithoutEffect>, unknown>>;

/**
 * Responses to requests without directives, each encoded once, so that the mock costs a bench little. Those
 * that call tools are not kept, because the names of tools come from the request.
 */
class EncodedResponses {
  readonly #options: MockOptions;
  readonly #protocol: MockProtocol;
  readonly #responses = new Map<string, MockResponse>();

  constructor(options: MockOptions, protocol: MockProtocol) {
    this.#options = options;
    this.#protocol = protocol;
  }

  responseFor(request: MockRequest): MockResponse {
    if (this.#options.toolCalls > 0) return responseTo(this.#options, request, undefined, this.#protocol);
    const { door, isCount, isHostedClaude, stream, includeUsage, promptTokens, model } = request;
    // At OPENAI_DOOR_PATHS the response depends on the whole body.
    const body = door === undefined ? '' : `${door.kind} ${JSON.stringify(door.body)}`;
    const members: ResponseKey = {
      isCount,
      isHostedClaude,
      stream,
      includeUsage,
      promptTokens,
      model,
      door: body,
    };
    const key = Object.values(members).join(' ');
    const earlier = this.#responses.get(key);
    if (earlier !== undefined) return earlier;
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
  /** µWS's patterns of the paths to which calls are POSTed. */
  readonly paths: readonly string[];
  /** Encoded responses of the provider's protocol, and of the Responses API. */
  readonly #encoded: EncodedResponses;
  readonly #encodedResponsesApi: EncodedResponses;

  constructor(settings: MockUpstreamOptions) {
    const { provider = 'openai', defaults } = settings;
    this.#settings = settings;
    this.#protocol = MOCK_PROTOCOLS[provider];
    this.#isOpenAi = provider === 'openai';
    this.paths = this.#isOpenAi ? ['/v1/chat/completions', RESPONSES_PATH, ...OPENAI_DOOR_PATHS] : ['/*'];
    this.#encoded = new EncodedResponses(defaults, this.#protocol);
    this.#encodedResponsesApi = new EncodedResponses(defaults, RESPONSES_MOCK);
  }

  receive(response: HttpResponse, request: HttpRequest): void {
    const delivery = new Delivery(response, this.stats);
    const directives = request.getHeader('x-mock');
    // Headers are read only if they may be needed, because reading them costs a bench some µs. A prompt that
    // asks for an echo is read later: its echo has the headers only if they were read for another reason.
    const { record, defaults } = this.#settings;
    const needsHeaders = record || defaults.echo || directives !== '' || !this.#isOpenAi;
    const headers = needsHeaders ? headersOf(request) : {};
    // Without `?` µWS gives undefined, whatever its types say.
    const [path, query] = [request.getUrl(), request.getQuery() || ''];
    const earlierChunks: Buffer[] = [];
    let earlierBytes = 0;
    response.onData((bytes, isLast) => {
      if (delivery.isOver) return;
      if (isLast) {
        const lastChunk = Buffer.from(bytes);
        const whole = earlierBytes === 0 ? lastChunk : Buffer.concat([...earlierChunks, lastChunk]);
        const body = whole.toString();
        this.#respond(delivery, { path, query, headers, body }, directives);
        return;
      }
      earlierBytes += bytes.byteLength;
      if (earlierBytes > REQUEST_BYTES_MAX) delivery.cut();
      // Copied, because µWS keeps `bytes` valid in this callback only.
      else earlierChunks.push(Buffer.from(new Uint8Array(bytes)));
    });
  }

  /** `directivesHeader`: the value of `x-mock`, empty if there is none. */
  #respond(delivery: Delivery, call: MockCall, directivesHeader: string): void {
    const { headers, body } = call;
    const { record, defaults } = this.#settings;
    if (record) this.stats.last = { headers, body };
    const isResponsesApi = this.#isOpenAi && call.path === RESPONSES_PATH;
    const protocol = isResponsesApi ? RESPONSES_MOCK : this.#protocol;
    const request = protocol.read(call);
    if ('error' in request) {
      // An error about the request itself comes without pauses, whatever the options say.
      delivery.send(errorResponse(MOCK_DEFAULTS, request), 0, 0);
      return;
    }
    const directives = directivesHeader !== '' ? directivesHeader : request.directives;
    let options = defaults;
    try {
      if (directives !== undefined) options = optionsWithQuery(options, directives);
    } catch (error) {
      if (!(error instanceof MockOptionError)) throw error;
      delivery.send(errorResponse(MOCK_DEFAULTS, protocol.error(400, error.message)), 0, 0);
      return;
    }
    const echoed = options.echo ? JSON.stringify({ headers, body }) : undefined;
    const response =
      directives === undefined && echoed === undefined
        ? (isResponsesApi ? this.#encodedResponsesApi : this.#encoded).responseFor(request)
        : responseTo(options, request, echoed, protocol);
    delivery.send(response, options.firstByteMs, options.chunkMs);
  }
}

function sendJson(response: HttpResponse, status: string, body: string): void {
  response.writeStatus(status).writeHeader('content-type', 'application/json').end(Buffer.from(body));
}

/** LIBUS_LISTEN_EXCLUSIVE_PORT. Without it the kernel spreads the calls over all mocks on one port. */
const EXCLUSIVE_PORT = 1;

/** A form of `listen` that µWS has, and its declarations lack. */
interface ListensWithOptions {
  listen(host: string, port: number, options: number, then: (socket: us_listen_socket | false) => void): void;
}

/** The mock cannot listen. Because the error has a `code`, the command prints its message and no stack. */
class MockListenError extends Error {
  readonly code = 'not_listening';

  constructor({ host, port }: MockUpstreamOptions) {
    const address = host.includes(':') ? `[${host}]` : host;
    super(
      `cannot listen on ${address}:${port}: the address is not of this machine, or another program has the port`,
    );
  }
}

/** Starts a mock in this thread. Resolves when it listens. @throws MockListenError if it cannot */
export function startMockUpstream(settings: MockUpstreamOptions): Promise<MockUpstream> {
  const server = new MockServer(settings);
  const app = uws.App({});
  app.get('/v1/models', (response) => sendJson(response, '200 OK', MODELS));
  app.get('/mock/stats', (response) => sendJson(response, '200 OK', JSON.stringify(server.stats)));
  app.post('/mock/reset-stats', (response) => {
    resetMockStats(server.stats);
    sendJson(response, '200 OK', '{}');
  });
  for (const path of server.paths) app.post(path, (response, request) => server.receive(response, request));
  app.any('/*', (response) => sendJson(response, '404 Not Found', NO_SUCH_PATH));
  return new Promise((resolve, reject) => {
    (app as unknown as ListensWithOptions).listen(settings.host, settings.port, EXCLUSIVE_PORT, (socket) => {
      if (socket === false) {
        reject(new MockListenError(settings));
        return;
      }
      const port = uws.us_socket_local_port(socket);
      resolve({ port, stats: server.stats, close: () => app.close() });
    });
  });
}
