/** Each source against a server that speaks its protocol: what it asks, what it makes of the reply. */
import { X509Certificate, constants, createHash, verify } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import t from 'tap';
import { openSource } from '#src/providers/credentials/source-loader.js';
import {
  CredentialError,
  credentialErrorOf,
  credentialWithin,
  withoutTokens,
  type IssuedCredential,
} from '#src/providers/credentials/credential-source.js';
import type { CredentialSpec } from '#src/providers/credentials/credential-spec.js';
import { selfSigned } from '../../../fixtures/upstream-certificate.js';
import { eventually, temporaryFolder } from '../../../support/gateway.js';
import {
  countedKeys,
  countedTokens,
  SERVICE_ACCOUNT_KEYS,
  startTokenServer,
  writeServiceAccount,
} from '../../../support/token-server.js';

const ENTRA: CredentialSpec = { kind: 'entra' };
const HOUR_MS = 3_600_000;
const signal = new AbortController().signal;

/** The packages read the process's own environment. */
const OURS = /^(AWS_|GOOGLE_|GCE_|GCLOUD_|AZURE_|IDENTITY_|METADATA_|CLOUDSDK_|HOME$|PATH$)/;
async function get(spec: CredentialSpec, env: NodeJS.ProcessEnv): Promise<IssuedCredential> {
  const before = process.env;
  process.env = Object.fromEntries(Object.entries(before).filter(([name]) => !OURS.test(name)));
  Object.assign(process.env, env);
  try {
    return await (
      await openSource(spec, process.env)
    )(signal);
  } finally {
    process.env = before;
  }
}

async function errorOf(promise: Promise<unknown>): Promise<CredentialError> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof CredentialError) return error;
    throw error;
  }
  throw new Error('it did not fail');
}

const isNear = (ms: number | undefined, wantedMs: number): boolean =>
  ms !== undefined && Math.abs(ms - wantedMs) < 30_000;

const partsOf = (jwt: string): Record<string, unknown>[] =>
  jwt
    .split('.')
    .slice(0, 2)
    .map((part) => JSON.parse(Buffer.from(part, 'base64url').toString()) as Record<string, unknown>);

void t.test('a service account of Google signs for its token', async (t) => {
  const server = await startTokenServer(t, countedTokens(3_600));
  const file = writeServiceAccount(temporaryFolder(t), `${server.url}/token`);
  const { credential, expiresMs } = await get({ kind: 'google', file }, {});
  t.same(credential, { kind: 'bearer', token: 'ya29.secret-token-1' });
  t.ok(isNear(expiresMs, Date.now() + HOUR_MS));
  const assertion = new URLSearchParams(server.requests[0]!.body).get('assertion')!;
  const [, claims] = partsOf(assertion);
  t.match(claims, {
    iss: 'tollgate@acme-models.iam.gserviceaccount.com',
    scope: 'https://www.googleapis.com/auth/cloud-platform',
  });
  const [text, signature] = [assertion.replace(/\.[^.]*$/, ''), assertion.split('.')[2]!];
  t.ok(
    verify('sha256', Buffer.from(text), SERVICE_ACCOUNT_KEYS.publicKey, Buffer.from(signature, 'base64url')),
  );
  const again = await get({ kind: 'google', file: undefined }, { GOOGLE_APPLICATION_CREDENTIALS: file });
  t.same(again.credential, { kind: 'bearer', token: 'ya29.secret-token-2' }, 'and by the environment');
});

void t.test('a workload identity of Google exchanges the token of its file', async (t) => {
  const server = await startTokenServer(t, countedTokens(1_800));
  const folder = temporaryFolder(t);
  const subject = join(folder, 'subject-token');
  writeFileSync(subject, 'token-of-the-cluster');
  const file = join(folder, 'workload.json');
  writeFileSync(
    file,
    JSON.stringify({
      type: 'external_account',
      audience: '//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q',
      subject_token_type: 'urn:ietf:params:oauth:token-type:jwt',
      token_url: `${server.url}/v1/token`,
      credential_source: { file: subject },
    }),
  );
  const { credential, expiresMs } = await get({ kind: 'google', file }, {});
  t.same(credential, { kind: 'bearer', token: 'ya29.secret-token-1' });
  t.ok(isNear(expiresMs, Date.now() + HOUR_MS / 2));
  t.match(server.requests[0]!.body, 'token-of-the-cluster');
});

