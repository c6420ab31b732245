/** `tollgate groups …`: groups of accounts and their quotas, over the admin interface. */
import type { Command } from 'commander';
import type { GroupView } from '../admin/views.js';
import { type AdminClient, listAll, queryOf, withAdminClient, withQuery } from './admin-client.js';
import {
  addConfirmation,
  addDataOptions,
  confirm,
  type ConfirmationOptions,
  type DataOptions,
  exampleText,
  nonEmpty,
} from './options.js';
import { Misuse, printFields, printJson, printLine, printTable, timeText } from './output.js';
import { addLimitOptions, limitsOf, type QuotaLine, quotaFields, quotaLines } from './quota-text.js';
import type { Column } from './table.js';

const NO_GROUPS = 'There are no groups: see "groups create --help".';

export function addGroupCommands(program: Command): void {
  const groups = program
    .command('groups')
    .description('Create, list, limit and delete groups of accounts, which share quotas.')
    .addHelpText(
      'after',
      exampleText('groups create research --spend-per-month 250.00', 'groups tree', 'accounts create --help'),
    );

  addLimitOptions(
    addDataOptions(
      groups.command('create').description('Create a group, with limits for all in it together.'),
    )
      .argument('<name>', 'unique among groups', nonEmpty)
      .option('--parent <group>', 'the group that it is in (id or name); it stays there', nonEmpty),
    'set',
  )
    .addHelpText(
      'after',
      exampleText(
        'groups create research --spend-per-month 250.00',
        'groups create vision --parent research --tokens-per-minute 100000',
      ),
    )
    .action((name: string, options: DataOptions & { parent?: string }) =>
      showGroup(options, (client) =>
        client.call('POST', '/groups', { name, parent: options.parent, ...limitsOf(options) }),
      ),
    );

  addDataOptions(groups.command('list').description('List groups, with what is used of their quotas.'))
    .option('--parent <group>', 'those in this group (id or name)', nonEmpty)
    .addHelpText('after', exampleText('groups list', 'groups list --parent research --json'))
    .action((options: DataOptions & { parent?: string }) =>
      withAdminClient(options, async (client) => {
        const path = withQuery('/groups', queryOf({ parent: options.parent }));
        const data = await listAll<GroupView>(client, path);
        if (options.json) printJson({ data, next: null });
        else
          await printTable(
            LIST_COLUMNS,
            data.flatMap((group) => rowsOf(group, group.name, '')),
            options.parent === undefined ? NO_GROUPS : 'There is no group in it.',
          );
      }),
    );

  addDataOptions(groups.command('tree').description('Show the groups as a tree, with what is used of each.'))
    .argument('[group]', 'this one and those below it (id or name); all by default', nonEmpty)
    .addHelpText('after', exampleText('groups tree', 'groups tree research'))
    .action((root: string | undefined, options: DataOptions) =>
      withAdminClient(options, async (client) => {
        const data = await listAll<GroupView>(client, withQuery('/group-tree', queryOf({ root })));
        if (options.json) printJson({ data, next: null });
        else await printTable(TREE_COLUMNS, treeRows(data), NO_GROUPS);
      }),
    );

  addDataOptions(groups.command('show').description('Show a group, with what is used of its quotas.'))
    .argument('<group>', 'id or name', nonEmpty)
    .addHelpText('after', exampleText('groups show research'))
    .action((group: string, options: DataOptions) =>
      showGroup(options, (client) => client.call('GET', pathOf(group))),
    );

  addLimitOptions(
    addDataOptions(
      groups
        .command('set-limits')
        .description('Change limits of a group. Limits that are not named stay, and so does what was used.'),
    ).argument('<group>', 'id or name', nonEmpty),
    'change',
  )
    .addHelpText(
      'after',
      exampleText('groups set-limits research --spend-per-month 500.00 --tokens-per-day none'),
    )
    .action((group: string, options: DataOptions) => {
      const limits = changedLimitsOf(options);
      return showGroup(options, (client) => client.call('POST', `${pathOf(group)}/set-limits`, limits));
    });

  addConfirmation(
    addDataOptions(
      groups
        .command('delete')
        .description('Delete a group in which there is no account and no group, and ask before.'),
    ),
  )
    .argument('<group>', 'id or name', nonEmpty)
    .addHelpText('after', exampleText('groups delete vision --yes'))
    .action(async (group: string, options: DataOptions & ConfirmationOptions) => {
      await confirm(`Delete group ${group} permanently?`, options);
      await withAdminClient(options, async (client) => {
        const response = (await client.call('DELETE', pathOf(group))) as { id: string };
        if (options.json) printJson(response);
        else printLine(`Deleted ${response.id}.`);
      });
    });
}

