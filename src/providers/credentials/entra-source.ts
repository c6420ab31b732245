/**
 * Tokens of Microsoft Entra for Azure OpenAI (OAuth client credentials), from the first of these that the
 * environment has: a client secret, a client certificate, workload identity federation (AKS), a managed
 * identity, and for trials the Azure CLI. The variables are those of Azure's own SDKs. Follows
 * https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow and
 * https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
 * (2026-11). source-loader.ts loads this file when an upstream of Azure has no key. Main thread of a
 * gateway process, and commands.
 *
 * The file is written by hand because @azure/identity adds 45 MB, and @azure/msal-node 9 MB, for one POST.
 *
 * Must hold (test/unit/providers/credentials/credential-source.test.ts): the order of the kinds above. No
 * token or secret is in an error: a text of the token server goes through `withoutTokens`. A response is
 * bounded, and nothing goes on after the signal: each request and each read heeds it.
 */
import { execFile } from 'node:child_process';
import { createHash, createPrivateKey, randomUUID, sign, X509Certificate, constants } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { SystemClock } from '../../core/clock.js';
import { isRecord, parsedJson } from '../../core/json.js';
import {
  callWithin,
  CredentialError,
  credentialErrorOf,
  withoutTokens,
  type CredentialSource,
  type IssuedCredential,
} from './credential-source.js';

const CLOCK = new SystemClock();
const RESOURCE = 'https://cognitiveservices.azure.com';
const AUTHORITY = 'https://login.microsoftonline.com';
const ASSERTION_TYPE = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer';
const ASSERTION_SECONDS = 600;
const METADATA = 'http://169.254.169.254';
/** So short because outside Azure nothing responds at METADATA, and some networks drop packets to it. */
const METADATA_MS_MAX = 3_000;
/** Bound of a token response, and of what the Azure CLI prints. A longer text is no JSON once it is cut. */
const BODY_BYTES_MAX = 64 * 1024;

/** A source of tokens by the environment `env`. */
export function entraSource(env: NodeJS.ProcessEnv): CredentialSource {
  return async (signal) => {
    try {
      return await credentialOf(env, signal);
    } catch (error) {
      throw credentialErrorOf(error, ADVICE);
    }
  };
}

const ADVICE =
  'see tenant, client and secret of the app, and that it has the role Cognitive Services OpenAI User';

/** Tries the kinds in their order. An empty variable of the environment counts as absent. */
async function credentialOf(env: NodeJS.ProcessEnv, signal: AbortSignal): Promise<IssuedCredential> {
  const {
    AZURE_TENANT_ID: tenant,
    AZURE_CLIENT_ID: client,
    AZURE_CLIENT_SECRET: secret,
    AZURE_CLIENT_CERTIFICATE_PATH: certificateFile,
    AZURE_FEDERATED_TOKEN_FILE: tokenFile,
  } = env;
  if (tenant && client && (secret || certificateFile || tokenFile)) {
    const url = `${baseOf(env.AZURE_AUTHORITY_HOST, AUTHORITY)}/${tenant}/oauth2/v2.0/token`;
    const proof: Record<string, string> = secret
      ? { client_secret: secret }
      : {
          client_assertion_type: ASSERTION_TYPE,
          client_assertion: certificateFile
            ? await assertionOf(certificateFile, env.AZURE_CLIENT_CERTIFICATE_PASSWORD, client, url)
            : (await readFile(tokenFile!, 'utf8')).trim(),
        };
    const body = new URLSearchParams({
      grant_type: 'client_credentials',
      client_id: client,
      scope: `${RESOURCE}/.default`,
      ...proof,
    });
    return credentialFrom(await fetch(url, { method: 'POST', body, signal, redirect: 'error' }), signal);
  }
  return managedIdentityCredential(client, env, signal);
}

/**
 * A client assertion: a JWT signed with the certificate's key. `file` has certificate and key, in PEM form.
 * `audience`: the URL of the token server. Throws a CredentialError if the file cannot be used.
 */
async function assertionOf(
  file: string,
  passphrase: string | undefined,
  client: string,
  audience: string,
): Promise<string> {
  const pem = await readFile(file, 'utf8');
  let key;
  let thumbprint;
  try {
    key = createPrivateKey({ key: pem, ...(passphrase === undefined ? {} : { passphrase }) });
    thumbprint = createHash('sha256').update(new X509Certificate(pem).raw).digest('base64url');
  } catch {
    throw new CredentialError(
      `${file} has no certificate with its private key that can be read`,
      'AZURE_CLIENT_CERTIFICATE_PATH is a PEM file with both; AZURE_CLIENT_CERTIFICATE_PASSWORD opens the key',
    );
  }
  const nowSeconds = Math.floor(CLOCK.wallMs() / 1_000);
  const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const text = `${encoded({ alg: 'PS256', typ: 'JWT', 'x5t#S256': thumbprint })}.${encoded({
    aud: audience,
    iss: client,
    sub: client,
    jti: randomUUID(),
    nbf: nowSeconds,
    exp: nowSeconds + ASSERTION_SECONDS,
  })}`;
  const signature = sign('sha256', Buffer.from(text), {
    key,
    padding: constants.RSA_PKCS1_PSS_PADDING,
    saltLength: constants.RSA_PSS_SALTLEN_DIGEST,
  });
  return `${text}.${signature.toString('base64url')}`;
}

/** `address`, or `defaultAddress` if `address` is empty or undefined; without slashes at the end. */
function baseOf(address: string | undefined, defaultAddress: string): string {
  return (address === undefined || address === '' ? defaultAddress : address).replace(/(?<!\/)\/+$/, '');
}

/**
 * A token for the managed identity of the machine or container; one of the Azure CLI if no metadata server
 * answers, as on a developer's machine.
 */
