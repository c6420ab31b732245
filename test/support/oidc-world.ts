/**
 * A real OpenID Connect provider for tests, on loopback, and somebody who signs in there. Every name is let
 * in with any password.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { generateKeyPairSync } from 'node:crypto';
import Provider from 'oidc-provider';
import type { Scope } from './mock.js';
import type { Visit, Visitor } from './visitor.js';

export const CLIENT_ID = 'tollgate';
export const CLIENT_SECRET = 'secret+with/signs:100%25=&~!';

/** What the settings of a gateway say of that provider, for the group `tollgate-admins`. */
export function oidcSettings(issuer: string, redirectUrl: string) {
  return {
    issuer,
    client_id: CLIENT_ID,
    client_secret: '${OIDC_SECRET}',
    redirect_url: redirectUrl,
    roles: { 'tollgate-admins': 'admin' },
  };
}

/** The environment that those settings want. */
export const OIDC_ENV = { OIDC_SECRET: CLIENT_SECRET };

/** Claims by name of the person. */
export type People = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

export interface ProviderOptions {
  readonly people: People;
  readonly redirectUrls: readonly string[];
  /** More of the client, such as that it has no secret. */
  readonly client?: object;
  /** Whether claims are in userinfo alone, as the specification has it. */
  readonly conform?: boolean;
}

/** Resolves with the issuer's address. */
export async function startProvider(t: Scope, options: ProviderOptions): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const issuer = `http://localhost:${(server.address() as AddressInfo).port}`;
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const claimNames = [...new Set(Object.values(options.people).flatMap((claims) => Object.keys(claims)))];
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: CLIENT_ID,
        client_secret: CLIENT_SECRET,
        redirect_uris: options.redirectUrls,
        post_logout_redirect_uris: options.redirectUrls.map((url) => new URL('/', url).href),
        response_types: ['code'],
        grant_types: ['authorization_code'],
        ...options.client,
      },
    ],
    claims: { openid: ['sub'], profile: claimNames },
    conformIdTokenClaims: options.conform ?? false,
    cookies: { keys: ['a key of the test'] },
    jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), kid: 'first', use: 'sig', alg: 'RS256' }] },
    features: { devInteractions: { enabled: true } },
    findAccount: (_context: unknown, sub: string) => ({
      accountId: sub,
      claims: () => Promise.resolve({ sub, ...options.people[sub] }),
    }),
  });
  server.on('request', provider.callback());
  return issuer;
}

/**
 * Signs out at the provider, at the address that the console got, and says yes if it asks. Stops at the
 * answer that sends the browser elsewhere, and returns where to.
 */
export async function signOutAt(visitor: Visitor, url: string): Promise<URL> {
  const asked = await visitor.ask(url);
  const action = /<form[^>]* action="([^"]+)"/.exec(asked.body)?.[1];
  const xsrf = /name="xsrf" value="([^"]+)"/.exec(asked.body)?.[1];
  if (action === undefined || xsrf === undefined) throw new Error(`no form: ${asked.status} ${asked.body}`);
  const done = await visitor.ask(new URL(action, asked.url), { xsrf, logout: 'yes' });
  return new URL(done.headers.location!, done.url);
}

/**
 * Signs in as `name` from where the gateway begins, and agrees to what the provider asks. Stops at the answer
 * that sends the browser back to the gateway.
 */
export async function signInAt(
  visitor: Visitor,
  start: string,
  name: string,
  callbackPath = '/admin/session/oidc/callback',
): Promise<URL> {
  const back = (next: URL): boolean => next.pathname === callbackPath;
  let visit: Visit = await visitor.follow(await visitor.ask(start), back);
  for (const form of [{ prompt: 'login', login: name, password: 'any' }, { prompt: 'consent' }]) {
    if (visit.headers.location !== undefined) break;
    const action = /<form[^>]* action="([^"]+)"/.exec(visit.body)?.[1];
    if (action === undefined) throw new Error(`no form: ${visit.status} ${visit.body}`);
    visit = await visitor.follow(await visitor.ask(new URL(action, visit.url), form), back);
  }
  return new URL(visit.headers.location!, visit.url);
}
