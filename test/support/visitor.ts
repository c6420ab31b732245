/** A browser's cookies and redirects for tests, over the plain client: one jar, no scripts. */
import { type Answer, request } from './http.js';

interface Cookie {
  readonly name: string;
  readonly value: string;
  readonly path: string;
}

/** More redirects than any sign-in has. */
const REDIRECTS_MAX = 20;

export interface Visit extends Answer {
  /** Where the answer came from. */
  readonly url: URL;
}

export class Visitor {
  /** By host and port: two servers of a test on one machine are two sites. */
  readonly #jars = new Map<string, Cookie[]>();
  /** All addresses that were asked for, in order. */
  readonly asked: string[] = [];

  /** One request; a redirect is not followed. `form` is posted. */
  async ask(address: string | URL, form?: Readonly<Record<string, string>>): Promise<Visit> {
    const url = new URL(address);
    this.asked.push(url.href);
    const body = form === undefined ? undefined : new URLSearchParams(form).toString();
    const answer = await request({
      port: Number(url.port),
      path: url.pathname + url.search,
      body,
      headers: {
        host: url.host,
        accept: 'text/html',
        cookie: this.cookiesFor(url),
        ...(form === undefined ? {} : { 'content-type': 'application/x-www-form-urlencoded' }),
      },
    });
    for (const line of answer.headers['set-cookie'] ?? []) this.#keep(url, line);
    return Object.assign(answer, { url });
  }

  /** The first answer that is no redirect, or one to an address for which `stop` is true. */
  async follow(first: Visit, stop: (next: URL) => boolean = () => false): Promise<Visit> {
    let visit = first;
    for (let at = 0; at < REDIRECTS_MAX; at++) {
      const { location } = visit.headers;
      if (location === undefined) return visit;
      const next = new URL(location, visit.url);
      if (stop(next)) return visit;
      visit = await this.ask(next);
    }
    throw new Error(`more than ${REDIRECTS_MAX} redirects: ${this.asked.join(' ')}`);
  }

  cookiesFor({ host, pathname }: URL): string {
    return (this.#jars.get(host) ?? [])
      .filter(({ path }) => pathname.startsWith(path))
      .map(({ name, value }) => `${name}=${value}`)
      .join('; ');
  }

  #keep({ host }: URL, line: string): void {
    const [pair = '', ...attributes] = line.split(/; */);
    const [name = '', ...value] = pair.split('=');
    const path = /^path=(.*)$/i.exec(attributes.find((one) => /^path=/i.test(one)) ?? '')?.[1] ?? '/';
    const ended = attributes.some(
      (one) => /^max-age=0$/i.test(one) || /^expires=Thu, 01 Jan 1970/i.test(one),
    );
    const others = (this.#jars.get(host) ?? []).filter((one) => one.name !== name || one.path !== path);
    this.#jars.set(host, ended ? others : [...others, { name, value: value.join('='), path }]);
  }
}
