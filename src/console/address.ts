/**
 * Addresses of the console's pages, such as `#/calls?model=m`: the open page, its open item and its filters
 * are the part of the address after `#` (hash routing), so that going back and links work. Pages use it.
 * Browser.
 *
 * Must hold: no address, from whomever it comes, leads out of the console, except `leaveTo` to the provider
 * that the gateway names (test/e2e/console-oidc.test.ts). While a dialog keeps the page, no address opens
 * another (test/e2e/console-pages.test.ts).
 */
import { useEffect, useState } from 'preact/hooks';
import type { CallsQuery } from '../admin/call-routes.js';
import { isPageKept } from './session.js';

/**
 * In the order of their links (main.tsx). The name of a page is in its address and its link, and names its
 * icon. A new page needs an icon (controls.tsx) and an entry of `pages` in main.tsx: the compiler checks
 * both.
 */
export const PAGES = [
  'overview',
  'accounts',
  'groups',
  'calls',
  'usage',
  'playground',
  'upstreams',
  'settings',
  'changes',
  'operators',
] as const;

export type PageName = (typeof PAGES)[number];

/** The filters of a page, by name. An empty text filters nothing. */
export type Filters = Readonly<Record<string, string>>;

/** The parts of an address such as `#/accounts/acct_…` or `#/calls?model=m`. */
interface PageAddress {
  /** The name of a page, or any text that somebody typed. */
  readonly page: string;
  /** The item that is open in the page; empty if none is. */
  readonly item: string;
  readonly filters: Filters;
}

function readAddress(): PageAddress {
  // A filter that somebody typed may have question marks of its own.
  const [path = '', ...queries] = location.hash.replace(/^#\/?/, '').split('?');
  const [page = '', item = ''] = path.split('/');
  return {
    page: page === '' ? 'overview' : page,
    item: decode(item),
    filters: Object.fromEntries(new URLSearchParams(queries.join('?'))),
  };
}

/** Returns the text as it is if it is not percent-encoded, as somebody may have typed it. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Empty filters are left out. */
export function addressOf(page: PageName, item = '', filters: Filters = {}): string {
  const query = new URLSearchParams(Object.entries(filters).filter(([, text]) => text !== '')).toString();
  return `#/${page}${item === '' ? '' : `/${encodeURIComponent(item)}`}${query === '' ? '' : `?${query}`}`;
}

export function openPage(page: PageName, item = ''): void {
  location.hash = addressOf(page, item);
}

/** Puts filters into the address of a page, without a new entry in the browser's history. */
export function putFilters(page: PageName, filters: Filters): void {
  location.replace(addressOf(page, '', filters));
}

/** The address of the open page. If a dialog keeps the page (session.ts), its address is put back. */
export function usePageAddress(): PageAddress {
  const [address, setAddress] = useState(readAddress);
  useEffect(() => {
    let openHash = location.hash;
    const onChange = (): void => {
      if (isPageKept()) {
        // A new entry of the history, which calls no `hashchange`. `#/`, because an empty text is no address.
        // Of several components that have the address, the first puts it back.
        const address = openHash === '' ? '#/' : openHash;
        if (location.hash !== address) history.pushState(null, '', address);
        return;
      }
      openHash = location.hash;
      setAddress(readAddress());
    };
    addEventListener('hashchange', onChange);
    return () => removeEventListener('hashchange', onChange);
  }, []);
  return address;
}

const RETURN_HASH_KEY = 'tollgate-return';

/** Leaves the console for a sign-in elsewhere. `restoreAddress` then opens the present page again. */
export function leaveTo(url: string): void {
  sessionStorage.setItem(RETURN_HASH_KEY, location.hash);
  location.assign(url);
}

/**
 * Opens the page that `leaveTo` has left, unless the address names a page. Only the hash (from `#` on) was
 * stored, which cannot lead out of the console. main.tsx calls this once, before it reads the address.
 */
export function restoreAddress(): void {
  const hash = sessionStorage.getItem(RETURN_HASH_KEY);
  sessionStorage.removeItem(RETURN_HASH_KEY);
  if (hash !== null && location.hash === '') history.replaceState(null, '', hash === '' ? '#/' : hash);
}

/**
 * The filters of the page of calls are the parameters of `GET /admin/v1/calls`, but for those that choose the
 * part of the list: accounts, groups (with those below) and keys by id or name; `status` such as `500` or
 * `5xx`; `failed` is `true` for calls with an error code; times in Unix seconds. A type, so that the compiler
 * finds a parameter that is missing here.
 */
const CALL_FILTER_NAMES: Readonly<Record<Exclude<keyof CallsQuery, 'limit' | 'cursor' | 'after'>, true>> = {
  account: true,
  group: true,
  key: true,
  model: true,
  upstream: true,
  status: true,
  code: true,
  failed: true,
  from: true,
  to: true,
};
export type CallFilter = keyof typeof CALL_FILTER_NAMES;
export const CALL_FILTERS = Object.keys(CALL_FILTER_NAMES) as readonly CallFilter[];

export type CallFilters = Partial<Readonly<Record<CallFilter, string>>>;

export const callsAddress = (filters: CallFilters): string => addressOf('calls', '', { ...filters });

export const callAddress = (requestId: string): string => addressOf('calls', requestId);
