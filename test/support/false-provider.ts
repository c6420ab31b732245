/**
 * A provider for tests that answers what it is told to, on loopback: its document, its keys, its tokens. Of
 * itself it answers as a sound one does.
 */
import { createHmac, createSign, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Scope } from './mock.js';

const sound = generateKeyPairSync('rsa', { modulusLength: 2048 });
const strange = generateKeyPairSync('rsa', { modulusLength: 2048 });

export type Path = '/.well-known/openid-configuration' | '/keys' | '/token' | '/userinfo';
export type Respond = (response: ServerResponse) => void;

export class FalseProvider {
  readonly issuer: string;
  /** Members over those of a sound document, and of a sound token. */
  document: object = {};
  claims: object = {};
  /** `alg` of the token. */
  alg: 'RS256' | 'HS256' | 'none' | 'strange' = 'RS256';
  /** Instead of the answer to a path. */
  readonly instead = new Map<string, Respond>();
  /** Paths that were asked for. */
  readonly asked: string[] = [];
  /** Of the authorization request. */
  nonce = '';

  constructor(issuer: string) {
    this.issuer = issuer;
  }

  serve(request: IncomingMessage, response: ServerResponse): void {
    const path = request.url ?? '';
    this.asked.push(path);
    const respond = this.instead.get(path);
    if (respond !== undefined) {
      respond(response);
      return;
    }
    const answer = this.#answerTo(path);
    response.writeHead(answer === undefined ? 404 : 200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(answer ?? {}));
  }

  #answerTo(path: string): object | undefined {
    const { issuer } = this;
    switch (path) {
      case '/.well-known/openid-configuration':
        return {
          issuer,
          authorization_endpoint: `${issuer}/auth`,
          token_endpoint: `${issuer}/token`,
          jwks_uri: `${issuer}/keys`,
          response_types_supported: ['code'],
          subject_types_supported: ['public'],
          id_token_signing_alg_values_supported: ['RS256'],
          authorization_response_iss_parameter_supported: true,
          ...this.document,
        };
      case '/keys':
        return { keys: [{ ...sound.publicKey.export({ format: 'jwk' }), kid: 'first', use: 'sig' }] };
      case '/token':
        return { access_token: 'an-access-token', token_type: 'Bearer', id_token: this.token() };
      default:
        return undefined;
    }
  }

  token(): string {
    const seconds = Math.floor(performance.timeOrigin / 1_000 + performance.now() / 1_000);
    const claims = {
      iss: this.issuer,
      aud: 'tollgate',
      sub: 'ann',
      iat: seconds,
      exp: seconds + 300,
      nonce: this.nonce,
      groups: ['admins'],
      email: 'ann@example.com',
      ...this.claims,
    };
    const alg = this.alg === 'strange' ? 'RS256' : this.alg;
    const signed = [{ alg, typ: 'JWT', kid: 'first' }, claims]
      .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
      .join('.');
    return `${signed}.${this.#signatureOf(signed)}`;
  }

  #signatureOf(text: string): string {
    const rsa = (key: KeyObject): string => createSign('sha256').update(text).sign(key, 'base64url');
    switch (this.alg) {
      case 'RS256':
        return rsa(sound.privateKey);
      case 'strange':
        return rsa(strange.privateKey);
      case 'HS256': {
        // The old trick: the public key, which everybody has, as the secret of a symmetric signature.
        const secret = sound.publicKey.export({ format: 'pem', type: 'spki' });
        return createHmac('sha256', secret).update(text).digest('base64url');
      }
      case 'none':
        return '';
    }
  }
}

export async function startFalseProvider(t: Scope): Promise<FalseProvider> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const provider = new FalseProvider(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  server.on('request', (request, response) => provider.serve(request, response));
  return provider;
}

/** Answers with `text`, as JSON unless another type is given. */
export const answering =
  (status: number, text: string, headers: Readonly<Record<string, string>> = {}): Respond =>
  (response) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(text);
  };

/** Never ends, and sends `chunk` as long as it is taken. */
export const flooding =
  (chunk: Buffer): Respond =>
  (response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    const more = (): void => {
      while (!response.destroyed && response.write(chunk));
    };
    response.on('drain', more);
    more();
  };

/** Sends the head and then nothing; or nothing at all. */
export const hanging =
  (head: boolean): Respond =>
  (response) => {
    if (!head) return;
    response.writeHead(200, { 'content-type': 'application/json' });
    response.write('{');
  };
