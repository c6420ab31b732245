/** `tollgate config check | schema | example`. */
import type { Command } from 'commander';
import type { LoadedSettings } from '../config/load.js';

interface CheckOptions {
  readonly config?: string;
  readonly json?: boolean;
}

export function addConfigCommands(program: Command): void {
  const config = program.command('config').description('Check the configuration, or show what it can hold.');
  config
    .command('check')
    .description(
      'Read the configuration as serve would and tell every fault; exits with 1 where there is one.',
    )
    .option(
      '--config <file>',
      'configuration file (TOLLGATE_CONFIG; default: tollgate.yaml, where there is one)',
    )
    .option('--json', 'print {"ok", "source", "problems"}')
    .action(check);
  config
    .command('schema')
    .description('Print every setting with unit, default and environment variable, as JSON Schema.')
    .action(async () => {
      const { settingsJsonSchema } = await import('../config/json-schema.js');
      process.stdout.write(`${JSON.stringify(settingsJsonSchema(), null, 2)}\n`);
    });
  config
    .command('example')
    .description('Print a commented configuration to start from.')
    .action(async () => {
      const { EXAMPLE_YAML } = await import('../config/example.js');
      process.stdout.write(EXAMPLE_YAML);
    });
}

async function check(options: CheckOptions): Promise<void> {
  const [{ loadSettings }, { ConfigError }] = await Promise.all([
    import('../config/load.js'),
    import('../config/problems.js'),
  ]);
  try {
    const loaded = loadSettings({ config: options.config });
    const report = { ok: true, source: loaded.source ?? null, problems: [] };
    process.stdout.write(options.json === true ? `${JSON.stringify(report)}\n` : `${summaryOf(loaded)}\n`);
  } catch (error) {
    if (!(error instanceof ConfigError) || options.json !== true) throw error;
    process.stdout.write(`${JSON.stringify({ ok: false, source: null, problems: error.problems })}\n`);
    process.exitCode = 1;
  }
}

function summaryOf({ settings, source }: LoadedSettings): string {
  const place = source ?? 'no tollgate.yaml here, the built-in settings';
  return `${place}: fine (models: ${settings.models.length}, plans: ${settings.plans.length})`;
}
