/**
 * Signs a request with AWS Signature Version 4. bedrock.ts loads it with the first call that has AWS
 * credentials, because its package takes 45 ms to load. Upstream worker.
 *
 * Followed: IAM User Guide, "Create a signed AWS API request", 2026-11.
 */
import { Hash } from '@smithy/hash-node';
import { SignatureV4 } from '@smithy/signature-v4';
import type { Credential } from '../provider.js';

type AwsCredential = Extract<Credential, { kind: 'aws' }>;

class Sha256 extends Hash {
  constructor(secret?: ConstructorParameters<typeof Hash>[1]) {
    super('sha256', secret);
  }
}

export interface UnsignedRequest {
  /** As it is sent; each part of it is encoded once more for the signature, as all services but S3 want. */
  readonly path: string;
  /** Those to sign, by their lower-case names; `host` among them. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Returns the headers to add: name, value, name, value. */
export async function signed(
  { path, headers, body }: UnsignedRequest,
  { accessKeyId, secretAccessKey, sessionToken }: AwsCredential,
  region: string,
  service: string,
  nowMs: number,
): Promise<readonly string[]> {
  const signer = new SignatureV4({
    credentials: { accessKeyId, secretAccessKey, ...(sessionToken !== undefined && { sessionToken }) },
    region,
    service,
    sha256: Sha256,
  });
  const request = await signer.sign(
    { method: 'POST', protocol: 'https:', hostname: headers.host!, path, headers: { ...headers }, body },
    { signingDate: new Date(nowMs) },
  );
  const more: string[] = [];
  for (const name of ['authorization', 'x-amz-date', 'x-amz-content-sha256', 'x-amz-security-token']) {
    const value = request.headers[name];
    if (value !== undefined) more.push(name, value);
  }
  return more;
}
