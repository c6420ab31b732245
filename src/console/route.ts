/**
 * Where the operator is: `#/accounts/acct_…`. Kept in the address, so that going back works and a place can be linked to.
 * Browser.
 */
import { useEffect, useState } from 'preact/hooks';

export interface PageAddress {
  readonly page: string;
  /** What is open in it; empty where nothing is. */
  readonly item: string;
}

function read(): PageAddress {
  const [page = '', item = ''] = location.hash.replace(/^#\/?/, '').split('/');
  return { page: page === '' ? 'overview' : page, item: decode(item) };
}

/** An address that somebody has typed may be no encoding of anything. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function addressOf(page: string, item = ''): string {
  return item === '' ? `#/${page}` : `#/${page}/${encodeURIComponent(item)}`;
}

export function go(page: string, item = ''): void {
  location.hash = addressOf(page, item);
}

export function usePageAddress(): PageAddress {
  const [place, setPlace] = useState(read);
  useEffect(() => {
    const onChange = (): void => setPlace(read());
    addEventListener('hashchange', onChange);
    return () => removeEventListener('hashchange', onChange);
  }, []);
  return place;
}
