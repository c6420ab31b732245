/** `tollgate audit`: whether the books on disk balance; reads them itself, beside a running gateway too. */
import { Option, type Command } from 'commander';
import type { AuditReport } from '../store/audit.js';
import { exampleText, printFields, printJson, printLine } from './output.js';
import { addBooksOptions, type PlaceOptions } from './place.js';

interface AuditOptions extends PlaceOptions {
  readonly repair?: boolean;
}

/** Of those in the report, so that a terminal shows their beginning; `--json` gives all of the report. */
const LINES_MAX = 50;

const EXIT_DIFFERS = 1;
const EXIT_USAGE = 2;

export function addAuditCommand(program: Command): void {
  const command = program
    .command('audit')
    .description(
      'Check that the books on disk balance: credits, charges, usage, names. Exits with 1 where anything differs.',
    )
    // Asked for often enough to deserve an answer.
    .addOption(new Option('--repair').hideHelp());
  addBooksOptions(command)
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
  const { accounts: accountsMax, keys: keysMax } = settings.limits;
  const [report, { decimalOf }] = await Promise.all([
    audit(settings.data, { accountsMax, keysMax }),
    import('../core/money.js'),
  ]);
  if (options.json === true) printJson(viewOf(report, decimalOf));
  else await print(report, decimalOf);
  if (report.differencesCount > 0) process.exitCode = EXIT_DIFFERS;
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
