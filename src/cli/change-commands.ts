/**
 * `tollgate changes …`: the operators' changes, and a check that their chain is whole. program.ts adds the
 * commands; they call the admin interface.
 *
 * Must hold: a broken chain ends with an exit code other than 0 (test/e2e/changes.test.ts).
 */
import type { Command } from 'commander';
import type { ChainView } from '../admin/operator-routes.js';
import type { OperatorChange } from '../registry/operator-change.js';
import { addAdminCommand } from './admin-command.js';
import { queryOf, withAdminClient, withQuery } from './admin-client.js';
import { type DataOptions, momentSeconds, nonEmpty, wholeNumberFrom } from './options.js';
import { printFields, printJson, printLine, printTable, timeText } from './output.js';
import type { Column } from './table.js';

const COLUMNS: readonly Column<OperatorChange>[] = [
  { title: 'NUMBER', text: ({ number }) => String(number), align: 'right' },
  { title: 'TIME', text: ({ at_ms: atMs }) => timeText(Math.floor(atMs / 1_000)), align: 'left' },
  { title: 'WHO', text: ({ who }) => who, align: 'left' },
  { title: 'FROM', text: ({ from }) => from, align: 'left' },
  { title: 'ACTION', text: ({ action }) => action, align: 'left' },
  {
    title: 'TARGET',
    text: ({ target }) => target.name ?? target.id ?? target.type,
    align: 'left',
    cut: true,
  },
  { title: 'CHANGES', text: changesText, align: 'left', cut: true },
];

/** `plan free → paid, status active → disabled`. */
function changesText({ changes }: OperatorChange): string {
  const shown = (value: string | number | boolean | null): string => (value === null ? '-' : String(value));
  return changes.map(({ field, before, after }) => `${field} ${shown(before)} → ${shown(after)}`).join(', ');
}

const ROWS_DEFAULT = 100;
const ROWS_MAX = 1_000_000;
const PAGE_ROWS = 1_000;

interface ListOptions extends DataOptions {
  readonly who?: string;
  readonly action?: string;
  readonly target?: string;
  readonly from?: number;
  readonly to?: number;
  readonly limit: number;
}

export function addChangeCommands(program: Command): void {
  const changes = program
    .command('changes')
    .description(
      'List what operators changed: who, from where, what, before and after; and check the record.',
    );

  addAdminCommand(
    changes,
    'list',
    'List changes, the newest first.',
    'changes list --who ann --action keys',
    'changes list --target acme --json',
  )
    .option('--who <name>', 'of this operator; or bootstrap, command, signal, watch, start', nonEmpty)
    .option('--action <action>', 'such as keys.rotate, or keys for all of keys', nonEmpty)
    .option('--target <target>', 'of this account, key, group, operator … (id or name)', nonEmpty)
    .option(
      '--from <time>',
      'from this moment on: 2030-01-31, 2030-01-31T12:00Z or Unix seconds',
      momentSeconds,
    )
    .option('--to <time>', 'up to this moment', momentSeconds)
    .option(
      '--limit <count>',
      `at most so many, ${ROWS_DEFAULT} by default`,
      wholeNumberFrom(1, ROWS_MAX),
      ROWS_DEFAULT,
    )
    .action(list);

  addAdminCommand(
    changes,
    'verify',
    'Check that no row of the changes was altered, removed or put in. Exits with 1 if one was. Compare the head with the hashes in a copy of the log: it shows whether the newest rows were cut.',
    'changes verify',
  ).action(verify);
}

function list({ who, action, target, from, to, limit, ...place }: ListOptions): Promise<void> {
  return withAdminClient(place, async (client) => {
    const filter = queryOf({ who, action, target, from: from?.toString(), to: to?.toString() });
    const found: OperatorChange[] = [];
    let cursor: string | undefined;
    do {
      const rows = String(Math.min(limit - found.length, PAGE_ROWS));
      const path = withQuery(withQuery('/changes', filter), queryOf({ limit: rows, cursor }));
      const page = (await client.call('GET', path)) as { data: OperatorChange[]; next: string | null };
      found.push(...page.data);
      cursor = page.next ?? undefined;
    } while (cursor !== undefined && found.length < limit);
    if (place.json) printJson({ data: found, next: cursor ?? null });
    else await printTable(COLUMNS, found, 'No changes.');
  });
}

function verify(options: DataOptions): Promise<void> {
  return withAdminClient(options, async (client) => {
    const chain = (await client.call('GET', '/changes/verify')) as ChainView;
    if (options.json) printJson(chain);
    else {
      await printFields([
        ['rows', String(chain.rows)],
        ['from number', String(chain.before.number + 1)],
        ['head', `${chain.head.number} ${chain.head.hash}`],
      ]);
      for (const { number, problem } of chain.problems) printLine(`row ${number}: ${problem}`);
      printLine(chain.ok ? 'The chain is whole.' : 'The chain is broken.');
    }
    if (!chain.ok) process.exitCode = 1;
  });
}