async function managedIdentityCredential(
  client: string | undefined,
  env: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<IssuedCredential> {
  const query = new URLSearchParams({
    resource: RESOURCE,
    ...(client ? { client_id: client } : {}),
  }).toString();
  const { IDENTITY_ENDPOINT: endpoint, IDENTITY_HEADER: header } = env;
  // App Service, Functions and Container Apps set these variables. Without them a machine has METADATA.
  if (endpoint && header)
    return credentialFrom(
      await fetch(`${endpoint}?api-version=2019-08-01&${query}`, {
        headers: { 'x-identity-header': header },
        signal,
        redirect: 'error',
      }),
      signal,
    );
  const host = baseOf(env.AZURE_POD_IDENTITY_AUTHORITY_HOST, METADATA);
  let response: Response;
  try {
    const url = `${host}/metadata/identity/oauth2/token?api-version=2018-02-01&${query}`;
    response = await callWithin(METADATA_MS_MAX, signal, (metadataSignal) =>
      fetch(url, { headers: { metadata: 'true' }, signal: metadataSignal, redirect: 'error' }),
    );
  } catch (error) {
    // Aborted: the renewal is late, or the keeper closed. Otherwise no metadata server has responded.
    if (signal.aborted) throw error;
    return cliCredential(signal);
  }
  return credentialFrom(response, signal);
}

async function cliCredential(signal: AbortSignal): Promise<IssuedCredential> {
  const args = ['account', 'get-access-token', '--output', 'json', '--resource', RESOURCE];
  try {
    const { stdout } = await promisify(execFile)('az', args, { signal, maxBuffer: BODY_BYTES_MAX });
    return credentialOfMembers(parsedJson(stdout));
  } catch (error) {
    if (error instanceof CredentialError || signal.aborted) throw error;
    throw new CredentialError(
      'no credentials of Azure were found: no secret, certificate or federated token in the environment, no managed identity, no login of the Azure CLI',
      'set key, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run with a managed identity',
    );
  }
}

/**
 * The text of a response, read no further than BODY_BYTES_MAX, nor once `signal` is aborted: what answers may
 * be no token server, and then send for ever.
 */
async function textOf({ body }: Response, signal: AbortSignal): Promise<string> {
  if (body === null) return '';
  const reader = body.getReader();
  // A read that waits then ends as if the body were over. For the metadata server `fetch` had another signal.
  const stop = (): void => void reader.cancel().catch(() => undefined);
  signal.addEventListener('abort', stop);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  try {
    while (bytes <= BODY_BYTES_MAX && !signal.aborted) {
      const read = await reader.read();
      if (read.done) break;
      const chunk = read.value as Uint8Array;
      chunks.push(chunk);
      bytes += chunk.length;
    }
  } finally {
    signal.removeEventListener('abort', stop);
    stop();
  }
  return Buffer.concat(chunks).toString('utf8', 0, BODY_BYTES_MAX);
}

/** The credential in a token response. Throws a CredentialError for any other response. */
async function credentialFrom(response: Response, signal: AbortSignal): Promise<IssuedCredential> {
  const members = parsedJson(await textOf(response, signal));
  if (response.ok) return credentialOfMembers(members);
  const description = isRecord(members) ? (members.error_description ?? members.error) : undefined;
  const reason = typeof description === 'string' ? description : '';
  const seconds = Number(response.headers.get('retry-after') ?? NaN);
  throw new CredentialError(
    `the token server answered ${response.status}${reason === '' ? '' : `: ${withoutTokens(reason)}`}`,
    adviceOf(reason, response.status),
    seconds >= 0 ? seconds * 1_000 : undefined,
  );
}

/**
 * Advice by Entra's error numbers: https://learn.microsoft.com/entra/identity-platform/reference-error-codes
 */
function adviceOf(text: string, status: number): string {
  if (/AADSTS(7000215|7000222)/.test(text))
    return 'AZURE_CLIENT_SECRET is wrong or has expired: make a new one';
  if (text.includes('AADSTS700016')) return 'there is no such app: see AZURE_CLIENT_ID and AZURE_TENANT_ID';
  if (text.includes('AADSTS90002')) return 'there is no such tenant: see AZURE_TENANT_ID';
  if (/AADSTS(700024|500133)/.test(text))
    return 'the clock of this machine is wrong: see that it is set by NTP';
  if (/AADSTS(70021|700213)/.test(text))
    return 'the app does not trust this workload: see issuer and subject of its federated credential';
  if (/identity not found/i.test(text))
    return 'no managed identity is assigned to this machine, or AZURE_CLIENT_ID names another';
  return status === 429 || status >= 500 ? 'the token server fails: it is tried again' : ADVICE;
}

/**
 * Reads the members of a token response, or of what the Azure CLI prints. Times are numbers or texts, in
 * seconds: `expires_on` since 1970, `expires_in` from now. Throws a CredentialError if there is no token.
 */
function credentialOfMembers(members: unknown): IssuedCredential {
  const token = isRecord(members) ? (members.access_token ?? members.accessToken) : undefined;
  if (!isRecord(members) || typeof token !== 'string' || !/^[!-~]+$/.test(token))
    throw new CredentialError(
      'the token server answered without a token',
      'see that AZURE_AUTHORITY_HOST is right',
    );
  const lifeSeconds = Number(members.expires_in ?? NaN);
  const unixSeconds = Number(members.expires_on ?? NaN);
  const expiresMs = Number.isFinite(lifeSeconds) ? CLOCK.wallMs() + lifeSeconds * 1_000 : unixSeconds * 1_000;
  return {
    credential: { kind: 'bearer', token },
    expiresMs: Number.isFinite(expiresMs) ? expiresMs : undefined,
  };
}
