/** `tollgate audit`: whether the books on disk balance; reads them itself, beside a running gateway too. */
import { Option, type Command } from 'commander';
import type { AuditReport } from '../store/audit.js';
import { openHttpClient } from './http-client.js';
import { exampleText, printFields, printJson, printLine } from './output.js';
import { addStoreOptions, type DataOptions } from './data-options.js';

interface AuditOptions extends DataOptions {
  readonly repair?: boolean;
}

/** Of those in the report, so that a terminal shows their beginning; `--json` gives all of the report. */
const LINES_MAX = 50;

/** For all processes of a running gateway to write what they have settled: the books can be audited without that too. */
const FLUSH_MS_MAX = 5_000;

const EXIT_DIFFERS = 1;
const EXIT_USAGE = 2;

export function addAuditCommand(program: Command): void {
  const command = program
    .command('audit')
    .description(
      'Check that the books on disk balance: credits, charges, usage, names. Exits with 1 where anything differs.',
    )
    // Asked for often enough to deserve a response.
    .addOption(new Option('--repair').hideHelp());
  addStoreOptions(command)
    .option('--json', 'print JSON')
    .addHelpText('after', exampleText('audit --data /var/lib/tollgate'))
    .action(async (options: AuditOptions) => {
      if (options.repair === true) {
        command.error(
          'The audit does not repair: of two figures that differ, none is known to be the true one. ' +
            'Stop the gateway, restore the store from a backup and audit that.',
          { exitCode: EXIT_USAGE },
        );
      }
      await run(options);
    });
}

/** Throws StoreFault, and ConfigError, where there is nothing that could be checked. */
async function run(options: AuditOptions): Promise<void> {
  const [{ loadSettings }, { audit }] = await Promise.all([
    import('../config/load.js'),
    import('../store/audit.js'),
  ]);
  const { settings } = loadSettings({ config: options.config, data: options.data, secrets: false });
  await flushGateway(settings.data);
  const { accounts: accountsMax, keys: keysMax } = settings.limits;
  const [report, { decimalOf }] = await Promise.all([
    audit(settings.data, { accountsMax, keysMax }),
    import('../core/money.js'),
  ]);
  if (options.json === true) printJson(viewOf(report, decimalOf));
  else await print(report, decimalOf);
  if (report.differencesCount > 0) process.exitCode = EXIT_DIFFERS;
}

/** The running gateway's last calls belong to its books. Where it cannot be had to write them, that is said. */
async function flushGateway(dataPath: string): Promise<void> {
  const { adminOrigin, findGateway } = await import('../admin/gateway-file.js');
  const address = await findGateway(dataPath);
  if (address === undefined) return;
  const error = await askToFlush(dataPath, adminOrigin(address));
  if (error === undefined) return;
  process.stderr.write(`Calls of the last moments may be missing here: ${error}\n`);
}

/** Undefined where all is written. */
async function askToFlush(dataPath: string, origin: string): Promise<string | undefined> {
  try {
    const client = await openHttpClient(dataPath, origin, FLUSH_MS_MAX);
    const { flushed } = (await client.call('POST', '/flush')) as { flushed: boolean };
    return flushed ? undefined : 'a process of the gateway could not write them now.';
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

type Decimal = (amount: bigint) => string;

function viewOf(report: AuditReport, decimal: Decimal): object {
  return {
    ok: report.differencesCount === 0,
    path: report.path,
    format: report.format,
    accounts: report.accounts,
    keys: report.keys,
    credited: decimal(report.credited),
    available: decimal(report.available),
    spent: decimal(report.spent),
    uncovered: decimal(report.uncovered),
    differences: report.differences.map(({ account, place, what, is, shouldBe }) => ({
      account,
      place,
      what,
      is,
      should_be: shouldBe,
    })),
    differences_count: report.differencesCount,
  };
}

async function print(report: AuditReport, decimal: Decimal): Promise<void> {
  await printFields([
    ['books', `${report.path}, format ${report.format}`],
    ['accounts', String(report.accounts)],
    ['keys', String(report.keys)],
    ['credited', decimal(report.credited)],
    ['available', decimal(report.available)],
    ['spent', decimal(report.spent)],
    ['uncovered', decimal(report.uncovered)],
  ]);
  if (report.differencesCount === 0) {
    printLine('The books balance.');
    return;
  }
  printLine(`The books do not balance. What differs: ${report.differencesCount}`);
  for (const { account, place, what, is, shouldBe } of report.differences.slice(0, LINES_MAX)) {
    printLine(`  ${account ?? 'no account'}: ${what} is ${is}, should be ${shouldBe} (${place})`);
  }
  if (report.differencesCount > LINES_MAX) printLine(`  and ${report.differencesCount - LINES_MAX} more`);
  printLine('Nothing was changed. Stop the gateway, restore the store from a backup and audit that.');
}
