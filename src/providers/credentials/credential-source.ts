/**
 * Holds what Google's, AWS's and Entra's sources of credentials have in common: their interface, the time
 * limit of a request, and the errors for an operator. The three files of sources use it, and so do
 * credential-keeper.ts and gateway/upstream-probe.ts, which call the sources. Main thread of a gateway
 * process, and commands.
 *
 * Must hold (test/unit/providers/credentials/credential-source.test.ts):
 * - The message of every error goes through `withoutTokens`, because packages put tokens and assertions into
 *   theirs, and messages reach logs. `credentialErrorOf` does that, except for a CredentialError: code that
 *   makes one of a package's text must call `withoutTokens`.
 * - `credentialWithin` ends within its time limit, whatever the source waits for. Otherwise one token server
 *   that never replies would stop the renewals of its credential for good.
 */
import { statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Credential } from '../provider.js';
import type { CredentialSpec } from './credential-spec.js';

/** A credential as a token server, or AWS, has issued it. */
export interface IssuedCredential {
  readonly credential: Credential;
  /**
   * Unix milliseconds; undefined if the source does not say. The time may be wrong: see `trustedLifeMsOf` in
   * renewal-schedule.ts.
   */
  readonly expiresMs: number | undefined;
}

/**
 * Gets a new credential, never a stored one, and reads files and environment again each time. Rejects with a
 * CredentialError, or with whatever the package throws, which `credentialErrorOf` turns into one.
 */
export type CredentialSource = (signal: AbortSignal) => Promise<IssuedCredential>;

