/**
 * Signs requests with AWS Signature Version 4. bedrock.ts calls it for calls with AWS credentials. Upstream
 * worker.
 *
 * By hand, because AWS's package takes 35 to 70 µs a call and 45 ms to load, where a whole call through the
 * gateway takes 29 µs, and this 8 to 12. The AWS SDK judges it in the tests.
 *
 * Followed: IAM User Guide, "Create a signed AWS API request", 2026-11.
 */
import { createHmac, hash } from 'node:crypto';
import type { Credential } from '../provider.js';

export type AwsCredential = Extract<Credential, { kind: 'aws' }>;

const ALGORITHM = 'AWS4-HMAC-SHA256';

export interface SignedRequest {
  readonly method: string;
  /** As it is sent, without a query; the signature encodes it once more, as all services but S3 want. */
  readonly path: string;
  /** Those to sign, by their lower-case names: `host`, all of `x-amz-`, `content-type`. */
  readonly headers: Readonly<Record<string, string>>;
  /** SHA-256 in hexadecimal. */
  readonly bodyHash: string;
}

/** Returns the headers to add: name, value, name, value. `content-type` is signed as JSON. */
export function signatureHeaders(
  path: string,
  host: string,
  body: string,
  credential: AwsCredential,
  region: string,
  nowMs: number,
): string[] {
  const { sessionToken } = credential;
  const bodyHash = hash('sha256', body);
  const more: Record<string, string> = { 'x-amz-content-sha256': bodyHash, 'x-amz-date': dateOf(nowMs) };
  if (sessionToken !== undefined) more['x-amz-security-token'] = sessionToken;
  const headers = { 'content-type': 'application/json', host, ...more };
  const request = { method: 'POST', path, headers, bodyHash };
  return [
    'authorization',
    authorizationOf(request, credential, region, 'bedrock'),
    ...Object.entries(more).flat(),
  ];
}

/** The value of `authorization`. `x-amz-date` of the headers is the time of the signature. */
export function authorizationOf(
  { method, path, headers, bodyHash }: SignedRequest,
  credential: AwsCredential,
  region: string,
  service: string,
): string {
  const names = Object.keys(headers).sort();
  const signed = names.join(';');
  let canonical = `${method}\n${encodedPath(path)}\n\n`;
  for (const name of names) canonical += `${name}:${headers[name]!}\n`;
  canonical += `\n${signed}\n${bodyHash}`;
  const date = headers['x-amz-date']!;
  const scope = `${date.slice(0, 8)}/${region}/${service}/aws4_request`;
  const text = `${ALGORITHM}\n${date}\n${scope}\n${hash('sha256', canonical)}`;
  const signature = createHmac('sha256', keyOf(credential, scope)).update(text).digest('hex');
  return `${ALGORITHM} Credential=${credential.accessKeyId}/${scope}, SignedHeaders=${signed}, Signature=${signature}`;
}

/** `20150830T123600Z` */
function dateOf(nowMs: number): string {
  return new Date(nowMs).toISOString().replace(/[-:]|\.\d{3}/g, '');
}

/** Empty parts of a path do not count. */
function encodedPath(path: string): string {
  return encodedPart(path.replace(/\/{2,}/g, '/')).replaceAll('%2F', '/');
}

/** All but letters, digits and `-._~` is written as bytes in hexadecimal. */
export function encodedPart(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/** The key of a credential holds for a day, region and service. */
const keys = new WeakMap<AwsCredential, { readonly scope: string; readonly key: Buffer }>();

function keyOf(credential: AwsCredential, scope: string): Buffer {
  const known = keys.get(credential);
  if (known?.scope === scope) return known.key;
  let key = Buffer.from(`AWS4${credential.secretAccessKey}`);
  for (const part of scope.split('/')) key = createHmac('sha256', key).update(part).digest();
  keys.set(credential, { scope, key });
  return key;
}
