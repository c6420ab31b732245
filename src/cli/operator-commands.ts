/**
 * `tollgate operators …`: operators, their tokens and roles. `tollgate changes …`: what operators changed,
 * and whether the chain of changes is whole. program.ts adds the commands, which call the admin interface.
 *
 * Must hold: a new token is printed once, and nothing stores it (test/e2e/operator-roles.test.ts). If the
 * chain is broken, the exit code is not 0 (test/e2e/changes.test.ts).
 */
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { CreatedOperatorView, OperatorView } from '../admin/operator-routes.js';
import { ROLES } from '../core/roles.js';
import type { OperatorChange } from '../registry/operator-change.js';
import { type ClientOptions, type RequestInput, withAdminClient } from './admin-client.js';
import { readList } from './admin-lists.js';
import { addAdminCommand, ItemCommands, printIfMore, showView } from './admin-command.js';
import {
  type AdminOptions,
  endSeconds,
  lifeSeconds,
  momentSeconds,
  parseNonEmpty,
  wholeNumberFrom,
} from './options.js';
import {
  activeText,
  EXIT_FAILED,
  printFields,
  printLine,
  printTable,
  timeOrNever,
  timeText,
  printJson,
} from './output.js';
import type { Column } from './table.js';

const OPERATOR_COLUMNS: readonly Column<OperatorView>[] = [
  { title: 'NAME', text: ({ name }) => name, cut: true },
  { title: 'ID', text: ({ id }) => id },
  { title: 'ROLE', text: ({ role }) => role },
  { title: 'ACTIVE', text: activeText },
  { title: 'EXPIRES', text: ({ expires }) => timeOrNever(expires) },
  { title: 'LAST USED', text: ({ last_used: used }) => timeOrNever(used) },
];

/** `token`: the text of a new token; undefined if none was made. No token is stored. */
async function printOperator(operator: OperatorView, token?: string): Promise<void> {
  await printFields([
    ['name', operator.name],
    ['id', operator.id],
    ['role', operator.role],
    ['active', activeText(operator)],
    ['created', timeText(operator.created)],
    ['expires', timeOrNever(operator.expires)],
    ['last used', timeOrNever(operator.last_used)],
    ...(token === undefined ? [] : [['token', token] as const]),
  ]);
}

/** Fields of a request's body. One is set: `expires` in Unix seconds, or `expires_in` in seconds. */
interface Expiry {
  readonly expires?: number;
  readonly expires_in?: number;
}

/** Parses a duration with a unit (of `lifeSeconds`), or a moment. A number without a unit is Unix seconds. */
function parseExpiry(text: string): Expiry {
  try {
    return /^\d+[a-z]$/.test(text) ? { expires_in: lifeSeconds(text) } : { expires: momentSeconds(text) };
  } catch {
    throw new InvalidArgumentError(
      'Want 24h, 90d …, or a moment: 2030-01-31, 2030-01-31T12:00Z or Unix seconds.',
    );
  }
}

const OPERATOR_ARGUMENT = "the operator's id or name";
const EXPIRES_FLAGS = '--expires <when>';
const EXPIRES_HELP = 'reject the token after 24h, 90d …, or from a moment on: 2030-01-31, 2030-01-31T12:00Z';

function roleOption(): Option {
  return new Option('--role <role>', 'what the operator may do').choices([...ROLES]).makeOptionMandatory();
}

export function addOperatorCommands(program: Command): void {
  const operators = program
    .command('operators')
    .description(
      'Create, list, show, change, disable and delete operators: named tokens for the admin interface.',
    );
  const operator = new ItemCommands<OperatorView>(operators, 'operator', OPERATOR_ARGUMENT, (view) =>
    printOperator(view),
  );
  // `--help` lists the commands in this order.
  addCreateCommand(operators);
  addAdminCommand(operators, 'list', 'List operators by name.', 'operators list').action(
    (options: AdminOptions) =>
      showView(options, 'GET /operators', {}, ({ data }) =>
        printTable(OPERATOR_COLUMNS, data, 'There are no operators: see "operators create --help".'),
      ),
  );
  operator.add('show', 'GET /operators/{operator}', 'Show an operator.', ['operators show ann']);
  operator.add(
    'set-role',
    'POST /operators/{operator}/set-role',
    'Change the role of an operator, from its next request on.',
    ['operators set-role ann --role finance'],
    {
      configure: (command) => command.addOption(roleOption()),
      bodyOf: ({ role }: { role: string }) => ({ role }),
    },
  );
  addRotateCommand(operators);
  operator.add(
    'disable',
    'POST /operators/{operator}/disable',
    'Reject the token of an operator from now on, and end its sessions.',
    ['operators disable ann'],
  );
  operator.add(
    'enable',
    'POST /operators/{operator}/enable',
    'Accept the token of a disabled operator again.',
    ['operators enable ann'],
  );
  operator.addDelete(
    'DELETE /operators/{operator}',
    'Delete an operator permanently, and ask before.',
    'operators delete ann --yes',
  );
}

function addCreateCommand(operators: Command): void {
  addAdminCommand(
    operators,
    'create',
    'Create an operator. Its token is shown only once; set it as TOLLGATE_ADMIN_TOKEN, or sign in with it.',
    'operators create ann --role support --expires 90d',
  )
    .argument('<name>', 'letters, digits and . _ @ + -; unique', parseNonEmpty)
    .addOption(roleOption())
    .option(EXPIRES_FLAGS, EXPIRES_HELP, parseExpiry)
    .action((name: string, options: AdminOptions & { role: string; expires?: Expiry }) =>
      printToken(
        options,
        'POST /operators',
        { body: { name, role: options.role, ...options.expires } },
        { missingStore: 'create' },
      ),
    );
}

