/**
 * A token server that does what a test says: Google's, Entra's, or the endpoint of AWS's containers. It can
 * be slow, fail, lie about the expiry, hang or reset.
 */
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Scope } from './mock.js';

export interface TokenRequest {
  readonly method: string;
  /** With the query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export interface TokenReply {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Text as it is; anything else as JSON. */
  readonly body?: unknown;
  readonly delayMs?: number;
}

/** `number` counts from 1. */
export type TokenScript = (
  request: TokenRequest,
  number: number,
) => TokenReply | 'hang' | 'reset' | Promise<TokenReply>;

export class TokenServer {
  readonly requests: TokenRequest[] = [];
  script: TokenScript;
  readonly #server: Server;

  constructor(server: Server, script: TokenScript) {
    this.#server = server;
    this.script = script;
    server.on('request', (request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const { method = '', url: path = '', headers } = request;
        const seen = { method, path, headers, body: Buffer.concat(chunks).toString() };
        this.requests.push(seen);
        void (async () => {
          const reply = await this.script(seen, this.requests.length);
          if (reply === 'hang') return;
          if (reply === 'reset') {
            request.socket.resetAndDestroy();
            return;
          }
          const { status = 200, headers: replied = {}, body = '', delayMs = 0 } = reply;
          await sleep(delayMs);
          response.writeHead(status, { 'content-type': 'application/json', ...replied });
          response.end(typeof body === 'string' ? body : JSON.stringify(body));
        })();
      });
    });
  }

  /** `http://127.0.0.1:port`. */
  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }
}

export async function startTokenServer(t: Scope, script: TokenScript): Promise<TokenServer> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return new TokenServer(server, script);
}

/** Replies with `token-1`, `token-2`, … in the form of Google and Entra. */
export const countedTokens =
  (lifeSeconds: number, prefix = 'ya29.secret-token'): TokenScript =>
  (_, number) => ({
    body: { access_token: `${prefix}-${number}`, expires_in: lifeSeconds, token_type: 'Bearer' },
  });

/** In the form of AWS's container endpoint. */
export const countedKeys =
  (lifeSeconds: number): TokenScript =>
  (_, number) => ({
    body: {
      AccessKeyId: `AKIDEXAMPLE${number}`,
      SecretAccessKey: `wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLE${number}`,
      Token: `FwoGZXIvYXdzEBYaDsession${number}`,
      Expiration: new Date(Date.now() + lifeSeconds * 1_000).toISOString().replace(/\.\d+Z$/, 'Z'),
    },
  });

const { privateKey, publicKey } = generateKeyPairSync('rsa', {
  modulusLength: 2048,
  publicKeyEncoding: { type: 'spki', format: 'pem' },
  privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
});
export const SERVICE_ACCOUNT_KEYS = { privateKey, publicKey };

/** Writes the file of a service account whose tokens come from that server. Returns its path. */
export function writeServiceAccount(folder: string, tokenUri: string, changes: object = {}): string {
  const path = join(folder, 'service-account.json');
  const account = {
    type: 'service_account',
    project_id: 'acme-models',
    private_key_id: '0123456789abcdef',
    private_key: privateKey,
    client_email: 'tollgate@acme-models.iam.gserviceaccount.com',
    client_id: '100000000000000000001',
    token_uri: tokenUri,
  };
  writeFileSync(path, JSON.stringify({ ...account, ...changes }), { mode: 0o600 });
  return path;
}
