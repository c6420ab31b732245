/**
 * `tollgate groups …`: groups of accounts and their quotas. program.ts adds the commands; they call the admin
 * interface.
 *
 * Must hold: a tree prints each group after its parent (test/unit/cli/group-commands.test.ts). Names of
 * commands and options are public.
 */
import type { Command } from 'commander';
import type { GroupView } from '../admin/views.js';
import { addAdminCommand, ItemCommands, showList, showView } from './admin-command.js';
import { type AdminOptions, exampleText, parseNonEmpty } from './options.js';
import { printFields, printTable, timeText } from './output.js';
import {
  addLimitOptions,
  CHANGE_OF_LIMITS,
  limitsOf,
  type QuotaLine,
  quotaFields,
  quotaLines,
} from './quota-text.js';
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
  const group = new ItemCommands<GroupView>(groups, 'group', 'id or name', printGroup);
  // `--help` lists the commands in this order.
  addCreateCommand(groups);
  addListCommands(groups);
  group.add('show', 'GET /groups/{group}', 'Show a group, with what is used of its quotas.', [
    'groups show research',
  ]);
  group.add(
    'set-limits',
    'POST /groups/{group}/set-limits',
    'Change limits of a group. Limits that are not named stay, and so does what was used.',
    ['groups set-limits research --spend-per-month 500.00 --tokens-per-day none'],
    CHANGE_OF_LIMITS,
  );
  group.addDelete(
    'DELETE /groups/{group}',
    'Delete a group in which there is no account and no group, and ask before.',
    'groups delete vision --yes',
  );
}

function addCreateCommand(groups: Command): void {
  addLimitOptions(
    addAdminCommand(
      groups,
      'create',
      'Create a group, with limits for all in it together.',
      'groups create research --spend-per-month 250.00',
      'groups create vision --parent research --tokens-per-minute 100000',
    )
      .argument('<name>', 'unique among groups', parseNonEmpty)
      .option('--parent <group>', 'the group that it is in (id or name); it stays there', parseNonEmpty),
    'set',
  ).action((name: string, options: AdminOptions & { parent?: string }) =>
    showView(
      options,
      'POST /groups',
      { body: { name, parent: options.parent, ...limitsOf(options) } },
      printGroup,
      { missingStore: 'create' },
    ),
  );
}

/** Adds `list` and `tree`. */
function addListCommands(groups: Command): void {
  addAdminCommand(
    groups,
    'list',
    'List groups, with what is used of their quotas.',
    'groups list',
    'groups list --parent research --json',
  )
    .option('--parent <group>', 'those in this group (id or name)', parseNonEmpty)
    .action(({ parent, ...options }: AdminOptions & { parent?: string }) =>
      showList(options, 'GET /groups', { query: { parent } }, (data) =>
        printTable(
          LIST_COLUMNS,
          data.flatMap((group) => quotaRowsOf(group, group.name, '')),
          parent === undefined ? NO_GROUPS : 'There is no group in it.',
        ),
      ),
    );

  addAdminCommand(
    groups,
    'tree',
    'Show the groups as a tree, with what is used of each.',
    'groups tree',
    'groups tree research',
  )
    .argument('[group]', 'this one and those below it (id or name); all by default', parseNonEmpty)
    .action((root: string | undefined, options: AdminOptions) =>
      showList(options, 'GET /group-tree', { query: { root } }, (data) =>
        printTable(TREE_COLUMNS, treeRows(data), NO_GROUPS),
      ),
    );
}

/** A row for each quota of a group; one row if it has no quota. Only the first row has the group's names. */
interface GroupRow extends QuotaLine {
  readonly name: string;
  readonly id: string;
  readonly parent: string;
  readonly accounts: string;
}

const NAME_COLUMN: Column<GroupRow> = {
  title: 'GROUP',
  text: ({ name }) => name,
  cut: true,
};
const USE_COLUMNS: readonly Column<GroupRow>[] = [
  { title: 'ACCOUNTS', text: ({ accounts }) => accounts, align: 'right' },
  { title: 'QUOTA', text: ({ quota }) => quota },
  { title: 'USED', text: ({ used }) => used },
  { title: 'HELD', text: ({ held }) => held, align: 'right' },
  { title: 'RESETS', text: ({ resets }) => resets },
];
const LIST_COLUMNS: readonly Column<GroupRow>[] = [
  NAME_COLUMN,
  { title: 'ID', text: ({ id }) => id },
  { title: 'IN', text: ({ parent }) => parent, cut: true },
  ...USE_COLUMNS,
];
const TREE_COLUMNS: readonly Column<GroupRow>[] = [NAME_COLUMN, ...USE_COLUMNS];

/** In place of the quotas of a group that has none. */
const NO_QUOTA: QuotaLine = { quota: 'none', used: '', held: '', leased: '', resets: '' };

/** Returns one row for each quota. `textBelow` takes the place of the name in the rows after the first. */
function quotaRowsOf(group: GroupView, name: string, textBelow: string): GroupRow[] {
  const lines = quotaLines(group.quotas);
  return (lines.length > 0 ? lines : [NO_QUOTA]).map((line, index) =>
    index === 0
      ? { ...line, name, id: group.id, parent: group.path.at(-2) ?? '', accounts: String(group.accounts) }
      : { ...line, name: textBelow, id: '', parent: '', accounts: '' },
  );
}

/**
 * Returns rows with the branches of the tree before the names. In `groups` each group is followed by the
 * groups in it, as `/group-tree` lists them. So each group of the first one's depth is a root.
 */
export function treeRows(groups: readonly GroupView[]): GroupRow[] {
  const rootDepth = groups[0]?.path.length ?? 0;
  // By depth: whether a later group has that depth and the same parent. So groups are visited from the end.
  let hasLater: boolean[] = [];
  const rowsFromEnd = groups.toReversed().map((group) => {
    const depth = group.path.length;
    const isParent = hasLater[depth + 1] === true;
    // From the level below the roots to that of the group: whether a line goes on to a later group.
    const isContinued = Array.from(
      { length: depth - rootDepth },
      (_, level) => hasLater[rootDepth + 1 + level] ?? false,
    );
    const stems = isContinued.map((goesOn) => (goesOn ? '│  ' : '   '));
    const branch = isContinued.length === 0 ? '' : isContinued.at(-1) ? '├─ ' : '└─ ';
    const name = `${stems.slice(0, -1).join('')}${branch}${group.name}`;
    // The groups that are visited next come before this one. So groups of deeper levels end here.
    hasLater = [...Array.from({ length: depth }, (_, level) => hasLater[level] ?? false), true];
    return quotaRowsOf(group, name, `${stems.join('')}${isParent ? '│' : ''}`);
  });
  return rowsFromEnd.toReversed().flat();
}

function printGroup(group: GroupView): Promise<void> {
  const quotas = quotaFields(group.quotas);
  const parents = group.path.slice(0, -1);
  return printFields([
    ['name', group.name],
    ['id', group.id],
    ...(parents.length === 0 ? [] : [['in', parents.join(' / ')] as const]),
    ['accounts', String(group.accounts)],
    ['groups', String(group.groups)],
    ...(quotas.length === 0 ? [['quotas', 'none'] as const] : quotas),
    ['created', timeText(group.created)],
  ]);
}
