/**
 * Signs requests with AWS Signature Version 4. bedrock.ts calls `signatureHeaders` for calls with AWS
 * credentials. Upstream worker. The names are those of IAM User Guide, "Create a signed AWS API request",
 * 2026-11.
 *
 * The file is written by hand because AWS's package takes 35 to 70 µs a call and 45 ms to load. This file
 * takes 2 µs: a Signer computes once what the requests to one path in one second have in common.
 *
 * Must hold: the signature is byte for byte that of the AWS SDK, or AWS responds with 403
 * (test/unit/providers/bedrock/signature.test.ts compares both). Signing is synchronous, because a Signer
 * reuses its buffers. A credential object never changes: signers and keys are kept by the object. Each thread
 * has its own signers and keys, because it loads this file for itself.
 */
import { createHmac, hash } from 'node:crypto';
import type { Credential } from '../provider.js';

export type AwsCredential = Extract<Credential, { kind: 'aws' }>;

const ALGORITHM = 'AWS4-HMAC-SHA256';
/** By these bytes and XOR, RFC 2104 makes the inner and the outer block of the key. */
const INNER_FILL = 0x36;
const OUTER_FILL = 0x5c;
const BLOCK_BYTES = 64;
const DIGEST_BYTES = 32;
const DIGEST_CHARS = 64;
/** Stands for the hash of the body in a canonical request. A header can never have this character. */
const BODY_HASH_PLACEHOLDER = '\0';

/** A request without its body: what a Signer signs again and again. */
interface RequestToSign {
  readonly method: string;
  /** The path as it is sent, without a query. A Signer encodes it again, as all services but S3 want. */
  readonly path: string;
  /** `content-type`, `host` and all headers of `x-amz-`, by lower-case names, in any order. */
  readonly headers: Readonly<Record<string, string>>;
  readonly credential: AwsCredential;
  readonly region: string;
  readonly service: string;
}

/**
 * The signers of the current second (Unix time), by host and path, and its `x-amz-date`. There are few
 * signers: one for each model and kind of call.
 */
let signersOfSecond = { unixSeconds: -1, date: '', signers: new Map<string, Signer>() };
/** The signer of the last call, which the next call mostly needs too. Undefined at the start of a second. */
let lastSigner: Signer | undefined;

/**
 * Returns the headers to add: name, value, name, value. `bodyHash`: SHA-256 in hexadecimal. The caller must
 * send `content-type: application/json` and this `host` as they are, or AWS responds with 403.
 */
export function signatureHeaders(
  path: string,
  host: string,
  bodyHash: string,
  credential: AwsCredential,
  region: string,
  nowMs: number,
): string[] {
  const unixSeconds = Math.floor(nowMs / 1_000);
  if (signersOfSecond.unixSeconds !== unixSeconds) {
    signersOfSecond = { unixSeconds, date: amzDateOf(nowMs), signers: new Map() };
    lastSigner = undefined;
  }
  const { date } = signersOfSecond;
  const { sessionToken } = credential;
  if (lastSigner?.isFor(path, host, credential, region) !== true)
    lastSigner = signerOf(path, host, credential, region);
  const authorization = lastSigner.authorizationOf(bodyHash);
  const addedHeaders = ['authorization', authorization, 'x-amz-content-sha256', bodyHash, 'x-amz-date', date];
  if (sessionToken !== undefined) addedHeaders.push('x-amz-security-token', sessionToken);
  return addedHeaders;
}

/** Makes a signer if this second has none for the address, or for another credential. */
function signerOf(path: string, host: string, credential: AwsCredential, region: string): Signer {
  const { date, signers } = signersOfSecond;
  const { sessionToken } = credential;
  const address = host + path;
  let signer = signers.get(address);
  if (signer?.isFor(path, host, credential, region) !== true) {
    const headers: Record<string, string> = {
      'content-type': 'application/json',
      host,
      'x-amz-content-sha256': BODY_HASH_PLACEHOLDER,
      'x-amz-date': date,
    };
    if (sessionToken !== undefined) headers['x-amz-security-token'] = sessionToken;
    signer = new Signer({ method: 'POST', path, headers, credential, region, service: 'bedrock' });
    signers.set(address, signer);
  }
  return signer;
}

