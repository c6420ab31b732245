/**
 * Tokens of Google Cloud, by google-auth-library: a service account's file, a file of workload identity
 * federation, or what the environment has (GOOGLE_APPLICATION_CREDENTIALS, gcloud's own, the metadata
 * server). Follows https://cloud.google.com/docs/authentication/application-default-credentials (2026-11).
 * source-loader.ts loads this file when an upstream of Vertex AI has no key. Main thread of a gateway
 * process, and commands.
 *
 * Must hold: a source returns no cached token, and sends one request to the token server that the file names
 * (test/unit/providers/credentials/credential-source.test.ts).
 */
import { GoogleAuth, JWT } from 'google-auth-library';
import { readFile } from 'node:fs/promises';
import { isRecord, parsedJson } from '../../core/json.js';
import { CredentialError, credentialErrorOf, type CredentialSource } from './credential-source.js';
import type { CredentialSpec } from './credential-spec.js';

const SCOPE = 'https://www.googleapis.com/auth/cloud-platform';
const TOKEN_URL = 'https://oauth2.googleapis.com/token';
const FILE_TYPES = new Set([
  'service_account',
  'external_account',
  'authorized_user',
  'external_account_authorized_user',
  'impersonated_service_account',
]);

/** A source of tokens by `configuredFile`, the setting `credentials_file`; undefined: by the environment. */
export function googleSource(
  { file: configuredFile }: CredentialSpec & { kind: 'google' },
  env: NodeJS.ProcessEnv,
): CredentialSource {
  return async () => {
    const file = configuredFile ?? env.GOOGLE_APPLICATION_CREDENTIALS;
    let tokenUrl = TOKEN_URL;
    try {
      if (file !== undefined && file !== '') tokenUrl = await tokenUrlOf(file);
      // A new client each time, because a client caches its token and what it read of the file.
      const auth = new GoogleAuth({
        scopes: [SCOPE],
        // Also the file of the environment, so that the package reads the file that `tokenUrl` is of. The
        // option is deprecated to warn of files from strangers. This one is the operator's own.
        // oxlint-disable-next-line typescript/no-deprecated
        ...(file === undefined || file === '' ? {} : { keyFile: file }),
      });
      const client = await auth.getClient();
      // The package always asks the public address, and retries at once. The interceptor makes the package
      // ask the address that the file names, once.
      if (client instanceof JWT && tokenUrl !== TOKEN_URL) client.additionalClaims = { aud: tokenUrl };
      client.transporter.interceptors.request.add({
        resolved: (request) => {
          if (request.url.href === TOKEN_URL) request.url = new URL(tokenUrl);
          // A redirect would carry what authorises the gateway to another server.
          return Promise.resolve({
            ...request,
            redirect: 'error',
            retry: false,
            retryConfig: { retry: 0 },
          });
        },
      });
      const { token } = await client.getAccessToken();
      if (typeof token !== 'string' || token === '')
        throw new CredentialError('the token server answered without a token', ADVICE);
      const { expiry_date: expiresMs } = client.credentials;
      return {
        credential: { kind: 'bearer', token },
        expiresMs: typeof expiresMs === 'number' ? expiresMs : undefined,
      };
    } catch (error) {
      // The errors of this file have their advice, and may name a path, in which googleErrorOf must not look.
      throw error instanceof CredentialError ? error : googleErrorOf(error);
    }
  };
}

const ADVICE = 'see that the service account exists, and has a role that may use Vertex AI';

/**
 * Returns the `token_uri` of a service account's file, and TOKEN_URL for other credentials files. Throws for
 * any other file, with a message that says what is wrong: the package's own message does not.
 */
async function tokenUrlOf(file: string): Promise<string> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw credentialErrorOf(error, ADVICE);
  });
  const members = parsedJson(text);
  if (!isRecord(members))
    throw new CredentialError(
      `${file} is not JSON`,
      'credentials_file is the JSON file that Google Cloud gave',
    );
  if (!FILE_TYPES.has(String(members.type)))
    throw new CredentialError(
      `${file} is no credential: its "type" is not service_account or external_account`,
      'credentials_file is the JSON key of a service account, or the configuration of a workload identity',
    );
  const { type, token_uri: tokenUrl } = members;
  return type === 'service_account' && typeof tokenUrl === 'string' && URL.canParse(tokenUrl)
    ? tokenUrl
    : TOKEN_URL;
}

/** The error for operators, with advice by the message of Google or of the package. Not for our errors. */
function googleErrorOf(error: unknown): CredentialError {
  const text = error instanceof Error ? error.message : String(error);
  if (/Invalid JWT: Token must be a short-lived|clock/i.test(text))
    return credentialErrorOf(error, 'the clock of this machine is wrong: see that it is set by NTP');
  if (/invalid_grant|Invalid JWT Signature/i.test(text))
    return credentialErrorOf(
      error,
      'Google does not accept the key: it was deleted, or the account was; or the clock of this machine is wrong',
    );
  if (/DECODER|PEM|asn1|private key/i.test(text))
    return new CredentialError(
      'the private_key of the file cannot be read',
      'download the key of the service account again: line breaks in it are \\n',
    );
  if (/default credentials/i.test(text))
    return credentialErrorOf(
      error,
      'set credentials_file, or GOOGLE_APPLICATION_CREDENTIALS, or run with a service account of Google Cloud',
    );
  if (/Could not refresh access token/i.test(text))
    return new CredentialError(
      'the token server answered without a token',
      'see that token_uri of the file is right, and that no proxy answers in its place',
    );
  const retryAfterMs = retryAfterOf(error);
  const { message, advice } = credentialErrorOf(error, ADVICE);
  return new CredentialError(message, advice, retryAfterMs);
}

/** Gaxios, the package's HTTP client, has the response in its error. */
function retryAfterOf(error: unknown): number | undefined {
  if (!(error instanceof Error) || !('response' in error) || !isRecord(error.response)) return undefined;
  const { headers } = error.response;
  const value = isHeaders(headers) ? Number(headers.get('retry-after') ?? NaN) : NaN;
  return Number.isFinite(value) && value >= 0 ? value * 1_000 : undefined;
}

/** No `instanceof`, because they may be those of any implementation of fetch. */
function isHeaders(value: unknown): value is Pick<Headers, 'get'> {
  return typeof value === 'object' && value !== null && 'get' in value && typeof value.get === 'function';
}