/** The limits that the options of a `set-limits` give. Throws Misuse if there are none. */
export function changedLimitsOf(options: object): object {
  const limits = limitsOf(options);
  if (Object.keys(limits).length > 0) return limits;
  throw new Misuse('Nothing to change: give a limit, such as --tokens-per-day 100000, or --help.');
}

/** One row for each quota of a group; names are in its first row alone. */
interface GroupRow extends QuotaLine {
  readonly name: string;
  readonly id: string;
  readonly parent: string;
  readonly accounts: string;
}

const NAME_COLUMN: Column<GroupRow> = {
  title: 'GROUP',
  text: ({ name }) => name,
  align: 'left',
  cut: true,
};
const USE_COLUMNS: readonly Column<GroupRow>[] = [
  { title: 'ACCOUNTS', text: ({ accounts }) => accounts, align: 'right' },
  { title: 'QUOTA', text: ({ quota }) => quota, align: 'left' },
  { title: 'USED', text: ({ used }) => used, align: 'left' },
  { title: 'HELD', text: ({ held }) => held, align: 'right' },
  { title: 'RESETS', text: ({ resets }) => resets, align: 'left' },
];
const LIST_COLUMNS: readonly Column<GroupRow>[] = [
  NAME_COLUMN,
  { title: 'ID', text: ({ id }) => id, align: 'left' },
  { title: 'IN', text: ({ parent }) => parent, align: 'left', cut: true },
  ...USE_COLUMNS,
];
const TREE_COLUMNS: readonly Column<GroupRow>[] = [NAME_COLUMN, ...USE_COLUMNS];

const NO_QUOTA: QuotaLine = { quota: 'none', used: '', held: '', leased: '', resets: '' };

/** `below`: what stands under the name in the rows after the first. */
function rowsOf(group: GroupView, name: string, below: string): GroupRow[] {
  const lines = quotaLines(group.quotas);
  return (lines.length > 0 ? lines : [NO_QUOTA]).map((line, at) =>
    at === 0
      ? { ...line, name, id: group.id, parent: group.path.at(-2) ?? '', accounts: String(group.accounts) }
      : { ...line, name: below, id: '', parent: '', accounts: '' },
  );
}

/** Rows with the branches of the tree drawn before the names. Each group is followed by those in it. */
export function treeRows(groups: readonly GroupView[]): GroupRow[] {
  const top = groups[0]?.path.length ?? 0;
  /** By depth: whether a group of that depth follows below the same parent. Filled from the end. */
  let follows: boolean[] = [];
  const drawn = groups.toReversed().map((group) => {
    const depth = group.path.length;
    const isParent = follows[depth + 1] === true;
    const branches = follows.slice(top + 1, depth + 1);
    for (let level = top + 1 + branches.length; level <= depth; level++) branches.push(false);
    const lines = branches.map((more) => (more ? '│  ' : '   '));
    const last = branches.at(-1);
    const before = [...lines.slice(0, -1), last === undefined ? '' : last ? '├─ ' : '└─ '].join('');
    follows = [...Array.from({ length: depth }, (_, level) => follows[level] ?? false), true];
    return rowsOf(group, `${before}${group.name}`, `${lines.join('')}${isParent ? '│' : ''}`);
  });
  return drawn.toReversed().flat();
}

function showGroup(options: DataOptions, call: (client: AdminClient) => Promise<unknown>): Promise<void> {
  return withAdminClient(options, async (client) => {
    const group = (await call(client)) as GroupView;
    if (options.json) printJson(group);
    else await printFields(fieldsOf(group));
  });
}

function fieldsOf(group: GroupView): (readonly [string, string])[] {
  const quotas = quotaFields(group.quotas);
  const above = group.path.slice(0, -1);
  return [
    ['name', group.name],
    ['id', group.id],
    ...(above.length === 0 ? [] : [['in', above.join(' / ')] as const]),
    ['accounts', String(group.accounts)],
    ['groups', String(group.groups)],
    ...(quotas.length === 0 ? [['quotas', 'none'] as const] : quotas),
    ['created', timeText(group.created)],
  ];
}

function pathOf(group: string): string {
  return `/groups/${encodeURIComponent(group)}`;
}
