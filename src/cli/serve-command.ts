/**
 * The command `tollgate serve` in the process that serve.ts forks: reads the command line and the settings,
 * sends the settings to the supervisor, which has forked it, and ends. program.ts adds the command.
 *
 * Must hold: wrong settings end the start with all their errors (test/e2e/refused-start.test.ts).
 */
import type { Command } from 'commander';
import type { LoadOptions } from '../config/load.js';
import { addStoreOptions, exampleText, wholeNumberFrom } from './options.js';
import { Misuse } from './output.js';
import { unloadableServer } from './runtime-support.js';
import type { SettingsMessage } from './serve.js';

const PORT = wholeNumberFrom(0, 65_535);

export function addServeCommand(program: Command): void {
  addStoreOptions(
    program
      .command('serve')
      .description(
        'Serve callers until SIGTERM or SIGINT. Without tollgate.yaml a built-in echo model is served.',
      ),
  )
    .option('--host <host>', 'address that callers reach (TOLLGATE_HOST; default: listen.host)')
    .option(
      '--port <port>',
      'port that callers reach, 0 for a free one (TOLLGATE_PORT; default: listen.port)',
      PORT,
    )
    .option(
      '--admin-port <port>',
      'port of the admin interface, 0 for a free one (TOLLGATE_ADMIN_PORT; default: admin.port)',
      PORT,
    )
    .addHelpText('after', exampleText('serve --config /etc/tollgate/tollgate.yaml'))
    .action(sendSettings);
}

/** Sends the settings, or why they are rejected, to the supervisor, and lets this process end. */
async function sendSettings(options: LoadOptions): Promise<void> {
  // main.ts looks only at the first argument, so `tollgate -- serve` comes here without a fork by serve.ts.
  if (process.send === undefined) throw new Misuse('serve must be the first word: tollgate serve …');
  // The open channel would keep this process alive, so it is closed when the message is sent.
  process.send(await settingsOf(options), () => process.disconnect());
}

async function settingsOf(options: LoadOptions): Promise<SettingsMessage> {
  // Loads µWebSockets.js before a gateway does, because here an error can be explained.
  const unsupported = unloadableServer();
  if (unsupported !== undefined) return { kind: 'refused', problems: [unsupported] };
  const [{ loadSettings }, { ConfigError }] = await Promise.all([
    import('../config/load.js'),
    import('../config/config-error.js'),
  ]);
  try {
    return { kind: 'loaded', loaded: loadSettings(options) };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return { kind: 'refused', problems: error.problems };
  }
}