void t.test('the metadata server of Google has the token of the machine', async (t) => {
  const server = await startTokenServer(t, (_, number) => ({
    body: { access_token: `ya29.secret-token-${number}`, expires_in: 3_600 },
    headers: { 'metadata-flavor': 'Google' },
  }));
  const { credential } = await get(
    { kind: 'google', file: undefined },
    {
      GCE_METADATA_HOST: server.url.slice('http://'.length),
      HOME: temporaryFolder(t),
      METADATA_SERVER_DETECTION: 'assume-present',
    },
  );
  t.match(credential, { kind: 'bearer', token: /^ya29\.secret-token/ });
  t.ok(server.requests.every(({ headers }) => headers['metadata-flavor'] === 'Google'));
});

void t.test('what is wrong with Google is said', async (t) => {
  const folder = temporaryFolder(t);
  const server = await startTokenServer(t, () => ({
    status: 400,
    body: { error: 'invalid_grant', error_description: 'Invalid JWT Signature.' },
  }));
  const said = async (file: string): Promise<string> => {
    const { message, advice } = await errorOf(get({ kind: 'google', file }, {}));
    return `${message} | ${advice}`;
  };
  t.match(await said(join(folder, 'none.json')), /ENOENT.*mounted/);
  writeFileSync(join(folder, 'text.json'), 'not JSON');
  t.match(await said(join(folder, 'text.json')), /is not JSON/);
  writeFileSync(join(folder, 'other.json'), '{"installed":{}}');
  t.match(await said(join(folder, 'other.json')), /type.*service_account/);
  // A path may have any word.
  for (const name of ['clock.json', 'PEM.json', 'private key.json', 'default credentials.json']) {
    t.match(await said(join(folder, name)), /ENOENT.*mounted/, name);
    writeFileSync(join(folder, name), 'not JSON');
    t.match(await said(join(folder, name)), /is not JSON.*credentials_file is the JSON file/, name);
  }
  t.match(await said(writeServiceAccount(folder, `${server.url}/token`)), /invalid_grant.*does not accept/);
  const broken = '-----BEGIN PRIVATE KEY-----\nMIIEvgIBADANBgkqhkiG9w0B\n-----END PRIVATE KEY-----\n';
  const text = await said(writeServiceAccount(folder, server.url, { private_key: broken }));
  t.match(text, /private_key of the file cannot be read/);
  t.notMatch(text, 'MIIEvg');
  t.match(await said(writeServiceAccount(folder, 'http://127.0.0.1:1/token')), /cannot be reached/);
  server.script = () => ({ body: '<html>captive portal</html>' });
  t.match(await said(writeServiceAccount(folder, server.url)), /without a token/);
});

void t.test('a container of AWS asks its endpoint', async (t) => {
  const server = await startTokenServer(t, countedKeys(3_600));
  const folder = temporaryFolder(t);
  const env = {
    AWS_CONTAINER_CREDENTIALS_FULL_URI: `${server.url}/v2/credentials`,
    AWS_CONTAINER_AUTHORIZATION_TOKEN: 'token-of-the-pod',
    AWS_SHARED_CREDENTIALS_FILE: join(folder, 'credentials'),
    AWS_CONFIG_FILE: join(folder, 'config'),
  };
  const first = await get({ kind: 'aws', profile: undefined }, env);
  t.match(first.credential, {
    kind: 'aws',
    accessKeyId: 'AKIDEXAMPLE1',
    sessionToken: 'FwoGZXIvYXdzEBYaDsession1',
  });
  t.ok(isNear(first.expiresMs, Date.now() + HOUR_MS));
  t.equal(server.requests[0]!.headers.authorization, 'token-of-the-pod');
  const second = await get({ kind: 'aws', profile: undefined }, env);
  t.match(second.credential, { accessKeyId: 'AKIDEXAMPLE2' }, 'nothing is kept');
});

