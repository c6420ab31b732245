/**
 * A plain HTTP client for tests, over node:http: one request, one whole response, nothing retried.
 */
import { Agent, request as httpRequest, type IncomingHttpHeaders } from 'node:http';

export interface RequestOptions {
  readonly port: number;
  readonly method?: string | undefined;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** A string or bytes are sent as they are, anything else as JSON. */
  readonly body?: unknown;
  readonly agent?: Agent | undefined;
  readonly timeoutMs?: number | undefined;
  readonly localAddress?: string | undefined;
  /** Called with the first bytes of the response's body. */
  readonly onBegun?: (() => void) | undefined;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  json(): unknown;
}

const TIMEOUT_MS = 120_000;

/**
 * Connections are closed after each response unless an agent is given, so that no test leans on another's.
 */
export function request(options: RequestOptions): Promise<Answer> {
  const { body } = options;
  const bytes =
    body === undefined || typeof body === 'string' || body instanceof Uint8Array
      ? body
      : JSON.stringify(body);
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest(
      {
        host: '127.0.0.1',
        port: options.port,
        method: options.method ?? (bytes === undefined ? 'GET' : 'POST'),
        path: options.path,
        agent: options.agent ?? false,
        localAddress: options.localAddress,
        headers: {
          ...(bytes === undefined
            ? {}
            : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(bytes) }),
          ...options.headers,
        },
      },
      (incoming) => {
        const parts: Buffer[] = [];
        if (options.onBegun !== undefined) incoming.once('data', options.onBegun);
        incoming.on('data', (part: Buffer) => parts.push(part));
        incoming.once('error', reject);
        incoming.once('end', () => {
          const text = Buffer.concat(parts).toString();
          resolve({
            status: incoming.statusCode ?? 0,
            headers: incoming.headers,
            body: text,
            json: () => JSON.parse(text) as unknown,
          });
        });
      },
    );
    const timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
    outgoing.setTimeout(timeoutMs, () => outgoing.destroy(new Error(`no answer within ${timeoutMs} ms`)));
    outgoing.once('error', reject);
    outgoing.end(bytes);
  });
}

/** An agent that keeps at most `connections` open. Destroy it. */
export const keepAliveAgent = (connections: number): Agent =>
  new Agent({ keepAlive: true, maxSockets: connections, maxFreeSockets: connections });
