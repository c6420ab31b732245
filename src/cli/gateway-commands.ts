/**
 * Commands for a running gateway: `tollgate reload`, `log`, `health` and `hosts …`. program.ts adds the
 * commands. All but `health` call the admin interface; `health`, which containers use as their check, asks
 * /readyz.
 *
 * Must hold: `health` ends with an exit code other than 0 if the gateway takes no calls; otherwise its
 * container would stay in service (test/unit/cli/gateway-commands.health.test.ts).
 */
import { Option, type Command } from 'commander';
import type { HostView, ReloadView } from '../admin/views.js';
import { LOG_LEVELS, type LogChange, type LogLevel, type LogView } from '../telemetry/log-switch.js';
import { type DataOptions, dataPathOf } from './admin-client.js';
import { addAdminCommand, showView, showViewOfGateway } from './admin-command.js';
import {
  addConfirmation,
  addAdminOptions,
  addStoreOptions,
  confirm,
  type ConfirmationOptions,
  type AdminOptions,
  exampleText,
  parseNonEmpty,
  wholeNumberFrom,
} from './options.js';
import { CommandError, printFields, printLine, printTable, timeText, yesNo } from './output.js';
import type { Column } from './table.js';

interface ReloadOptions extends AdminOptions {
  readonly dryRun?: boolean;
  readonly restart?: boolean;
}

export function addReloadCommand(program: Command): void {
  addAdminOptions(
    program
      .command('reload')
      .description(
        'Read the settings again and apply them without dropping a call: models, prices, plans, limits, keys of upstreams. A file with an error changes nothing. Prints what needs a restart.',
      )
      .option('--dry-run', 'only tell what would change')
      .option(
        '--restart',
        'then replace the gateway processes one by one, for what needs a restart or a new version (processes: 2 or more, or sharing)',
      ),
  )
    .addHelpText('after', exampleText('reload --dry-run', 'reload --restart'))
    .action(reload);
}

/**
 * Waits for a gateway that starts. Rejects with CommandError, which has every error of the file, or says that
 * no gateway runs (store-client.ts).
 */
function reload({ dryRun = false, restart = false, ...options }: ReloadOptions): Promise<void> {
  const body = { dry_run: dryRun, restart };
  return showView(options, 'POST /reload', { body }, printReload, { isReload: true });
}

function printReload({
  dry_run: dryRun,
  applied,
  restart_needed: restartNeeded,
  changes = [],
  replacing = 0,
}: ReloadView): void {
  const valuesByPath = new Map(changes.map((change) => [change.setting, valuesText(change)]));
  const printSetting = (effect: string, path: string): void =>
    printLine(`${effect}  ${path}${valuesByPath.get(path) ?? ''}`);
  for (const path of applied) printSetting(dryRun ? 'would apply' : 'applied', path);
  for (const path of restartNeeded) printSetting('needs a restart', path);
  if (replacing > 0)
    printLine(`replacing ${replacing} gateway processes, one by one; tollgate status shows them`);
  else if (applied.length === 0 && restartNeeded.length === 0) printLine('nothing has changed');
}

/** Returns text such as `: refuse -> clamp`; empty if a whole entry is added or removed. */
function valuesText({ before, after }: NonNullable<ReloadView['changes']>[number]): string {
  return before === null && after === null ? '' : `: ${before ?? 'not set'} -> ${after ?? 'not set'}`;
}

interface LogOptions extends AdminOptions {
  readonly level?: LogLevel;
  readonly accessLog?: 'on' | 'off';
  readonly samplePercent?: number;
}

export function addLogCommand(program: Command): void {
  addAdminOptions(
    program
      .command('log')
      .description(
        'Show or change what the running gateway logs. Changes hold until the next reload or restart, which go by the settings.',
      )
      .addOption(new Option('--level <level>', 'least severe events').choices(LOG_LEVELS))
      .addOption(new Option('--access-log <state>', 'a line for each chat call').choices(['on', 'off']))
      .option(
        '--sample-percent <n>',
        'share of the calls that went well in the access log',
        wholeNumberFrom(0, 100),
      ),
  )
    .addHelpText('after', exampleText('log --level warn', 'log --access-log on --sample-percent 10'))
    .action(showLog);
}

