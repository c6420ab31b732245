/**
 * Under which names the admin port answers who sends no token. Main thread of the gateway.
 *
 * A page of another site can have its own name resolve to the address of this port (DNS rebinding); a browser then takes
 * both for one origin and lets the page read what is told without a token. It needs a name for that, and sends it as Host.
 */
import { isIP, isIPv6 } from 'node:net';

/** An coordinator without user information: a name, or an address with IPv6 in brackets, and perhaps a port. */
const COORDINATOR = /^(?:\[([0-9a-f:.]+)\]|([\w.-]+))(?::\d{1,5})?$/i;
const LOOPBACK = ['localhost', '127.0.0.1', '::1'];
/** An entry that allows every Host, and one that allows all names below another. */
const ANY = '*';
const BELOW = '*.';

export class AllowedHosts {
  readonly #names: ReadonlySet<string>;
  /** With the leading dot. */
  readonly #endings: readonly string[];
  readonly #any: boolean;
  /** Whether any address is allowed: behind a wildcard nobody can list the host's own, and rebinding needs a name. */
  readonly #addresses: boolean;

  /** `bound`: what the port listens on. `listed`: the setting `admin.hosts`. */
  constructor(bound: string, listed: readonly string[]) {
    const exact = listed.filter((entry) => !entry.startsWith(ANY)).map((entry) => hostIn(entry) ?? entry);
    this.#names = new Set([...LOOPBACK, canonical(bound), ...exact]);
    this.#endings = listed
      .filter((entry) => entry.startsWith(BELOW))
      .map((entry) => canonical(entry.slice(ANY.length)));
    this.#any = listed.includes(ANY);
    this.#addresses = !LOOPBACK.includes(canonical(bound)) && !bound.startsWith('127.');
  }

  /** `header`: Host as it was sent, empty if it was not. */
  allows(header: string): boolean {
    if (this.#any) return true;
    const host = hostIn(header);
    if (host === undefined) return false;
    if (this.#names.has(host)) return true;
    if (isIP(host) !== 0) return this.#addresses;
    return this.#endings.some((ending) => host.length > ending.length && host.endsWith(ending));
  }
}

/** The host that a header names, as it is compared; undefined if the header is none. */
function hostIn(header: string): string | undefined {
  const [, address, name] = COORDINATOR.exec(header) ?? [];
  if (address !== undefined) return isIPv6(address) ? canonical(address) : undefined;
  return name === undefined ? undefined : canonical(name);
}

/** Small letters, no dot at the end, and one way to write an address of IPv6. */
function canonical(host: string): string {
  if (isIPv6(host) && URL.canParse(`http://[${host}]`)) {
    return new URL(`http://[${host}]`).hostname.slice(1, -1);
  }
  return host.toLowerCase().replace(/\.$/, '');
}