void t.test('a profile of AWS is read anew each time', async (t) => {
  const folder = temporaryFolder(t);
  const file = join(folder, 'credentials');
  const env = { AWS_SHARED_CREDENTIALS_FILE: file, AWS_CONFIG_FILE: join(folder, 'config') };
  const write = (key: string): void =>
    writeFileSync(file, `[bills]\naws_access_key_id = ${key}\naws_secret_access_key = s3cr3t\n`);
  write('AKIDONE');
  const { credential, expiresMs } = await get({ kind: 'aws', profile: 'bills' }, env);
  t.match(credential, { accessKeyId: 'AKIDONE', secretAccessKey: 's3cr3t', sessionToken: undefined });
  t.equal(expiresMs, undefined);
  write('AKIDTWO');
  t.match((await get({ kind: 'aws', profile: 'bills' }, env)).credential, { accessKeyId: 'AKIDTWO' });
  const missing = await errorOf(get({ kind: 'aws', profile: 'nobody' }, env));
  t.match(missing.advice, /profile nobody is in/);
});

void t.test('no credentials of AWS', async (t) => {
  const folder = temporaryFolder(t);
  const { message, advice } = await errorOf(
    get(
      { kind: 'aws', profile: undefined },
      {
        AWS_SHARED_CREDENTIALS_FILE: join(folder, 'none'),
        AWS_CONFIG_FILE: join(folder, 'none'),
        AWS_EC2_METADATA_DISABLED: 'true',
      },
    ),
  );
  t.match(message, /no credentials of AWS/);
  t.match(advice, /AWS_ACCESS_KEY_ID/);
});

void t.test('an app of Entra: secret, certificate, federated token', async (t) => {
  const server = await startTokenServer(t, countedTokens(3_600, 'eyJ-entra'));
  const folder = temporaryFolder(t);
  const app = { AZURE_TENANT_ID: 'acme', AZURE_CLIENT_ID: 'app', AZURE_AUTHORITY_HOST: `${server.url}/` };
  const first = await get(ENTRA, { ...app, AZURE_CLIENT_SECRET: 'the secret' });
  t.same(first.credential, { kind: 'bearer', token: 'eyJ-entra-1' });
  t.ok(isNear(first.expiresMs, Date.now() + HOUR_MS));
  t.equal(server.requests[0]!.path, '/acme/oauth2/v2.0/token');
  t.same(Object.fromEntries(new URLSearchParams(server.requests[0]!.body)), {
    grant_type: 'client_credentials',
    client_id: 'app',
    scope: 'https://cognitiveservices.azure.com/.default',
    client_secret: 'the secret',
  });

  const token = join(folder, 'token');
  writeFileSync(token, 'token-of-the-cluster\n');
  await get(ENTRA, { ...app, AZURE_FEDERATED_TOKEN_FILE: token });
  t.equal(new URLSearchParams(server.requests[1]!.body).get('client_assertion'), 'token-of-the-cluster');

  const made = selfSigned('rsa');
  if (made === undefined) return;
  const pem = join(folder, 'app.pem');
  writeFileSync(pem, `${made.key}\n${made.certificate}`);
  await get(ENTRA, { ...app, AZURE_CLIENT_CERTIFICATE_PATH: pem });
  const assertion = new URLSearchParams(server.requests[2]!.body).get('client_assertion')!;
  const certificate = new X509Certificate(made.certificate);
  const [head, claims] = partsOf(assertion);
  t.same(head, {
    alg: 'PS256',
    typ: 'JWT',
    'x5t#S256': createHash('sha256').update(certificate.raw).digest('base64url'),
  });
  t.match(claims, { aud: `${server.url}/acme/oauth2/v2.0/token`, iss: 'app', sub: 'app' });
  const key = { key: certificate.publicKey, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 32 };
  const [text, signature] = [assertion.replace(/\.[^.]*$/, ''), assertion.split('.')[2]!];
  t.ok(verify('sha256', Buffer.from(text), key, Buffer.from(signature, 'base64url')));
});