function showLog({ level, accessLog, samplePercent, ...options }: LogOptions): Promise<void> {
  const change: LogChange = {
    ...(level === undefined ? {} : { level }),
    ...(accessLog === undefined ? {} : { access_log: accessLog === 'on' }),
    ...(samplePercent === undefined ? {} : { sample_percent: samplePercent }),
  };
  const print = (view: LogView): Promise<void> =>
    printFields([
      ['level', view.level],
      ['access log', view.access_log ? 'on' : 'off'],
      ['sample percent', String(view.sample_percent)],
    ]);
  return Object.keys(change).length > 0
    ? showViewOfGateway(options, 'PUT /log', { body: change }, print)
    : showViewOfGateway(options, 'GET /log', {}, print);
}

/** A response takes a millisecond. Health checks are repeated, so checks that hang must not pile up. */
const HEALTH_TIMEOUT_MS = 3_000;

export function addHealthCommand(program: Command): void {
  addStoreOptions(
    program
      .command('health')
      .description(
        'Say whether the gateway takes calls: exit 0 if it does, 1 if it starts, drains or is not there.',
      ),
  )
    .addHelpText('after', exampleText('health --data /var/lib/tollgate'))
    .action(checkHealth);
}

/** Rejects with CommandError if the gateway takes no calls. */
async function checkHealth(options: DataOptions): Promise<void> {
  const { adminOrigin, readGatewayFile } = await import('../admin/gateway-file.js');
  const dataPath = await dataPathOf(options);
  const address = readGatewayFile(dataPath);
  if (address === undefined)
    throw new CommandError(`No gateway serves from ${dataPath}: there is no gateway.json.`);
  const url = `${adminOrigin(address)}/readyz`;
  const status = await fetch(url, { signal: AbortSignal.timeout(HEALTH_TIMEOUT_MS), redirect: 'error' }).then(
    (response) => response.status,
    () => undefined,
  );
  if (status === undefined) throw new CommandError(`${url} does not answer: the gateway has ended or hangs.`);
  if (status !== 200) throw new CommandError(`${url} answers ${status}: the gateway starts or drains.`);
  process.stdout.write('ready\n');
}

const HOST_COLUMNS: readonly Column<HostView>[] = [
  { title: 'ID', text: ({ id }) => id },
  { title: 'THIS ONE', text: ({ self }) => yesNo(self) },
  { title: 'STATE', text: ({ state }) => state },
  {
    title: 'LAST HEARD',
    text: ({ last_heard: heard }) => (heard === null ? '-' : timeText(heard)),
  },
];

export function addHostCommands(program: Command): void {
  const hosts = program
    .command('hosts')
    .description('List the hosts that share with this one, and forget one that is gone.');

  addAdminCommand(
    hosts,
    'list',
    'List hosts: heard in the last 20 s, silent (gone, or cut off), or awaited after the sharing server has lost data.',
    'hosts list',
  ).action((options: AdminOptions) =>
    showViewOfGateway(options, 'GET /hosts', {}, ({ data }) =>
      printTable(HOST_COLUMNS, data, 'No host is known.'),
    ),
  );

  addConfirmation(
    addAdminCommand(
      hosts,
      'forget',
      'Forget a host that will not come back, and ask before. One that is alive is refused.',
      'hosts forget 1f0c5a5e --yes',
    ),
  )
    .argument('<host>', "the host's id: see hosts list", parseNonEmpty)
    .action(async (host: string, options: AdminOptions & ConfirmationOptions) => {
      await confirm(
        `Forget host ${host}? The money that was granted to it is free again, and charges that it has not reported are not counted.`,
        options,
      );
      await showViewOfGateway(options, 'DELETE /hosts/{host}', { id: host }, ({ id }) =>
        printLine(`Forgot ${id}.`),
      );
    });
}