/** Why there is no new credential, in words for an operator, without secrets. */
export class CredentialError extends Error {
  /** What the operator should do. */
  readonly advice: string;
  /** How long the token server wants not to be asked; undefined if it does not say. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, advice: string, retryAfterMs?: number) {
    super(message);
    this.advice = advice;
    this.retryAfterMs = retryAfterMs;
  }
}

/**
 * The files whose change makes another credential, whether they exist or not. The keeper renews at once if
 * one of these changes. Other files are read again at the next renewal.
 */
function watchedFilesOf(spec: CredentialSpec, env: NodeJS.ProcessEnv = process.env): string[] {
  const inHome = (name: string): string => join(homedir(), '.aws', name);
  const files =
    spec.kind === 'google'
      ? [spec.file ?? env.GOOGLE_APPLICATION_CREDENTIALS]
      : spec.kind === 'aws'
        ? [env.AWS_SHARED_CREDENTIALS_FILE ?? inHome('credentials'), env.AWS_CONFIG_FILE ?? inHome('config')]
        : [env.AZURE_CLIENT_CERTIFICATE_PATH];
  return files.flatMap((file) => (file === undefined || file === '' ? [] : file));
}

/** Differs if a watched file has changed. Makes a system call for each file. Never throws. */
export function filesStateOf(spec: CredentialSpec): string {
  return watchedFilesOf(spec)
    .map((file) => {
      try {
        const stats = statSync(file, { throwIfNoEntry: false });
        return stats === undefined ? '-' : `${stats.ino}:${stats.size}:${stats.mtimeMs}`;
      } catch (error) {
        // A folder that must not be searched, or a mount that is gone. The renewal says what is wrong.
        return error instanceof Error && 'code' in error ? String(error.code) : '?';
      }
    })
    .join(' ');
}

/** A text that fits into a header. Servers of Node reject headers above 16 KiB. */
const SENDABLE = /^[!-~]{1,16384}$/;

/**
 * Calls `work` with a signal that is aborted after `msMax`, or when `stop` is. Resolves and rejects as
 * `work` does, so `work` must heed the signal. entra-source.ts calls this too. AbortSignal.any would not do:
 * Node 20 may collect a timeout signal to which nothing else refers, and then the signal is never aborted.
 */
export async function callWithin<Result>(
  msMax: number,
  stop: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  const timer = setTimeout(abort, msMax);
  stop?.addEventListener('abort', abort);
  // If `stop` was aborted before, no event comes.
  if (stop?.aborted === true) abort();
  try {
    return await work(controller.signal);
  } finally {
    clearTimeout(timer);
    stop?.removeEventListener('abort', abort);
  }
}

/**
 * Gets a credential that can be sent in headers. Rejects as the source does, after `msMax`, and when `stop`
 * is aborted. A request of a cloud's package cannot be cancelled and may go on.
 */
export async function credentialWithin(
  source: CredentialSource,
  msMax: number,
  stop?: AbortSignal,
): Promise<IssuedCredential> {
  const issued = await callWithin(
    msMax,
    stop,
    (signal) =>
      new Promise<IssuedCredential>((resolve, reject) => {
        const fail = (): void =>
          reject(
            new CredentialError(
              `no credential within ${msMax / 1_000} seconds`,
              'see that the token server can be reached from here: network, firewall, proxy',
            ),
          );
        // A signal that is aborted already sends no event.
        if (signal.aborted) fail();
        else signal.addEventListener('abort', fail);
        source(signal).then(resolve, reject);
      }),
  );
  // Each member of a Credential goes into a header.
  const members: readonly (string | undefined)[] = Object.values(issued.credential);
  if (members.some((member) => member !== undefined && !SENDABLE.test(member)))
    throw new CredentialError(
      'the credential holds what no header can',
      'see that the token server is the right one',
    );
  return issued;
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
 * and keys do. Words, paths and UUIDs stay, because operators need them. A short secret is not masked. The
 * first cut only bounds the work of the expressions.
 */
export function withoutTokens(text: string): string {
  const line = text
    .slice(0, 20 * MESSAGE_CHARS_MAX)
    .replace(RUN, (run) => (run.startsWith('/') || !/\d/.test(run) || UUID.test(run) ? run : '***'))
    .replace(/[\p{Cc}\p{Cs}\s]+/gu, ' ')
    .trim();
  return line.length > MESSAGE_CHARS_MAX ? `${line.slice(0, MESSAGE_CHARS_MAX)}…` : line;
}

/**
 * Turns what was thrown into an error for operators, whose message is never empty. `advice` is used if no
 * code tells a better one. Node's errors of connections may have a code as their message, or no message: the
 * codes of all their causes then say more.
 */
export function credentialErrorOf(error: unknown, advice: string): CredentialError {
  if (error instanceof CredentialError) return error;
  const codes = codesOf(error);
  const message = withoutTokens(error instanceof Error ? error.message : String(error));
  const said = codes.has(message) || message === '' ? withoutTokens([...codes].join(', ')) : message;
  return new CredentialError(said || 'an error without a message', adviceOf(codes, message) ?? advice);
}

/** The codes of an error, of its causes and of those in an AggregateError: CAUSES_MAX bounds a cycle. */
function codesOf(error: unknown): Set<string> {
  const codes = new Set<string>();
  const errors = [error];
  for (let index = 0; index < errors.length && index < CAUSES_MAX; index += 1) {
    const current = errors[index];
    if (!(current instanceof Error)) continue;
    const { code, cause, errors: inner } = current as Error & { code?: unknown; errors?: unknown };
    if (typeof code === 'string') codes.add(code);
    errors.push(cause, ...(Array.isArray(inner) ? (inner as unknown[]) : []));
  }
  return codes;
}

function adviceOf(codes: ReadonlySet<string>, message: string): string | undefined {
  const hasAny = (...names: string[]): boolean =>
    names.some((name) => codes.has(name) || message.includes(name));
  if (hasAny('ENOENT'))
    return 'the file is not there: see the path, and that it is mounted into the container';
  if (hasAny('EACCES', 'EPERM')) return 'the file cannot be read: see its owner and mode';
  if (hasAny('EISDIR')) return 'it is a folder: name the file in it';
  if (hasAny('ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'ETIMEDOUT', 'UND_ERR_CONNECT_TIMEOUT'))
    return 'the token server cannot be reached from here: see network, firewall and proxy';
  if (hasAny('ENOTFOUND', 'EAI_AGAIN'))
    return 'the name of the token server cannot be resolved: see the DNS of this machine';
  return undefined;
}
