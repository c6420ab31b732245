/**
 * Reads lists of the admin interface page by page, for commands. Process of a command.
 *
 * Must hold: no more items are asked for than are wanted, and a page that no gateway sends ends the list
 * (test/unit/cli/admin-client.test.ts).
 */
import { PAGE_ITEMS_MAX } from '../admin/addresses.js';
import type { RouteViews } from '../admin/routes.js';
import { type AdminClient, foreignText, type RequestInput } from './admin-client.js';
import { CommandError } from './output.js';

interface Page<Item> {
  readonly data: readonly Item[];
  /** The cursor of the items that follow; null if none do. */
  readonly next: string | null;
  /** Files that could not be read, so that items may be missing. Only lists of calls have it. */
  readonly unread?: readonly string[];
}

/** The lists that have pages: only their routes take `limit` and `cursor`. */
export type PagedRoute =
  | 'GET /accounts'
  | 'GET /accounts/{account}/credits'
  | 'GET /calls'
  | 'GET /changes'
  | 'GET /group-tree'
  | 'GET /groups'
  | 'GET /keys'
  | 'GET /usage'
  | 'GET /usage/rows';

/** The type of the items of a list. */
export type ItemOf<Name extends PagedRoute> = RouteViews[Name]['data'][number];

/** Returns what a command says if calls may be missing. `unread`: `unread` of a Page. */
export const unreadText = (unread: readonly string[]): string =>
  `Calls may be missing: files of the call log cannot be read (${unread.join('; ')}).`;

/**
 * Visits the items of a list page by page, at most `itemsMax`. Reads the next page when `visit` has resolved,
 * so memory holds one page. A page may be empty although others follow. Resolves with the cursor of the items
 * that were not visited; null if all were. `unread`: that of the page, or an empty list.
 */
export async function eachPage<Name extends PagedRoute>(
  client: AdminClient,
  route: Name,
  input: RequestInput<Name>,
  visit: (items: readonly ItemOf<Name>[], unread: readonly string[]) => Promise<void> | void,
  itemsMax = Infinity,
): Promise<string | null> {
  let remaining = itemsMax;
  let cursor: string | null = null;
  do {
    const limit = String(Math.min(remaining, PAGE_ITEMS_MAX));
    const query = { ...input.query, limit, cursor: cursor ?? undefined };
    // `Partial`, because what is no gateway may send any object.
    const page: Partial<Page<ItemOf<Name>>> = await client.call(route, { ...input, query });
    const { data, next, unread = [] } = page;
    // Without a `next` the first page would be read again and again.
    if (data === undefined || next === undefined) throw new CommandError(foreignText(200, 'GET'));
    await visit(data, unread);
    remaining -= data.length;
    cursor = next;
  } while (remaining > 0 && cursor !== null);
  return cursor;
}

/** As `eachPage`, but resolves with the items, as one page. */
export async function readList<Name extends PagedRoute>(
  client: AdminClient,
  route: Name,
  input: RequestInput<Name>,
  itemsMax?: number,
): Promise<Page<ItemOf<Name>>> {
  const data: ItemOf<Name>[] = [];
  const allUnread = new Set<string>();
  const visit = (items: readonly ItemOf<Name>[], unread: readonly string[]): void => {
    data.push(...items);
    for (const file of unread) allUnread.add(file);
  };
  const next = await eachPage(client, route, input, visit, itemsMax);
  return { data, next, ...(allUnread.size > 0 && { unread: [...allUnread] }) };
}