void t.test('a managed identity of Azure', async (t) => {
  const server = await startTokenServer(t, () => ({
    body: { access_token: 'eyJ-managed', expires_on: String(Math.floor(Date.now() / 1_000) + 3_600) },
  }));
  const machine = { AZURE_POD_IDENTITY_AUTHORITY_HOST: server.url, AZURE_CLIENT_ID: 'one' };
  const { credential, expiresMs } = await get(ENTRA, machine);
  t.same(credential, { kind: 'bearer', token: 'eyJ-managed' });
  t.ok(isNear(expiresMs, Date.now() + HOUR_MS));
  const { path, headers } = server.requests[0]!;
  t.match(path, /^\/metadata\/identity\/oauth2\/token\?api-version=2018-02-01&/);
  t.same(Object.fromEntries(new URL(path, server.url).searchParams), {
    'api-version': '2018-02-01',
    resource: 'https://cognitiveservices.azure.com',
    client_id: 'one',
  });
  t.equal(headers.metadata, 'true');
  await get(ENTRA, { IDENTITY_ENDPOINT: `${server.url}/msi/token`, IDENTITY_HEADER: 'of the app' });
  t.match(server.requests[1]!.path, /^\/msi\/token\?api-version=2019-08-01&/);
  t.equal(server.requests[1]!.headers['x-identity-header'], 'of the app');
});

void t.test('what is wrong with Entra is said', async (t) => {
  const jwt = `eyJ${'hbGciOiJSUzI1NiIsI1'.repeat(9)}`;
  const server = await startTokenServer(t, () => ({
    status: 401,
    headers: { 'retry-after': '7' },
    body: { error: 'invalid_client', error_description: `AADSTS7000215: Invalid client secret. ${jwt}` },
  }));
  const app = { AZURE_TENANT_ID: 'acme', AZURE_CLIENT_ID: 'app', AZURE_CLIENT_SECRET: 'the secret' };
  const { message, advice, retryAfterMs } = await errorOf(
    get(ENTRA, { ...app, AZURE_AUTHORITY_HOST: server.url }),
  );
  t.match(message, /401: AADSTS7000215: Invalid client secret\. \*\*\*/);
  t.notMatch(message, jwt.slice(0, 30));
  t.match(advice, /AZURE_CLIENT_SECRET is wrong/);
  t.equal(retryAfterMs, 7_000);
  const rejected = await errorOf(get(ENTRA, { ...app, AZURE_AUTHORITY_HOST: 'http://127.0.0.1:33' }));
  t.match(rejected.advice, /cannot be reached/);
  server.script = () => ({ body: 'garbage' });
  t.match(
    (await errorOf(get(ENTRA, { ...app, AZURE_AUTHORITY_HOST: server.url }))).message,
    /without a token/,
  );
  const none = await errorOf(
    get(ENTRA, { AZURE_POD_IDENTITY_AUTHORITY_HOST: 'http://127.0.0.1:1', PATH: temporaryFolder(t) }),
  );
  t.match(none.message, /no credentials of Azure/);
});

void t.test('a server that never ends is left', async (t) => {
  let sentBytes = 0;
  let isOpen = false;
  /** Sends the head at once; then a chunk whenever the last one was taken, or nothing. */
  const server = createServer((_, response) => {
    isOpen = true;
    response.on('close', () => (isOpen = false));
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    if (!sends) return;
    const send = (): void => {
      if (response.destroyed) return;
      sentBytes += 16_384;
      if (response.write('x'.repeat(16_384))) setImmediate(send);
      else response.once('drain', send);
    };
    send();
  }).listen(0, '127.0.0.1');
  let sends = true;
  await once(server, 'listening');
  t.teardown(() => server.close());
  t.teardown(() => server.closeAllConnections());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const app = { AZURE_TENANT_ID: 'acme', AZURE_CLIENT_ID: 'app', AZURE_CLIENT_SECRET: 'the secret' };
  const kinds = [
    { ...app, AZURE_AUTHORITY_HOST: url },
    { AZURE_POD_IDENTITY_AUTHORITY_HOST: url },
    { IDENTITY_ENDPOINT: `${url}/msi/token`, IDENTITY_HEADER: 'h' },
  ];
  for (const env of kinds) {
    const source = await openSource(ENTRA, env);
    sends = true;
    sentBytes = 0;
    t.match((await errorOf(credentialWithin(source, 10_000))).message, /without a token/);
    await eventually('the end of the connection', () => (isOpen ? undefined : true));
    t.ok(sentBytes < 32 * 1024 * 1024, `${sentBytes} bytes`);
    sends = false;
    const stop = new AbortController();
    const stopped = errorOf(credentialWithin(source, 10_000, stop.signal));
    await eventually('a request', () => (isOpen ? true : undefined));
    // Until the body is read.
    await delay(50);
    stop.abort();
    t.match((await stopped).message, /no credential/);
    await eventually('the end of the connection', () => (isOpen ? undefined : true));
  }
});

