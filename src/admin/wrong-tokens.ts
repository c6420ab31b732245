/**
 * Wrong tokens, counted for each remote address. Main thread.
 *
 * The right token is always taken, from whatever address: an operator must be able to work beside a script that has gone
 * astray on the same host. So this does not make guessing slower than the token's own length does; it keeps a flood of wrong
 * ones from filling logs and eyes, and tells its sender to stop.
 */
import type { Clock } from '../core/clock.js';

/** Answered as wrong in any second; the next are told to wait. */
const WRONG_PER_SECOND_MAX = 5;
const SECOND_MS = 1_000;
/** Addresses that are remembered, about 200 bytes each; the one that began longest ago is forgotten first. */
const ADDRESSES_MAX = 4_096;

const IPV4_BYTES = 4;
/** Who has one address of IPv6 has at least the 2^64 that begin alike. */
const IPV6_NETWORK_BYTES = 8;
const IPV4_IN_IPV6 = '00000000000000000000ffff';

export class WrongTokens {
  readonly #clock: Clock;
  /** Moments of the last wrong tokens of an address, oldest first. */
  readonly #momentsMs = new Map<string, number[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts one; true where it is answered as wrong, false where its sender has to wait. Refused ones are not counted. */
  note(address: ArrayBuffer): boolean {
    const sender = senderOf(address);
    const nowMs = this.#clock.monotonicMs();
    const known = this.#momentsMs.get(sender);
    const moments = known ?? [];
    while (moments.length > 0 && nowMs - moments[0]! >= SECOND_MS) moments.shift();
    if (moments.length >= WRONG_PER_SECOND_MAX) return false;
    moments.push(nowMs);
    if (known === undefined) this.#remember(sender, moments);
    return true;
  }

  #remember(sender: string, moments: number[]): void {
    if (this.#momentsMs.size >= ADDRESSES_MAX) {
      const [oldest] = this.#momentsMs.keys();
      if (oldest !== undefined) this.#momentsMs.delete(oldest);
    }
    this.#momentsMs.set(sender, moments);
  }
}

/** From the bytes of a remote address: 4 of IPv4, 16 of IPv6, which may hold one of IPv4. */
function senderOf(address: ArrayBuffer): string {
  const hex = Buffer.from(address).toString('hex');
  if (address.byteLength === IPV4_BYTES) return hex;
  if (hex.startsWith(IPV4_IN_IPV6)) return hex.slice(IPV4_IN_IPV6.length);
  return hex.slice(0, IPV6_NETWORK_BYTES * 2);
}
