/**
 * The console sessions of operators who are signed in. The browser has a session's random secret in a cookie.
 * authentication.ts opens a session at a sign-in and looks the session up at each request. Main thread of the
 * one gateway process that has the admin interface; all sessions end with that process.
 *
 * Must hold: only the digest of a secret is kept, so that a leak of memory opens no session (no test). An
 * operator with many sessions cannot push out those of others, and an expired session pushes out none. A
 * session whose operator may not go on never does again (test/unit/admin/oidc.test.ts). More tests:
 * test/unit/admin/authentication.session.test.ts, test/unit/admin/operator-routes.test.ts.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { Clock } from '../core/clock.js';
import type { Identify, Operator } from '../core/roles.js';

/** As many as the admin token has (TOKEN_BITS of token.ts). */
const SECRET_BITS = 256;
/** A working day and some hours: an operator signs in again the next morning. */
export const SESSION_SECONDS = 12 * 3_600;
/** More than the browsers of all operators of a gateway. If one more is opened, `#endOldest` ends another. */
const SESSIONS_MAX = 200;
const MS_PER_SECOND = 1_000;

export interface NewSession {
  /** Called at each request. Returns undefined once the operator may not go on. */
  readonly identify: Identify;
  /** The operator's name. */
  readonly who: string;
  /** Where the operator can sign out of the OpenID Connect provider; undefined without one. */
  readonly logoutUrl?: string | undefined;
}

interface Session extends NewSession {
  /** When the session ends, by the monotonic clock. */
  readonly endMs: number;
}

export interface OpenSession {
  /** The operator as of now: the role may have changed since the session was opened. */
  readonly operator: Operator;
  /** Whole seconds until the session expires, at least 1. */
  readonly secondsLeft: number;
}

export class Sessions {
  readonly #clock: Clock;
  /** The sessions by the digest of their secret, oldest first. */
  readonly #sessions = new Map<string, Session>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Opens a session and returns its secret, 43 characters of base64url. The session ends after
   * SESSION_SECONDS, or at the first `find` or `endRevoked` at which `identify` returns undefined.
   */
  open(session: NewSession): string {
    const nowMs = this.#clock.monotonicMs();
    this.#removeExpired(nowMs);
    if (this.#sessions.size >= SESSIONS_MAX) this.#endOldest(session.who);
    const secret = randomBytes(SECRET_BITS / 8).toString('base64url');
    const endMs = nowMs + SESSION_SECONDS * MS_PER_SECOND;
    this.#sessions.set(digestOf(secret), { ...session, endMs });
    return secret;
  }

  /** All sessions last equally long, so those that expire first come first. */
  #removeExpired(nowMs: number): void {
    for (const [digest, { endMs }] of this.#sessions) {
      if (endMs > nowMs) return;
      this.#sessions.delete(digest);
    }
  }

  /**
   * Ends the oldest session of those operators who have the most, so one if several have as many. `newcomer`
   * is about to have one more.
   */
  #endOldest(newcomer: string): void {
    const counts = new Map([[newcomer, 1]]);
    for (const { who } of this.#sessions.values()) counts.set(who, (counts.get(who) ?? 0) + 1);
    const highestCount = Math.max(...counts.values());
    const oldest = [...this.#sessions].find(([, { who }]) => counts.get(who) === highestCount);
    if (oldest !== undefined) this.#sessions.delete(oldest[0]);
  }

  /** Returns undefined if no session has that secret, or the session has ended. */
  find(secret: string): OpenSession | undefined {
    const digest = digestOf(secret);
    const session = this.#sessions.get(digest);
    if (session === undefined) return undefined;
    const remainingMs = session.endMs - this.#clock.monotonicMs();
    const operator = remainingMs > 0 ? session.identify('request') : undefined;
    if (operator !== undefined) return { operator, secondsLeft: Math.ceil(remainingMs / MS_PER_SECOND) };
    this.#sessions.delete(digest);
    return undefined;
  }

  /** Ends each session whose operator may not go on now, or it would go on if the operator may again. */
  endRevoked(): void {
    for (const [digest, { identify }] of this.#sessions)
      if (identify('check') === undefined) this.#sessions.delete(digest);
  }

  /** Ends the session, if there is one, and returns its `logoutUrl`. */
  end(secret: string): string | undefined {
    const digest = digestOf(secret);
    const logoutUrl = this.#sessions.get(digest)?.logoutUrl;
    this.#sessions.delete(digest);
    return logoutUrl;
  }
}

function digestOf(secret: string): string {
  return createHash('sha256').update(secret).digest('base64url');
}
