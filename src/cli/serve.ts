/** `tollgate serve`: loads the settings and becomes the supervisor. Supervisor process. */
import { InvalidArgumentError, type Command } from 'commander';

interface ServeOptions {
  readonly config?: string;
  readonly host?: string;
  readonly port?: number;
  readonly adminPort?: number;
  readonly data?: string;
}

export function addServeCommand(program: Command): void {
  program
    .command('serve')
    .description(
      'Serve callers until SIGTERM or SIGINT. Without tollgate.yaml a built-in echo model is served.',
    )
    .option(
      '--config <file>',
      'configuration file (TOLLGATE_CONFIG; default: tollgate.yaml, where there is one)',
    )
    .option('--host <host>', 'address that callers reach (TOLLGATE_HOST)')
    .option('--port <port>', 'port that callers reach, 0 for a free one (TOLLGATE_PORT)', portOf)
    .option(
      '--admin-port <port>',
      'port of the admin interface, 0 for a free one (TOLLGATE_ADMIN_PORT)',
      portOf,
    )
    .option('--data <folder>', 'folder of the books (TOLLGATE_DATA)')
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
  const [
    { loadSettings },
    { supervise, supervisorOptions },
    { bannerOf, commandOf },
    { createLog },
    { packageVersion },
  ] = await Promise.all([
    import('../config/load.js'),
    import('../supervisor/supervisor.js'),
    import('./banner.js'),
    import('../telemetry/log.js'),
    import('../core/version.js'),
  ]);
  const { settings, source, demo } = loadSettings(options);
  const log = createLog('supervisor');
  const command = commandOf(process.argv[1] ?? '', process.cwd());
  const end = await supervise(supervisorOptions({ kind: 'start', settings, demo }, log), process, (ready) =>
    process.stdout.write(bannerOf({ version: packageVersion(), settings, source, ready, command })),
  );
  if (end.refusal !== undefined) process.stderr.write(`${end.refusal}\n`);
  process.exitCode = end.exitCode;
}