void t.test('what looks like a secret is masked, words and paths are not', (t) => {
  const path = '/var/run/secrets/eks.amazonaws.com/serviceaccount/token2';
  t.equal(withoutTokens(`cannot read ${path}`), `cannot read ${path}`);
  const uuid = 'Trace ID: 0f4a2c1e-1111-4222-8333-944445555666';
  t.equal(withoutTokens(uuid), uuid);
  t.equal(withoutTokens('key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY is\nwrong'), 'key *** is wrong');
  t.ok(withoutTokens('word '.repeat(5_000)).length < 310);
  t.end();
});

void t.test('the message of an error is never empty, and codes are masked too', (t) => {
  const coded = (message: string, code: string, cause?: unknown): Error =>
    Object.assign(new Error(message, { cause }), { code });
  t.match(credentialErrorOf(new Error(''), 'do this'), {
    message: 'an error without a message',
    advice: 'do this',
  });
  t.equal(credentialErrorOf(undefined, 'do this').message, 'undefined');
  t.match(credentialErrorOf(coded('', 'ECONNREFUSED'), 'do this'), {
    message: 'ECONNREFUSED',
    advice: /cannot be reached/,
  });
  const nested = coded('EFAILED', 'EFAILED', coded('', 'ENOTFOUND'));
  t.equal(credentialErrorOf(nested, 'do this').message, 'EFAILED, ENOTFOUND', 'all codes replace one');
  const secret = `ya29.${'a1b2c3d4'.repeat(4)}`;
  t.notMatch(credentialErrorOf(coded('', secret), 'do this').message, 'a1b2c3d4');
  t.end();
});

void t.test('credentialWithin ends, whatever the source does', async (t) => {
  const never = (): Promise<never> => new Promise(() => undefined);
  const throws = (): never => {
    throw new CredentialError('thrown at once', '');
  };
  // Nothing else keeps the test's process alive, and a promise that never settles is a failure of the test.
  t.match((await errorOf(credentialWithin(never, 20))).message, /no credential within 0\.02 seconds/);
  t.match((await errorOf(credentialWithin(never, 1_000, AbortSignal.abort()))).message, /no credential/);
  const stop = new AbortController();
  const stopped = errorOf(credentialWithin(never, 1_000, stop.signal));
  stop.abort();
  t.match((await stopped).message, /no credential/);
  t.equal((await errorOf(credentialWithin(throws, 60_000))).message, 'thrown at once');
  await errorOf(credentialWithin(throws, 60_000, AbortSignal.abort()));
});

void t.test('a redirect of a token server is not followed: it has the secret in its body', async (t) => {
  const elsewhere = await startTokenServer(t, () => ({
    body: { access_token: 'ya29.elsewhere', expires_in: 3600 },
  }));
  const moved = await startTokenServer(t, () => ({
    status: 307,
    headers: { location: `${elsewhere.url}/x` },
  }));
  const file = writeServiceAccount(temporaryFolder(t), `${moved.url}/token`);
  const entra = {
    AZURE_TENANT_ID: 'acme',
    AZURE_CLIENT_ID: 'app',
    AZURE_CLIENT_SECRET: 'secret-of-the-app',
    AZURE_AUTHORITY_HOST: moved.url,
  };
  const asked: readonly (readonly [string, CredentialSpec, NodeJS.ProcessEnv])[] = [
    ['entra', ENTRA, entra],
    ['managed identity', ENTRA, { IDENTITY_ENDPOINT: `${moved.url}/msi`, IDENTITY_HEADER: 'secret' }],
    ['google', { kind: 'google', file }, {}],
    ['aws', { kind: 'aws', profile: undefined }, { AWS_CONTAINER_CREDENTIALS_FULL_URI: `${moved.url}/aws` }],
  ];
  for (const [name, spec, env] of asked) {
    const before = moved.requests.length;
    await errorOf(get(spec, env));
    t.ok(moved.requests.length > before, `${name}: the token server was asked`);
    t.equal(elsewhere.requests.length, 0, `${name}: nobody else`);
  }
});