function addRotateCommand(operators: Command): void {
  addAdminCommand(
    operators,
    'rotate',
    'Replace the token by a new one, which is shown only once. The old token is rejected at once.',
    'operators rotate ann --expires 90d',
  )
    .argument('<operator>', OPERATOR_ARGUMENT, parseNonEmpty)
    .option(EXPIRES_FLAGS, `${EXPIRES_HELP}; as the old one by default`, parseExpiry)
    .action((operator: string, options: AdminOptions & { expires?: Expiry }) =>
      printToken(options, 'POST /operators/{operator}/rotate', {
        id: operator,
        body: options.expires ?? {},
      }),
    );
}

/** The routes that make a token. */
type TokenRoute = 'POST /operators' | 'POST /operators/{operator}/rotate';

/** Calls a route that makes a token, and prints the operator with the token. */
function printToken<Name extends TokenRoute>(
  options: AdminOptions,
  route: Name,
  input: RequestInput<Name>,
  clientOptions?: ClientOptions,
): Promise<void> {
  const print = async (created: CreatedOperatorView): Promise<void> => {
    await printOperator(created, created.token);
    printLine('Keep the token now: it cannot be shown again.');
  };
  return showView(options, route, input, print, clientOptions);
}

const CHANGE_COLUMNS: readonly Column<OperatorChange>[] = [
  { title: 'NUMBER', text: ({ number }) => String(number), align: 'right' },
  { title: 'TIME', text: ({ at_ms: atMs }) => timeText(Math.floor(atMs / 1_000)) },
  { title: 'WHO', text: ({ who }) => who },
  // The address of the client, or a command's system user. (The option --from is a time.)
  { title: 'FROM', text: ({ from }) => from },
  { title: 'ACTION', text: ({ action }) => action },
  {
    title: 'TARGET',
    text: ({ target }) => target.name ?? target.id ?? target.type,
    cut: true,
  },
  { title: 'CHANGES', text: changesText, cut: true },
];

/** Returns the fields that changed: `plan free → paid, status active → disabled`. */
function changesText({ changes }: OperatorChange): string {
  return changes
    .map(({ field, before, after }) => {
      // A whole entry of the settings was added or removed, as its field says: `plans.free (added)`.
      if (before === null && after === null) return field;
      return `${field} ${valueText(field, before)} → ${valueText(field, after)}`;
    })
    .join(', ');
}

function valueText(field: string, value: string | number | boolean | null): string {
  if (value === null) return '-';
  return field === 'expires' && typeof value === 'number' ? timeText(value) : String(value);
}

const CHANGES_DEFAULT = 100;
/** A bound, because all changes are in memory before the first is printed. */
const CHANGES_MAX = 1_000_000;

interface ChangeListOptions extends AdminOptions {
  readonly who?: string;
  readonly action?: string;
  readonly target?: string;
  readonly from?: number;
  readonly to?: number;
  readonly limit: number;
}

/**
 * Adds `tollgate changes …`. Not every change is made by an operator with a name, so `--who` takes further
 * names. `bootstrap` is whoever has the admin token, `command` a command while no gateway runs, and `start`
 * a gateway at its start. `signal` is a reload after a signal to the supervisor, and `watch` a reload after
 * a change of the settings file.
 */
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
    .option('--who <name>', 'of this operator; or bootstrap, command, signal, watch, start', parseNonEmpty)
    .option('--action <action>', 'such as keys.rotate, or keys for all of keys', parseNonEmpty)
    .option('--target <target>', 'of this account, key, group, operator … (id or name)', parseNonEmpty)
    .option(
      '--from <time>',
      'from this moment on: 2030-01-31, 2030-01-31T12:00Z or Unix seconds',
      momentSeconds,
    )
    .option('--to <time>', 'up to this moment; a day belongs to it', endSeconds)
    .option('--limit <count>', 'at most so many', wholeNumberFrom(1, CHANGES_MAX), CHANGES_DEFAULT)
    .action(listChanges);

  addAdminCommand(
    changes,
    'verify',
    'Check that no row of the changes was altered, removed or put in. Exits with 1 if one was. Compare the head with the hashes in a copy of the log: it shows whether the newest rows were cut.',
    'changes verify',
  ).action(verifyChanges);
}

/** Prints the newest changes that match. */
function listChanges(options: ChangeListOptions): Promise<void> {
  const { who, action, target, from, to, limit } = options;
  return withAdminClient(options, async (client) => {
    const query = { who, action, target, from: from?.toString(), to: to?.toString() };
    const list = await readList(client, 'GET /changes', { query }, limit);
    if (options.json === true) {
      printJson(list);
      return;
    }
    await printTable(CHANGE_COLUMNS, list.data, 'No changes.');
    printIfMore(list);
  });
}

/**
 * Prints whether the chain of changes is whole, and its head. The chain cannot show that its newest rows were
 * removed. So the operator compares the head with the gateway's log on standard error, which has each change
 * with its hash, whatever the level (changeLogger in gateway/accounting-base.ts).
 */
function verifyChanges(options: AdminOptions): Promise<void> {
  return withAdminClient(options, async (client) => {
    const chain = await client.call('GET /changes/verify', {});
    if (options.json) printJson(chain);
    else {
      await printFields([
        ['rows', String(chain.rows)],
        // `before` is the row before the oldest that is kept. Rows have numbers without gaps.
        ['from number', String(chain.before.number + 1)],
        ['head', `${chain.head.number} ${chain.head.hash}`],
      ]);
      for (const { number, problem } of chain.problems) printLine(`row ${number}: ${problem}`);
      printLine(chain.ok ? 'The chain is whole.' : 'The chain is broken.');
    }
    if (!chain.ok) process.exitCode = EXIT_FAILED;
  });
}
