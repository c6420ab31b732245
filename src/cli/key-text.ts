/**
 * How commands show keys to people. Pure.
 */
import type { KeyView } from '../admin/key-view.js';
import { timeText } from './output.js';
import type { Column } from './table.js';

export const KEY_COLUMNS: readonly Column<KeyView>[] = [
  { title: 'NAME', text: ({ name }) => name, align: 'left', cut: true },
  { title: 'ID', text: ({ id }) => id, align: 'left' },
  { title: 'ACCOUNT', text: ({ account_name: name }) => name, align: 'left', cut: true },
  { title: 'KEY', text: ({ prefix }) => prefix, align: 'left' },
  { title: 'ACTIVE', text: activeText, align: 'left' },
  { title: 'LAST USED', text: lastUsedText, align: 'left' },
  { title: 'CREATED', text: ({ created }) => timeText(created), align: 'left' },
];

/** `shown` is the key itself when it is new, else its beginning. Limits and successors are told where there are any. */
export function keyFields(key: KeyView, shown: string): (readonly [string, string])[] {
  const fields: (readonly [string, string])[] = [
    ['name', key.name],
    ['id', key.id],
    ['account', `${key.account_name} (${key.account})`],
    ['active', activeText(key)],
    ['created', timeText(key.created)],
    ['last used', lastUsedText(key)],
    ['expires', key.expires === null ? 'never' : timeText(key.expires)],
  ];
  if (key.requests_per_minute !== null) fields.push(['requests per minute', String(key.requests_per_minute)]);
  if (key.calls_per_day !== null) fields.push(['calls per day', String(key.calls_per_day)]);
  if (key.replaced_by !== null) fields.push(['replaced by', key.replaced_by]);
  fields.push(['key', shown]);
  return fields;
}

function activeText({ active, expired }: KeyView): string {
  if (!active) return 'no';
  return expired ? 'expired' : 'yes';
}

function lastUsedText({ last_used: lastUsed }: KeyView): string {
  return lastUsed === null ? 'never' : timeText(lastUsed);
}
