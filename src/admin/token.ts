/**
 * The admin token. The gateway creates and checks it, on its main thread; commands read it.
 *
 * Must hold: only the owner may read the file, and it is created once, also if two processes start together;
 * the comparison takes the same time wherever a wrong token differs (test/unit/admin/token.test.ts).
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { linkSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeDataFolder } from '../store/store-file.js';

/** As many as an API key has. */
const TOKEN_BITS = 256;
/** A token that an operator chooses must be hard to guess, and fit a header. */
const TOKEN = /^[\x21-\x7e]{16,256}$/;
const TOKEN_RULE = 'wanted are 16 to 256 printable ASCII characters without spaces';

export function tokenPath(dataPath: string): string {
  return join(dataPath, 'admin-token');
}

/**
 * Returns `TOLLGATE_ADMIN_TOKEN` if it is set and not empty, else the content of the token's file, else a new
 * token, which it writes to that file. Throws an Error if the token breaks TOKEN_RULE.
 */
export function obtainAdminToken(dataPath: string, environment: NodeJS.ProcessEnv): string {
  const known = findAdminToken(dataPath, environment);
  if (known !== undefined) return known;
  makeDataFolder(dataPath);
  const path = tokenPath(dataPath);
  const temporary = `${path}.${process.pid}`;
  const token = randomBytes(TOKEN_BITS / 8).toString('base64url');
  writeFileSync(temporary, `${token}\n`, { mode: 0o600, flag: 'w', flush: true });
  try {
    // link() is atomic, and fails if another process was first.
    linkSync(temporary, path);
    return token;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return readToken(path);
  } finally {
    unlinkSync(temporary);
  }
}

/** As `obtainAdminToken`, but creates none. Without a folder it reads only the environment. */
export function findAdminToken(
  dataPath: string | undefined,
  environment: NodeJS.ProcessEnv,
): string | undefined {
  const given = environment.TOLLGATE_ADMIN_TOKEN;
  if (given !== undefined && given !== '') {
    if (!TOKEN.test(given)) throw new Error(`TOLLGATE_ADMIN_TOKEN is no token: ${TOKEN_RULE}.`);
    return given;
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

function readToken(path: string): string {
  const token = readFileSync(path, 'utf8').trim();
  if (!TOKEN.test(token)) {
    throw new Error(
      `${path} holds no token: ${TOKEN_RULE}. Remove the file and the next start makes a new one.`,
    );
  }
  return token;
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
