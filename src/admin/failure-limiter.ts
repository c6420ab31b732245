/**
 * Rate limit of failed authentications by sender: of wrong tokens (authentication.ts) and of failed sign-ins
 * at an OpenID Connect provider (oidc.ts). It keeps a flood of failures out of the logs, and asks the sender
 * to stop. What protects against guessing is the length of the token. Pure; main thread of the gateway.
 *
 * Must hold: a right token is never limited, so callers count a token only once it is known to be wrong. An
 * operator must be able to work beside a broken script on the same host.
 */
import type { Clock } from '../core/clock.js';

/** How many failures of one sender are counted in any PERIOD_SECONDS, before `record` returns false. */
const FAILURES_MAX = 5;
/** After this time without a failure `record` returns true again. authentication.ts tells the sender so. */
export const PERIOD_SECONDS = 1;
/** How many senders are recorded, about 200 bytes each. The sender that came first is dropped first. */
const SENDERS_MAX = 4_096;

const IPV4_BYTES = 4;
/** The smallest network that a user of IPv6 gets: 2^64 addresses with the same first bytes. */
const IPV6_NETWORK_BYTES = 8;
const IPV4_IN_IPV6 = '00000000000000000000ffff';

/**
 * Records for each sender when its last failures came (a sliding log). A sender is an IPv4 address or an IPv6
 * network (`senderOf`).
 */
export class FailureLimiter {
  readonly #clock: Clock;
  /** By sender: when its last failures came (monotonic), oldest first, at most FAILURES_MAX. */
  readonly #timesMs = new Map<string, number[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Counts a failure and returns true; or returns false, without counting it, if its sender must wait.
   * `address`: see `senderOf`.
   */
  record(address: ArrayBuffer): boolean {
    const sender = senderOf(address);
    const nowMs = this.#clock.monotonicMs();
    const recordedMs = this.#timesMs.get(sender);
    const timesMs = recordedMs ?? [];
    while (timesMs.length > 0 && nowMs - timesMs[0]! >= PERIOD_SECONDS * 1_000) timesMs.shift();
    if (timesMs.length >= FAILURES_MAX) return false;
    timesMs.push(nowMs);
    if (recordedMs === undefined) this.#addSender(sender, timesMs);
    return true;
  }

  #addSender(sender: string, timesMs: number[]): void {
    if (this.#timesMs.size >= SENDERS_MAX) {
      const [firstSender] = this.#timesMs.keys();
      if (firstSender !== undefined) this.#timesMs.delete(firstSender);
    }
    this.#timesMs.set(sender, timesMs);
  }
}

/**
 * Returns the IPv4 address, or the first bytes of an IPv6 address, as hex digits. `address`: 4 bytes of IPv4,
 * or 16 of IPv6, which may hold an address of IPv4.
 */
function senderOf(address: ArrayBuffer): string {
  const hex = Buffer.from(address).toString('hex');
  if (address.byteLength === IPV4_BYTES) return hex;
  if (hex.startsWith(IPV4_IN_IPV6)) return hex.slice(IPV4_IN_IPV6.length);
  return hex.slice(0, IPV6_NETWORK_BYTES * 2);
}
