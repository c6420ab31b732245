/**
 * Operators who are signed in to the console. Main thread of the gateway, which forgets them when it ends.
 *
 * A session is a random secret in a cookie; only its digest is kept, so that what leaks from memory opens nothing.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { Clock } from '../core/clock.js';

/** As much as the admin token has. */
const SECRET_BITS = 256;
/** A working day and some hours: who comes back the next morning signs in again. */
export const SESSION_SECONDS = 12 * 3_600;
/** Operators of one gateway and their browsers, with room; the one that signed in longest ago makes place. */
const SESSIONS_MAX = 200;
const MS_PER_SECOND = 1_000;

export class Sessions {
  readonly #clock: Clock;
  /** By digest, in the order of signing in: the moment when they end. */
  readonly #endMs = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Opens one and returns its secret, 43 characters of base64url. */
  open(): string {
    if (this.#endMs.size >= SESSIONS_MAX) {
      const [oldest] = this.#endMs.keys();
      if (oldest !== undefined) this.#endMs.delete(oldest);
    }
    const secret = randomBytes(SECRET_BITS / 8).toString('base64url');
    this.#endMs.set(digestOf(secret), this.#clock.monotonicMs() + SESSION_SECONDS * MS_PER_SECOND);
    return secret;
  }

  /** Whole seconds that it still lasts; 0 where there is none of that secret, or none any more. */
  secondsLeft(secret: string): number {
    const digest = digestOf(secret);
    const leftMs = (this.#endMs.get(digest) ?? -Infinity) - this.#clock.monotonicMs();
    if (leftMs > 0) return Math.ceil(leftMs / MS_PER_SECOND);
    this.#endMs.delete(digest);
    return 0;
  }

  end(secret: string): void {
    this.#endMs.delete(digestOf(secret));
  }
}

function digestOf(secret: string): string {
  return createHash('sha256').update(secret).digest('base64url');
}
