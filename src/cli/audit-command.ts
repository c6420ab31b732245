/**
 * `tollgate audit`: reads the accounting on disk and checks that it balances, also while a gateway runs.
 * program.ts adds the command, which reads the store in its own process, and asks a running gateway only to
 * write what is in its memory. A gateway that writes meanwhile causes no false differences: the audit reads
 * one snapshot of the store, and the gateway writes what belongs together in one transaction.
 *
 * Must hold: if there is a difference, the exit code is EXIT_FAILED, because schedulers read only the code.
 * If the gateway cannot write, or the settings have an error, the audit still checks
 * (test/unit/cli/audit-command.test.ts).
 */
import { Option, type Command } from 'commander';
import type { AuditReport } from '../store/audit.js';
import type { AuditBounds } from '../store/audit-run.js';
import { type DataOptions, dataPathOf, openHttpClient } from './admin-client.js';
import { addStoreOptions, type AdminOptions, exampleText } from './options.js';
import { EXIT_FAILED, EXIT_USAGE, printError, printFields, printJson, printLine } from './output.js';

interface AuditOptions extends AdminOptions {
  readonly repair?: boolean;
}

/** Differences that are printed, few enough for a terminal; `--json` has up to 1,000 (store/audit-run.ts). */
const LINES_MAX = 50;

/** How long the audit waits for a running gateway to write. Then the audit reads the store as it is. */
const FLUSH_MS_MAX = 5_000;

const ADVICE = 'Stop the gateway, restore the store from a backup and audit that.';

export function addAuditCommand(program: Command): void {
  const command = program
    .command('audit')
    .description(
      'Check that the books on disk balance: credits, charges, usage, names. Exits with 1 if anything differs.',
    )
    // Many people try this option, so the command explains why there is none.
    .addOption(new Option('--repair').hideHelp());
  addStoreOptions(command)
    .option('--json', 'print JSON')
    .addHelpText('after', exampleText('audit --data /var/lib/tollgate'))
    .action(async (options: AuditOptions) => {
      if (options.repair === true) {
        // Throws, because of `exitOverride` in program.ts: nothing below runs.
        command.error(
          `The audit does not repair: of two figures that differ, none is known to be the true one. ${ADVICE}`,
          { exitCode: EXIT_USAGE },
        );
      }
      await runAudit(options);
    });
}

/**
 * Rejects with ConfigError if the settings are wrong and nothing else names the data directory, and with
 * StoreError if there is no store to check.
 */
async function runAudit(options: AuditOptions): Promise<void> {
  const dataPath = await dataPathOf(options);
  const bounds = await boundsOf(options);
  await flushGateway(dataPath);
  // Loaded only here and below, so that `--help` and the other commands need not load them.
  const { audit } = await import('../store/audit.js');
  const [report, { decimalOf }] = await Promise.all([audit(dataPath, bounds), import('../core/money.js')]);
  const view = viewOf(report, decimalOf);
  if (options.json === true) printJson(view);
  else await printReport(view);
  if (report.differencesCount > 0) process.exitCode = EXIT_FAILED;
}

/**
 * Returns how many slots the settings allow. If the settings have an error, returns the most that any
 * settings allow, and standard error says so: all other checks need no settings.
 */
async function boundsOf({ config, data }: DataOptions): Promise<AuditBounds> {
  const [{ loadSettings }, { ConfigError }] = await Promise.all([
    import('../config/load.js'),
    import('../config/config-error.js'),
  ]);
  try {
    // Without secrets, so that a user who may not read the files of keys can audit.
    const { accounts, keys, groups } = loadSettings({ config, data, secrets: false }).settings.limits;
    return { accountsMax: accounts, keysMax: keys, groupsMax: groups };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    printError(
      `The books are not compared with the settings limits.…, which cannot be read: ${error.message}`,
    );
    const { ACCOUNTS_MAX, KEYS_MAX, GROUPS_MAX } = await import('../core/limits.js');
    return { accountsMax: ACCOUNTS_MAX, keysMax: KEYS_MAX, groupsMax: GROUPS_MAX };
  }
}

/**
 * Asks the running gateway, if there is one, to write its last calls to the store. If it does not, standard
 * error says so. Rejects as `findGateway` does.
 */
async function flushGateway(dataPath: string): Promise<void> {
  const { adminOrigin, findGateway } = await import('../admin/gateway-file.js');
  const address = await findGateway(dataPath);
  if (address === undefined) return;
  const error = await askToFlush(dataPath, adminOrigin(address));
  if (error === undefined) return;
  printError(`Calls of the last moments may be missing here: ${error}`);
}

/** Resolves with the reason why calls are not written; undefined if all are. Never rejects. */
async function askToFlush(dataPath: string, origin: string): Promise<string | undefined> {
  try {
    const client = await openHttpClient(dataPath, origin, FLUSH_MS_MAX);
    const { flushed } = await client.call('POST /flush', {});
    return flushed ? undefined : 'a process of the gateway could not write them now.';
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** `decimalOf` of core/money.ts, which this file loads only when it audits. */
type DecimalOf = (amount: bigint) => string;

/**
 * The JSON of the report. Its names are public: `location` is called `place`. The sum of holds is
 * missing, because holds are not on disk; `available` still contains them.
 */
function viewOf(report: AuditReport, decimalOf: DecimalOf) {
  return {
    ok: report.differencesCount === 0,
    path: report.path,
    format: report.format,
    accounts: report.accounts,
    keys: report.keys,
    groups: report.groups,
    credited: decimalOf(report.credited),
    available: decimalOf(report.available),
    spent: decimalOf(report.spent),
    uncovered: decimalOf(report.uncovered),
    differences: report.differences.map(({ account, location, what, is, shouldBe }) => ({
      account,
      place: location,
      what,
      is,
      should_be: shouldBe,
    })),
    differences_count: report.differencesCount,
  };
}

/** What the text shows of the view besides the differences, in this order. */
const TOTALS = ['accounts', 'keys', 'groups', 'credited', 'available', 'spent', 'uncovered'] as const;

async function printReport(view: ReturnType<typeof viewOf>): Promise<void> {
  const { path, format, differences, differences_count: count } = view;
  await printFields([
    ['books', `${path}, format ${format}`],
    ...TOTALS.map((name) => [name, String(view[name])] as const),
  ]);
  if (view.ok) {
    printLine('The books balance.');
    return;
  }
  printLine(`The books do not balance. What differs: ${count}`);
  for (const { account, place, what, is, should_be: shouldBe } of differences.slice(0, LINES_MAX))
    printLine(`  ${account ?? 'no account'}: ${what} is ${is}, should be ${shouldBe} (${place})`);
  if (count > LINES_MAX) printLine(`  and ${count - LINES_MAX} more`);
  printLine(`Nothing was changed. ${ADVICE}`);
}
