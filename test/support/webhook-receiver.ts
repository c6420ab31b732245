/** A receiver of webhooks: keeps what comes, and answers as the test says. */
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Scope } from './mock.js';

export interface Received {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export interface Reply {
  /** Undefined: none ever comes. */
  readonly status: number | undefined;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface WebhookReceiver {
  readonly url: string;
  readonly received: Received[];
  /** How the next requests are answered; 204 after the last. */
  readonly replies: Reply[];
}

/** `whsec_` and 24 bytes. */
export const WEBHOOK_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

export async function startReceiver(t: Scope): Promise<WebhookReceiver> {
  const received: Received[] = [];
  const replies: Reply[] = [];
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      received.push({
        path: request.url!,
        headers: request.headers,
        body: Buffer.concat(parts).toString(),
      });
      const { status, headers } = replies.shift() ?? { status: 204 };
      if (status !== undefined) response.writeHead(status, headers).end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/hook`, received, replies };
}
