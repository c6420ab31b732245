/** `tollgate config import-litellm FILE`: settings on standard output, what was left behind on standard error. */
import type { Command } from 'commander';
import { exampleText, nonEmpty, printJson, Refusal } from './output.js';

/** The settings were printed and are not all of the file's. */
const EXIT_LEFT_OUT = 2;

export function addImportCommand(config: Command): void {
  config
    .command('import-litellm')
    .description(
      "Make a tollgate.yaml of LiteLLM's config.yaml, and tell line by line what could not be carried over. " +
        'Secrets are never carried over. Exits with 2 if an entry of model_list was left out.',
    )
    .argument('<file>', "LiteLLM's configuration file", nonEmpty)
    .option('--json', 'print {"yaml", "remarks", "variables", "leftOut"}')
    .addHelpText('after', exampleText('config import-litellm config.yaml > tollgate.yaml', 'config check'))
    .action(importFile);
}

async function importFile(file: string, options: { readonly json?: boolean }): Promise<void> {
  const [{ importLitellm, remarkLine }, { CONFIG_BYTES_MAX, readBounded }] = await Promise.all([
    import('../config/litellm/import.js'),
    import('../config/yaml-source.js'),
  ]);
  let text: string | undefined;
  try {
    text = readBounded(file, CONFIG_BYTES_MAX);
  } catch (error) {
    throw new Refusal(`${file}: cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (text === undefined) throw new Refusal(`${file}: longer than ${CONFIG_BYTES_MAX} bytes`);
  const { yaml, remarks, variables, leftOut } = importLitellm(text, file);
  // A script that goes on would serve fewer models than before.
  if (leftOut > 0) process.exitCode = EXIT_LEFT_OUT;
  if (options.json === true) {
    printJson({ yaml, remarks, variables, leftOut });
    return;
  }
  process.stdout.write(yaml);
  const lines = remarks.map((remark) => remarkLine(file, remark));
  if (leftOut > 0) lines.push(`Left out: ${leftOut} of model_list's entries`);
  if (variables.length > 0) lines.push(`Set before the start: ${variables.join(', ')}`);
  for (const line of lines) process.stderr.write(`${line}\n`);
}