function amzDateOf(nowMs: number): string {
  return new Date(nowMs).toISOString().replace(/[-:]|\.\d{3}/g, '');
}

/** The path as it is signed: encoded once more, without empty segments, which AWS removes too. */
function canonicalUriOf(path: string): string {
  return uriEncode(path.replace(/\/{2,}/g, '/')).replaceAll('%2F', '/');
}

/** Percent-encodes all but letters, digits and `-._~` (RFC 3986). bedrock.ts uses it for parts of paths. */
export function uriEncode(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/**
 * Signs requests that differ in their bodies alone. Exported for tests with AWS's vectors.
 *
 * HMAC-SHA256 (RFC 2104) is hash(outer block, hash(inner block, text)). Node's Hmac takes 1.9 µs and leaves a
 * native object to the garbage collector; this takes 1 µs.
 */
export class Signer {
  readonly #request: RequestToSign;
  /** The canonical request, cut at each BODY_HASH_PLACEHOLDER. */
  readonly #canonicalParts: readonly string[];
  /** The value of `authorization` up to the signature. */
  readonly #authorizationStart: string;
  /** Inner block and text. The text ends with the hash of the canonical request, written for each call. */
  readonly #inner: Buffer;
  /** Outer block and inner hash, written for each call. */
  readonly #outer = Buffer.alloc(BLOCK_BYTES + DIGEST_BYTES, OUTER_FILL);

  constructor(request: RequestToSign) {
    const { method, path, headers, credential, region, service } = request;
    this.#request = request;
    const names = Object.keys(headers).sort();
    const signedHeaders = names.join(';');
    // The empty line stands for the query, of which there is none.
    let canonical = `${method}\n${canonicalUriOf(path)}\n\n`;
    for (const name of names) canonical += `${name}:${headers[name]!}\n`;
    canonical += `\n${signedHeaders}\n${BODY_HASH_PLACEHOLDER}`;
    this.#canonicalParts = canonical.split(BODY_HASH_PLACEHOLDER);
    const date = headers['x-amz-date']!;
    const credentialScope = `${date.slice(0, 8)}/${region}/${service}/aws4_request`;
    this.#authorizationStart =
      `${ALGORITHM} Credential=${credential.accessKeyId}/${credentialScope}, ` +
      `SignedHeaders=${signedHeaders}, Signature=`;
    const text = `${ALGORITHM}\n${date}\n${credentialScope}\n`;
    this.#inner = Buffer.alloc(BLOCK_BYTES + text.length + DIGEST_CHARS, INNER_FILL);
    this.#inner.write(text, BLOCK_BYTES, 'latin1');
    keyOf(credential, credentialScope).forEach((byte, index) => {
      this.#inner[index]! ^= byte;
      this.#outer[index]! ^= byte;
    });
  }

  isFor(path: string, host: string, credential: AwsCredential, region: string): boolean {
    const request = this.#request;
    const isSameAddress = request.path === path && request.headers.host === host;
    return isSameAddress && request.credential === credential && request.region === region;
  }

  /** The value of `authorization`, at the time of the header `x-amz-date`. */
  authorizationOf(bodyHash: string): string {
    const requestHash = hash('sha256', this.#canonicalParts.join(bodyHash));
    this.#inner.write(requestHash, this.#inner.length - DIGEST_CHARS, 'latin1');
    // 'binary' is the name that the types of `hash` have for 'latin1': a character for each byte.
    this.#outer.write(hash('sha256', this.#inner, 'binary'), BLOCK_BYTES, 'latin1');
    return this.#authorizationStart + hash('sha256', this.#outer);
  }
}

/**
 * The signing key of each credential object, for its last credential scope (day, region and service). A
 * credential has one scope a day, so one key is enough. A renewed credential is a new object.
 */
const signingKeys = new WeakMap<AwsCredential, { readonly credentialScope: string; readonly key: Buffer }>();

function keyOf(credential: AwsCredential, credentialScope: string): Buffer {
  const cached = signingKeys.get(credential);
  if (cached?.credentialScope === credentialScope) return cached.key;
  let key = Buffer.from(`AWS4${credential.secretAccessKey}`);
  for (const part of credentialScope.split('/')) key = createHmac('sha256', key).update(part).digest();
  signingKeys.set(credential, { credentialScope, key });
  return key;
}
