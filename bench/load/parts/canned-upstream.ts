/**
 * An upstream for the comparison of doors and protocols: one process and one thread that speaks all of the
 * named protocols, each on a port of its own. The first call of a form is answered as the mock answers it;
 * all that follow get the same bytes, and their bodies are not read. So each protocol's response takes the
 * same time to make, whatever the mock of the protocol checks and writes.
 *
 *     node canned-upstream.js '{"providers":["openai","anthropic"],"options":"bytes=240&chunks=20"}'
 *
 * parts.ts starts it with `--upstream canned`. What it prints when it listens: `{"ports":[…]}`.
 */
import uws from 'uWebSockets.js';
import type { HttpRequest, HttpResponse, us_listen_socket } from 'uWebSockets.js';
import type { ProviderName } from '#src/core/provider-names.js';
import { errorResponse, responseTo, type MockResponse } from '#src/mock/mock-completion.js';
import { createMockStats, Delivery } from '#src/mock/mock-delivery.js';
import { MOCK_PROTOCOLS } from '#src/mock/mock-upstream.js';
import { MOCK_DEFAULTS, optionsWithQuery } from '#src/mock/mock-options.js';
import type { MockCall } from '#src/mock/mock-protocol.js';

interface CannedOptions {
  readonly providers: readonly ProviderName[];
  /** Of the responses, as a query string. */
  readonly options: string;
}

const { providers, options } = JSON.parse(process.argv[2] ?? '') as CannedOptions;
const mockOptions = optionsWithQuery(MOCK_DEFAULTS, options);
const stats = createMockStats();

function headersOf(request: HttpRequest): Record<string, string> {
  const headers: Record<string, string> = {};
  request.forEach((name, value) => (headers[name] = value));
  return headers;
}

const STREAM = Buffer.from('"stream":true');

/** The responses of one protocol, by the calls' path and whether their bodies ask for a stream. */
class CannedProtocol {
  readonly #provider: ProviderName;
  readonly #responses = new Map<string, MockResponse>();

  constructor(provider: ProviderName) {
    this.#provider = provider;
  }

  answer(response: HttpResponse, request: HttpRequest): void {
    const delivery = new Delivery(response, stats);
    const path = request.getUrl();
    const query = request.getQuery() || '';
    // The first call has all that the mock wants to see.
    const headers = headersOf(request);
    const pieces: Buffer[] = [];
    response.onData((bytes, isLast) => {
      const last = Buffer.from(bytes);
      if (!isLast) {
        pieces.push(Buffer.from(last));
        return;
      }
      const body = pieces.length === 0 ? last : Buffer.concat([...pieces, last]);
      const form = body.includes(STREAM) ? `${path} stream` : path;
      const canned =
        this.#responses.get(form) ?? this.#first(form, { path, query, headers, body: body.toString() });
      delivery.send(canned, 0, 0);
    });
  }

  #first(form: string, call: MockCall): MockResponse {
    const protocol = MOCK_PROTOCOLS[this.#provider];
    const request = protocol.read(call);
    if ('error' in request) return errorResponse(MOCK_DEFAULTS, request);
    const made = responseTo(mockOptions, request, undefined, protocol);
    this.#responses.set(form, made);
    return made;
  }
}

function listen(provider: ProviderName): Promise<number> {
  const canned = new CannedProtocol(provider);
  const app = uws.App({});
  app.post('/*', (response, request) => canned.answer(response, request));
  return new Promise((resolve, reject) => {
    app.listen('127.0.0.1', 0, (socket: us_listen_socket | false) => {
      if (socket === false) reject(new Error('cannot listen'));
      else resolve(uws.us_socket_local_port(socket));
    });
  });
}

const ports = await Promise.all(providers.map(listen));
process.stdout.write(`${JSON.stringify({ ports })}\n`);
