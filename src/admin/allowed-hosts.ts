/**
 * The values of the header Host with which a request to the admin port needs no token. authentication.ts asks
 * for each request but those of probes. Pure; main thread of the gateway.
 *
 * A page of another site can have its own name resolve to the address of this port (DNS rebinding). A browser
 * then takes both for one origin, and lets the page read responses that need no token. The attack needs a
 * name, and the browser sends that name as Host.
 *
 * Must hold: a name that neither the settings nor loopback have is rejected, however it is written.
 */
import { isIP, isIPv6 } from 'node:net';

/** An authority without user information: a name, or an address (IPv6 in brackets), and perhaps a port. */
const AUTHORITY = /^(?:\[([0-9a-f:.]+)\]|([\w.-]+))(?::\d{1,5})?$/i;
const LOOPBACK = ['localhost', '127.0.0.1', '::1'];
/** The entry of `admin.hosts` that allows every Host. */
const ANY_HOST = '*';
/** The start of an entry that allows all names below a domain: `*.example.org`. */
const SUBDOMAINS = '*.';

export class AllowedHosts {
  readonly #names: ReadonlySet<string>;
  /** Names that end with one of these are allowed. Each ending begins with a dot. */
  readonly #endings: readonly string[];
  readonly #allowsAny: boolean;
  readonly #extraHost: () => string | undefined;
  /**
   * Whether any IP address is allowed. True unless the port listens only on loopback, because nobody can list
   * all addresses of a host, and rebinding needs a name.
   */
  readonly #allowsAddresses: boolean;

  /**
   * `listenHost`: the host that the port listens on. `entries`: the setting `admin.hosts`. `extraHost`:
   * returns one more host, which a reload of the settings may change.
   */
  constructor(
    listenHost: string,
    entries: readonly string[],
    extraHost: () => string | undefined = () => undefined,
  ) {
    this.#extraHost = extraHost;
    const names = entries
      .filter((entry) => !entry.startsWith(ANY_HOST))
      .map((entry) => hostIn(entry) ?? entry);
    this.#names = new Set([...LOOPBACK, canonical(listenHost), ...names]);
    this.#endings = entries
      .filter((entry) => entry.startsWith(SUBDOMAINS))
      .map((entry) => canonical(entry.slice(ANY_HOST.length)));
    this.#allowsAny = entries.includes(ANY_HOST);
    this.#allowsAddresses = !LOOPBACK.includes(canonical(listenHost)) && !listenHost.startsWith('127.');
  }

  /** `header`: the value of the header Host; empty if the request has none. */
  allows(header: string): boolean {
    if (this.#allowsAny) return true;
    const host = hostIn(header);
    if (host === undefined) return false;
    if (this.#names.has(host) || hostIn(this.#extraHost() ?? '') === host) return true;
    if (isIP(host) !== 0) return this.#allowsAddresses;
    return this.#endings.some((ending) => host.length > ending.length && host.endsWith(ending));
  }
}

/** Returns the host that a header names, in canonical form; undefined if the header is not valid. */
function hostIn(header: string): string | undefined {
  const [, address, name] = AUTHORITY.exec(header) ?? [];
  if (address !== undefined) return isIPv6(address) ? canonical(address) : undefined;
  return name === undefined ? undefined : canonical(name);
}

/** Returns the host in lower case, without a dot at the end, and each IPv6 address in one spelling. */
function canonical(host: string): string {
  if (isIPv6(host) && URL.canParse(`http://[${host}]`)) {
    return new URL(`http://[${host}]`).hostname.slice(1, -1);
  }
  return host.toLowerCase().replace(/\.$/, '');
}
