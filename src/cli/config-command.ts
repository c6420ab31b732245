/** `tollgate config check | schema | example`; `import-litellm` is in import-command.ts. */
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import type { LoadedSettings } from '../config/load.js';
import type { ProbeView } from '../gateway/upstream-probe.js';
import { addImportCommand } from './import-command.js';
import { exampleText } from './output.js';
import { addConfigOption } from './place.js';

interface CheckOptions {
  readonly config?: string;
  readonly json?: boolean;
  readonly probe?: boolean;
}

export function addConfigCommands(program: Command): void {
  const config = program.command('config').description('Check the configuration, or show what it can hold.');
  addConfigOption(
    config
      .command('check')
      .description(
        'Read the configuration as serve would and tell every fault; exits with 1 where there is one.',
      ),
  )
    .option('--json', 'print {"ok", "source", "problems"}, with --probe also "upstreams"')
    .option('--probe', 'also call each upstream once, as upstreams test does')
    .addHelpText('after', exampleText('config check --config /etc/tollgate/tollgate.yaml'))
    .action(check);
  config
    .command('schema')
    .description(
      'Print every setting with unit, default and environment variable, as JSON Schema (in the package: dist/tollgate.schema.json).',
    )
    .action(async () => {
      const { settingsSchemaText } = await import('../config/json-schema.js');
      process.stdout.write(settingsSchemaText());
    });
  config
    .command('example')
    .description('Print a commented configuration to start from.')
    .action(async () => {
      const { exampleYaml } = await import('../config/example.js');
      process.stdout.write(exampleYaml(schemaPath()));
    });
  addImportCommand(config);
}

/** Of the file that the build makes, as an editor finds it from a tollgate.yaml in the working directory. */
function schemaPath(): string {
  const path = fileURLToPath(new URL('../tollgate.schema.json', import.meta.url));
  const fromHere = relative(process.cwd(), path);
  return fromHere.startsWith('..') ? path : `./${fromHere}`;
}

async function check(options: CheckOptions): Promise<void> {
  const [{ loadSettings }, { ConfigError }] = await Promise.all([
    import('../config/load.js'),
    import('../config/problems.js'),
  ]);
  try {
    const loaded = loadSettings({ config: options.config });
    const views = options.probe === true ? await probed(loaded) : undefined;
    const ok = views?.every((view) => view.ok) ?? true;
    if (!ok) process.exitCode = 1;
    const report = { ok, source: loaded.source ?? null, problems: [], ...(views && { upstreams: views }) };
    process.stdout.write(options.json === true ? `${JSON.stringify(report)}\n` : `${summaryOf(loaded)}\n`);
    if (views !== undefined && options.json !== true)
      await (await import('./upstream-test-view.js')).printProbes(views);
  } catch (error) {
    if (!(error instanceof ConfigError) || options.json !== true) throw error;
    process.stdout.write(`${JSON.stringify({ ok: false, source: null, problems: error.problems })}\n`);
    process.exitCode = 1;
  }
}

async function probed({ settings }: LoadedSettings): Promise<readonly ProbeView[]> {
  const { probeUpstreams } = await import('../gateway/upstream-probe.js');
  return (await probeUpstreams(settings, undefined)) ?? [];
}

function summaryOf({ settings, source }: LoadedSettings): string {
  const place = source ?? 'no tollgate.yaml here, the built-in settings';
  return `${place}: fine (models: ${settings.models.length}, plans: ${settings.plans.length})`;
}
