/**
 * `tollgate config check | schema | example | import-litellm`. program.ts adds the commands. They need no
 * gateway and change nothing: `check` reads the books, if there are some (books-check.ts), and `example` and
 * `import-litellm` print a file to standard output.
 *
 * Must hold: an import without some models ends with an exit code other than 0
 * (test/unit/cli/config-command.import-command.test.ts).
 */
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import type { LoadedSettings } from '../config/load.js';
import type { ProbeView } from '../gateway/upstream-probe.js';
import { checkBooks } from './books-check.js';
import { addStoreOptions, type AdminOptions, exampleText, parseNonEmpty } from './options.js';
import { CommandError, EXIT_FAILED, printError, printJson, printLine } from './output.js';

/** The exit code of `import-litellm` if the printed settings lack models of the file. */
const EXIT_LEFT_OUT = 2;

function addImportCommand(config: Command): void {
  config
    .command('import-litellm')
    .description(
      "Make a tollgate.yaml of LiteLLM's config.yaml, and say line by line what could not be carried over. " +
        'Secrets are never carried over. Exits with 2 if an entry of model_list was left out.',
    )
    .argument('<file>', "LiteLLM's configuration file", parseNonEmpty)
    .option('--json', 'print {"yaml", "remarks", "variables", "leftOut"}')
    .addHelpText('after', exampleText('config import-litellm config.yaml > tollgate.yaml', 'config check'))
    .action(importFile);
}

/** Prints the settings to standard output, and what was not carried over to standard error. */
async function importFile(file: string, options: { readonly json?: boolean }): Promise<void> {
  // Modules are loaded only when they are used, here and below, so that `--help` is quick.
  const [{ importLitellm, remarkLine }, { CONFIG_BYTES_MAX, readConfigFile }] = await Promise.all([
    import('../config/litellm/import.js'),
    import('../config/yaml-source.js'),
  ]);
  let text: string | undefined;
  try {
    text = readConfigFile(file);
  } catch (error) {
    throw new CommandError(
      `${file}: cannot be read: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
  if (text === undefined) throw new CommandError(`${file}: longer than ${CONFIG_BYTES_MAX} bytes`);
  const { yaml, remarks, variables, leftOut } = importLitellm(text, file);
  // The exit code stops a script: the gateway would serve fewer models than before.
  if (leftOut > 0) process.exitCode = EXIT_LEFT_OUT;
  if (options.json === true) {
    printJson({ yaml, remarks, variables, leftOut });
    return;
  }
  process.stdout.write(yaml);
  const lines = remarks.map((remark) => remarkLine(file, remark));
  if (leftOut > 0) lines.push(`Left out: ${leftOut} of model_list's entries`);
  if (variables.length > 0) lines.push(`Set before the start: ${variables.join(', ')}`);
  for (const line of lines) printError(line);
}

interface CheckOptions extends Pick<AdminOptions, 'config' | 'data' | 'json'> {
  readonly probe?: boolean;
}

export function addConfigCommands(program: Command): void {
  const config = program.command('config').description('Check the configuration, or show what it can hold.');
  addStoreOptions(
    config
      .command('check')
      .description(
        'Read the configuration as serve would and print every error; exits with 1 if there is one. Warns of accounts whose plan it lacks, if there are books.',
      ),
  )
    .option('--json', 'print {"ok", "source", "problems", "warnings"}, with --probe also "upstreams"')
    .option('--probe', 'also call each upstream once, as upstreams test does')
    .addHelpText('after', exampleText('config check --config /etc/tollgate/tollgate.yaml'))
    .action(checkConfig);
  config
    .command('schema')
    .description(
      'Print every setting with unit, default and environment variable, as JSON Schema (in the package: dist/tollgate.schema.json).',
    )
    .action(async () => {
      const { settingsSchemaText } = await import('../config/schema.js');
      process.stdout.write(settingsSchemaText());
    });
  config
    .command('example')
    .description('Print a commented configuration to start from.')
    .action(async () => {
      const { exampleYaml } = await import('../config/examples.js');
      process.stdout.write(exampleYaml(schemaPath()));
    });
  addImportCommand(config);
}

/** Path of the schema that the build writes, relative to the working directory if the file is below. */
function schemaPath(): string {
  const path = fileURLToPath(new URL('../tollgate.schema.json', import.meta.url));
  const relativePath = relative(process.cwd(), path);
  return relativePath.startsWith('..') ? path : `./${relativePath}`;
}

/** Without `--json`, errors of the settings are thrown as ConfigError, and program.ts prints them. */
async function checkConfig(options: CheckOptions): Promise<void> {
  const [{ loadSettings }, { ConfigError }] = await Promise.all([
    import('../config/load.js'),
    import('../config/config-error.js'),
  ]);
  try {
    const loaded = loadSettings({ config: options.config, data: options.data });
    const { problems, warnings } = await checkBooks(loaded.settings);
    if (problems.length > 0) throw new ConfigError(problems);
    const views = options.probe === true ? await probeAll(loaded) : undefined;
    const ok = views?.every((view) => view.ok) ?? true;
    if (!ok) process.exitCode = EXIT_FAILED;
    if (options.json === true) {
      const source = loaded.source ?? null;
      printJson({ ok, source, problems: [], warnings, ...(views && { upstreams: views }) });
      return;
    }
    printLine(summaryOf(loaded));
    for (const warning of warnings) printError(`Warning: ${warning}`);
    if (views !== undefined) await (await import('./catalog-commands.js')).printProbes(views);
  } catch (error) {
    if (!(error instanceof ConfigError) || options.json !== true) throw error;
    printJson({ ok: false, source: null, problems: error.problems, warnings: [] });
    process.exitCode = EXIT_FAILED;
  }
}

async function probeAll({ settings }: LoadedSettings): Promise<readonly ProbeView[]> {
  const { probeUpstreams } = await import('../gateway/upstream-probe.js');
  // `probeUpstreams` returns undefined only for the name of a model that the settings lack.
  return (await probeUpstreams(settings, undefined)) ?? [];
}

function summaryOf({ settings, source }: LoadedSettings): string {
  const location = source ?? 'no tollgate.yaml here, the built-in settings';
  return `${location}: fine (models: ${settings.models.length}, plans: ${settings.plans.length})`;
}
