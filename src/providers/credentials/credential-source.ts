/**
 * What Google's, AWS's and Entra's sources of credentials have in common: their interface, the time limit of
 * a request, and the errors that they give an operator. The three files of sources use it, and so do
 * credential-keeper.ts, which loads them, and the test of upstreams. Main thread of a gateway process, and
 * commands.
 *
 * Must hold: the message of every error goes through `withoutTokens`, because packages put tokens and
 * assertions into theirs, and messages reach logs
 * (test/unit/providers/credentials/credential-source.test.ts). `credentialErrorOf` does that, except for a
 * CredentialError: code that makes one of a package's text must call `withoutTokens`.
 */
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Credential } from '../provider.js';
import type { CredentialSpec } from './credential-spec.js';

/** A credential as a token server has issued it. Not the grant of a coordinator. */
export interface Grant {
  readonly credential: Credential;
  /**
   * Unix milliseconds; undefined if the source does not say. May be wrong: see `believedMsOf` in
   * renewal-schedule.ts.
   */
  readonly expiresMs: number | undefined;
}

/**
 * Gets a new credential, never a stored one; reads files and environment anew each time. Rejects with a
 * CredentialError, or with whatever the package throws.
 */
export type CredentialSource = (signal: AbortSignal) => Promise<Grant>;

/** Why no credential could be got, in words for an operator, without secrets. */
export class CredentialError extends Error {
  /** What the operator should do. */
  readonly advice: string;
  /** How long the server wants not to be asked. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, advice: string, retryAfterMs?: number) {
    super(message);
    this.advice = advice;
    this.retryAfterMs = retryAfterMs;
  }
}

/**
 * Returns the files whose change makes another credential, whether they exist or not: those that the settings
 * and the environment name, and AWS's in the home folder. Others are read again at the next renewal.
 */
export function filesOf(spec: CredentialSpec, env: NodeJS.ProcessEnv = process.env): string[] {
  const inHome = (name: string): string => join(homedir(), '.aws', name);
  const files =
    spec.kind === 'google'
      ? [spec.file ?? env.GOOGLE_APPLICATION_CREDENTIALS]
      : spec.kind === 'aws'
        ? [env.AWS_SHARED_CREDENTIALS_FILE ?? inHome('credentials'), env.AWS_CONFIG_FILE ?? inHome('config')]
        : [env.AZURE_CLIENT_CERTIFICATE_PATH];
  return files.flatMap((file) => (file === undefined || file === '' ? [] : file));
}

/** Text that a header can have. */
const SENDABLE = /^[!-~]{1,16384}$/;

/**
 * Calls `work` with a signal that is aborted after `msMax`, or when `stop` is. Resolves and rejects as
 * `work` does, so `work` must heed the signal. entra-source.ts calls it too. It does not use
 * AbortSignal.any, because Node 20 may collect a timeout signal that nothing else holds, and then the signal
 * is never aborted.
 */
export async function callWithin<Result>(
  msMax: number,
  stop: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const ended = new AbortController();
  const end = (): void => ended.abort();
  const timer = setTimeout(end, msMax);
  stop?.addEventListener('abort', end);
  // If `stop` was aborted before, no event comes.
  if (stop?.aborted === true) end();
  try {
    return await work(ended.signal);
  } finally {
    clearTimeout(timer);
    stop?.removeEventListener('abort', end);
  }
}

/**
 * Gets a credential that can be sent in headers. Rejects as the source does, after `msMax`, and when `stop`
 * aborts (then nobody reads the error, which speaks of a time limit). The clouds' packages cannot be
 * cancelled, so their request may go on; the signal is for sources that make requests themselves.
 */
export async function grantWithin(
  source: CredentialSource,
  msMax: number,
  stop?: AbortSignal,
): Promise<Grant> {
  const grant = await callWithin(msMax, stop, (signal) => {
    const late = new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () =>
        reject(
          new CredentialError(
            `no credential within ${msMax / 1_000} seconds`,
            'see that the token server can be reached from here: network, firewall, proxy',
          ),
        ),
      );
    });
    return Promise.race([source(signal), late]);
  });
  // Each member of a Credential goes into a header.
  const parts: readonly (string | undefined)[] = Object.values(grant.credential);
  if (parts.some((part) => part !== undefined && !SENDABLE.test(part)))
    throw new CredentialError(
      'the credential holds what no header can',
      'see that the token server is the right one',
    );
  return grant;
}

const MESSAGE_CHARS_MAX = 300;
const CAUSES_MAX = 20;
/**
 * A run of characters. The first alternative is a path or an address, which `withoutTokens` keeps: at least
 * two parts, such as `/etc/gcp.json`, and no `+` or `=` after them, as base64 has. The second is a token, a
 * key or a signed assertion: 20 characters or more, longer than words are.
 */
const RUN = /(?<![\w/])(?:\/[\w.@:-]*){2,}(?![+=])|(?<![\w+/=~-])[\w+=~-][\w+/=~-]{19,}/g;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * Returns the text in one line, cut to MESSAGE_CHARS_MAX, with long runs masked that have a digit, as tokens
 * and keys do. Words, paths and UUIDs stay, because operators need them. A short secret is not masked.
 */
export function withoutTokens(text: string): string {
  const line = text
    .slice(0, 20 * MESSAGE_CHARS_MAX)
    .replace(RUN, (run) => (run.startsWith('/') || !/\d/.test(run) || UUID.test(run) ? run : '***'))
    .replace(/[\p{Cc}\p{Cs}\s]+/gu, ' ')
    .trim();
  return line.length > MESSAGE_CHARS_MAX ? `${line.slice(0, MESSAGE_CHARS_MAX)}…` : line;
}

/** Turns what was thrown into an error for operators. `advice`: if nothing better is known. */
export function credentialErrorOf(error: unknown, advice: string): CredentialError {
  if (error instanceof CredentialError) return error;
  const codes = codesOf(error);
  const message = withoutTokens(error instanceof Error ? error.message : String(error));
  return new CredentialError(
    codes.has(message) || message === '' ? [...codes].join(', ') : message,
    adviceOf(codes, message) ?? advice,
  );
}

function codesOf(error: unknown): Set<string> {
  const codes = new Set<string>();
  const errors = [error];
  for (let at = 0; at < errors.length && at < CAUSES_MAX; at += 1) {
    const each = errors[at];
    if (!(each instanceof Error)) continue;
    const { code, cause, errors: parts } = each as Error & { code?: unknown; errors?: unknown };
    if (typeof code === 'string') codes.add(code);
    errors.push(cause, ...(Array.isArray(parts) ? (parts as unknown[]) : []));
  }
  return codes;
}

function adviceOf(codes: ReadonlySet<string>, message: string): string | undefined {
  const is = (...some: string[]): boolean => some.some((code) => codes.has(code) || message.includes(code));
  if (is('ENOENT')) return 'the file is not there: see the path, and that it is mounted into the container';
  if (is('EACCES', 'EPERM')) return 'the file cannot be read: see its owner and mode';
  if (is('EISDIR')) return 'it is a folder: name the file in it';
  if (is('ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'ETIMEDOUT', 'UND_ERR_CONNECT_TIMEOUT'))
    return 'the token server cannot be reached from here: see network, firewall and proxy';
  if (is('ENOTFOUND', 'EAI_AGAIN'))
    return 'the name of the token server cannot be resolved: see the DNS of this machine';
  return undefined;
}
