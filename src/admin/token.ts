/**
 * The admin token: its file, and its comparison with a token that was sent. gateway/admin-service.ts obtains
 * the token and authentication.ts checks it, both on the gateway's main thread. Commands read the file
 * (cli/admin-client.ts).
 *
 * Must hold: only its owner can read a new file. The mode of a file that is there already is the operator's
 * affair, and is not checked. The file is created once, also if two processes start together. The comparison
 * takes the same time wherever a wrong token differs (no test).
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { linkSync, readFileSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { OPERATOR_TOKEN } from '../registry/record-id.js';

/** As many as a caller's key and the secret of a console session (sessions.ts) have. */
const TOKEN_BITS = 256;
/** A token that an operator chooses must be hard to guess, and fit a header. TOKEN_RULE says the same. */
const TOKEN_PATTERN = /^[\x21-\x7e]{16,256}$/;
const TOKEN_RULE = 'wanted are 16 to 256 printable ASCII characters without spaces';

/**
 * An expected error: the token breaks TOKEN_RULE, is not for the gateway, or cannot be read. A command
 * prints an error with a `code` without its stack (cli/program.ts).
 */
class TokenError extends Error {
  readonly code = 'no_token';
}

/** `dataPath`, here and below: the data directory. */
export function tokenPath(dataPath: string): string {
  return join(dataPath, 'admin-token');
}

/**
 * Returns `TOLLGATE_ADMIN_TOKEN` if it is set and not empty, else the content of the token's file, else a new
 * token, which it writes to that file. Throws TokenError if the token breaks TOKEN_RULE, or is an operator's:
 * commands read the token of an operator from the same variable, so a mistake is likely. As the gateway's own
 * it would give the role admin, under the name `bootstrap`, and no change of that operator would revoke it.
 *
 * The caller must have opened the store. So the folder is there, and only processes of the caller's own group
 * can run this too, which are in one PID namespace (store/store-hold.ts).
 *
 * A new token is written to a temporary file, which then gets the token's name, unless another process was
 * first. The pid makes the temporary name unique. A crash before the end may leave the temporary file, which
 * nothing reads.
 */
export function obtainAdminToken(dataPath: string, environment: NodeJS.ProcessEnv): string {
  const givenToken = findAdminToken(dataPath, environment);
  if (givenToken !== undefined) {
    if (OPERATOR_TOKEN.test(givenToken)) throw new TokenError(NOT_FOR_GATEWAY);
    return givenToken;
  }
  const path = tokenPath(dataPath);
  const temporaryPath = `${path}.${process.pid}`;
  const token = randomBytes(TOKEN_BITS / 8).toString('base64url');
  writeFileSync(temporaryPath, `${token}\n`, { mode: 0o600, flag: 'w', flush: true });
  try {
    // link() is atomic, and fails if another process was first.
    linkSync(temporaryPath, path);
    return token;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return readToken(path);
  } finally {
    unlinkSync(temporaryPath);
  }
}

/** The error of a token that is an operator's. */
const NOT_FOR_GATEWAY =
  "TOLLGATE_ADMIN_TOKEN, or the file admin-token of the data directory, holds an operator's token, which " +
  "is for commands and the console. As the gateway's own token it would have the role admin, and could not " +
  'be revoked. ' +
  'Start the gateway without the variable, or set it to a token of your own choice; ' +
  'if it is the file, remove it and the next start makes a new one.';

/**
 * As `obtainAdminToken`, but creates no token, and accepts an operator's token too. If `dataPath` is
 * undefined, only the environment is read. Returns undefined if there is no token.
 */
export function findAdminToken(
  dataPath: string | undefined,
  environment: NodeJS.ProcessEnv,
): string | undefined {
  const token = environment.TOLLGATE_ADMIN_TOKEN;
  if (token !== undefined && token !== '') {
    if (!TOKEN_PATTERN.test(token)) throw new TokenError(`TOLLGATE_ADMIN_TOKEN is no token: ${TOKEN_RULE}.`);
    return token;
  }
  if (dataPath === undefined) return undefined;
  try {
    return readToken(tokenPath(dataPath));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Compares a sent token with the admin token, in a time that does not depend on where they differ. */
export class TokenCheck {
  readonly #digest: Buffer;

  constructor(token: string) {
    this.#digest = digestOf(token);
  }

  accepts(sent: string): boolean {
    // Digests, because the comparison needs equal lengths, and must not reveal the token's length.
    return timingSafeEqual(digestOf(sent), this.#digest);
  }
}

/** Throws the system's error if there is no file, and TokenError if it cannot be read or has no token. */
function readToken(path: string): string {
  let token: string;
  try {
    token = readFileSync(path, 'utf8').trim();
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') throw error;
    const [reason, advice] =
      code === 'EACCES'
        ? ['permission denied', `Only ${ownerOf(path)} may read it: run the command as that user (sudo -u)`]
        : [message, 'Look at it'];
    throw new TokenError(
      `${path} cannot be read: ${reason}. ${advice}, or set TOLLGATE_ADMIN_TOKEN to the token.`,
    );
  }
  if (!TOKEN_PATTERN.test(token)) {
    throw new TokenError(
      `${path} holds no token: ${TOKEN_RULE}. Remove the file and the next start makes a new one.`,
    );
  }
  return token;
}

/** Names the owner of the file, by number, because Node does not know the names of other users. */
function ownerOf(path: string): string {
  try {
    return `user ${statSync(path).uid}, who owns it,`;
  } catch {
    // The folder hides who owns the file.
    return 'its owner';
  }
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
