/** `tollgate serve`: loads the settings and becomes the supervisor. Supervisor process. */
import { InvalidArgumentError, type Command } from 'commander';
import type { LoadedSettings } from '../config/load.js';
import { exampleText } from './output.js';
import { addStoreOptions } from './data-options.js';
import { runtimeFacts, unsupportedRuntime } from './runtime-support.js';

interface ServeOptions {
  readonly config?: string;
  readonly host?: string;
  readonly port?: number;
  readonly adminPort?: number;
  readonly data?: string;
}

export function addServeCommand(program: Command): void {
  addStoreOptions(
    program
      .command('serve')
      .description(
        'Serve callers until SIGTERM or SIGINT. Without tollgate.yaml a built-in echo model is served.',
      ),
  )
    .option('--host <host>', 'address that callers reach (TOLLGATE_HOST)')
    .option('--port <port>', 'port that callers reach, 0 for a free one (TOLLGATE_PORT)', portOf)
    .option(
      '--admin-port <port>',
      'port of the admin interface, 0 for a free one (TOLLGATE_ADMIN_PORT)',
      portOf,
    )
    .addHelpText('after', exampleText('serve --config /etc/tollgate/tollgate.yaml'))
    .action(serve);
}

function portOf(text: string): number {
  const port = Number(text);
  if (!/^\d{1,5}$/.test(text) || port > 65_535) {
    throw new InvalidArgumentError('Want a whole number from 0 to 65535.');
  }
  return port;
}

/** Runs until the gateways have ended. Throws ConfigError before anything was started. */
async function serve(options: ServeOptions): Promise<void> {
  const unsupported = unsupportedRuntime(runtimeFacts());
  if (unsupported !== undefined) {
    process.stderr.write(`${unsupported}\n`);
    process.exitCode = 1;
    return;
  }
  const [
    { loadSettings },
    { supervise, supervisorOptions },
    { bannerOf, commandOf },
    { createLog },
    { createLogSwitch, LogSwitch },
    { packageVersion },
  ] = await Promise.all([
    import('../config/load.js'),
    import('../supervisor/supervisor.js'),
    import('./banner.js'),
    import('../telemetry/log.js'),
    import('../telemetry/log.js'),
    import('../core/version.js'),
  ]);
  const load = (): LoadedSettings => loadSettings(options);
  const loaded = load();
  const { settings, source } = loaded;
  const logSwitch = new LogSwitch(createLogSwitch());
  const log = createLog('supervisor', logSwitch);
  const command = commandOf(process.argv[1] ?? '', process.cwd());
  const supervisor = supervisorOptions(loaded, load, log, ({ log: { level } }) => (logSwitch.level = level));
  const end = await supervise(supervisor, process, (ready) =>
    process.stdout.write(bannerOf({ version: packageVersion(), settings, source, ready, command })),
  );
  if (end.refusal !== undefined) process.stderr.write(`${end.refusal}\n`);
  process.exitCode = end.exitCode;
}
