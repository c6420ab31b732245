/**
 * Signs requests with AWS Signature Version 4. bedrock.ts calls it for calls with AWS credentials. Upstream
 * worker. The names below are those of IAM User Guide, "Create a signed AWS API request", 2026-11.
 *
 * By hand, because AWS's package takes 35 to 70 µs a call and 45 ms to load. This file takes 3 µs.
 *
 * Must hold: the signature is byte for byte that of the AWS SDK, or AWS answers 403
 * (test/unit/providers/bedrock/signature.test.ts compares both).
 */
import { createHmac, hash } from 'node:crypto';
import { invariant } from '../../core/errors.js';
import type { Credential } from '../provider.js';

export type AwsCredential = Extract<Credential, { kind: 'aws' }>;

const ALGORITHM = 'AWS4-HMAC-SHA256';
const BLOCK_BYTES = 64;
const DIGEST_BYTES = 32;
/** Of the text to sign, which has some 140: the settings bound the region. */
const TEXT_BYTES_MAX = 1024;

export interface SignedRequest {
  readonly method: string;
  /**
   * As it is sent, without a query. The signature encodes the path once more, as all services but S3 want.
   */
  readonly path: string;
  /**
   * The headers to sign, by their lower-case names in alphabetical order: `host`, all of `x-amz-`,
   * `content-type`.
   */
  readonly headers: Readonly<Record<string, string>>;
  /** SHA-256 in hexadecimal. */
  readonly bodyHash: string;
}

/**
 * Returns the headers to add: name, value, name, value. `bodyHash`: SHA-256 in hexadecimal. The caller must
 * send `content-type: application/json` and this `host` as they are, or AWS answers 403.
 */
export function signatureHeaders(
  path: string,
  host: string,
  bodyHash: string,
  credential: AwsCredential,
  region: string,
  nowMs: number,
): string[] {
  const { sessionToken } = credential;
  const date = amzDateOf(nowMs);
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    host,
    'x-amz-content-sha256': bodyHash,
    'x-amz-date': date,
  };
  if (sessionToken !== undefined) headers['x-amz-security-token'] = sessionToken;
  const request = { method: 'POST', path, headers, bodyHash };
  const added = ['authorization', authorizationOf(request, credential, region, 'bedrock')];
  added.push('x-amz-content-sha256', bodyHash, 'x-amz-date', date);
  if (sessionToken !== undefined) added.push('x-amz-security-token', sessionToken);
  return added;
}

/**
 * The value of `authorization`, at the time of the header `x-amz-date`. Exported for tests with AWS's
 * vectors.
 */
export function authorizationOf(
  { method, path, headers, bodyHash }: SignedRequest,
  credential: AwsCredential,
  region: string,
  service: string,
): string {
  const names = Object.keys(headers);
  const signedHeaders = names.join(';');
  // The empty line stands for the query, of which there is none.
  let canonicalRequest = `${method}\n${canonicalUriOf(path)}\n\n`;
  for (const name of names) canonicalRequest += `${name}:${headers[name]!}\n`;
  canonicalRequest += `\n${signedHeaders}\n${bodyHash}`;
  const date = headers['x-amz-date']!;
  const credentialScope = `${date.slice(0, 8)}/${region}/${service}/aws4_request`;
  const stringToSign = `${ALGORITHM}\n${date}\n${credentialScope}\n${hash('sha256', canonicalRequest)}`;
  const signature = signerOf(credential, credentialScope).sign(stringToSign);
  return (
    `${ALGORITHM} Credential=${credential.accessKeyId}/${credentialScope}, ` +
    `SignedHeaders=${signedHeaders}, Signature=${signature}`
  );
}

/** The date of the last second: most calls come in the same one. */
let dated = { second: -1, date: '' };

/** `20150830T123600Z` */
function amzDateOf(nowMs: number): string {
  const second = Math.floor(nowMs / 1_000);
  if (dated.second !== second)
    dated = { second, date: new Date(nowMs).toISOString().replace(/[-:]|\.\d{3}/g, '') };
  return dated.date;
}

/** The last path: most calls are of a few models. */
let encoded = { path: '', uri: '' };

/** AWS removes empty segments of a path before it signs. */
function canonicalUriOf(path: string): string {
  if (encoded.path !== path)
    encoded = { path, uri: uriEncode(path.replace(/\/{2,}/g, '/')).replaceAll('%2F', '/') };
  return encoded.uri;
}

/**
 * Percent-encodes all but letters, digits and `-._~` (RFC 3986). bedrock.ts encodes parts of paths with it.
 */
export function uriEncode(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/**
 * HMAC-SHA256 (RFC 2104) with one key: hash(outer block, hash(inner block, text)). Node's Hmac takes 1.9 µs
 * and leaves an object of C++ to the garbage collector; this takes 1.1.
 */
class Signer {
  readonly #inner = Buffer.alloc(BLOCK_BYTES + TEXT_BYTES_MAX, 0x36);
  readonly #outer = Buffer.alloc(BLOCK_BYTES + DIGEST_BYTES, 0x5c);
  /** Block and text. Texts of one key have mostly the same length. */
  #signed = this.#inner.subarray(0, BLOCK_BYTES);

  /** `key`: a digest. */
  constructor(key: Buffer) {
    key.forEach((byte, index) => {
      this.#inner[index]! ^= byte;
      this.#outer[index]! ^= byte;
    });
  }

  /** In hexadecimal. `text` is ASCII. */
  sign(text: string): string {
    invariant(text.length <= TEXT_BYTES_MAX, 'date, scope and a hash are short');
    this.#inner.write(text, BLOCK_BYTES, 'latin1');
    const end = BLOCK_BYTES + text.length;
    if (this.#signed.length !== end) this.#signed = this.#inner.subarray(0, end);
    this.#outer.write(hash('sha256', this.#signed), BLOCK_BYTES, 'hex');
    return hash('sha256', this.#outer);
  }
}

/**
 * The signer of each credential object: its key serves for a day, region and service. A call uses the newest
 * credential, whose scope changes once a day, so one each is enough. Credentials are never changed in place.
 */
const signers = new WeakMap<AwsCredential, { readonly scope: string; readonly signer: Signer }>();
function signerOf(credential: AwsCredential, scope: string): Signer {
  const cached = signers.get(credential);
  if (cached?.scope === scope) return cached.signer;
  let key = Buffer.from(`AWS4${credential.secretAccessKey}`);
  for (const part of scope.split('/')) key = createHmac('sha256', key).update(part).digest();
  const signer = new Signer(key);
  signers.set(credential, { scope, signer });
  return signer;
}
