/**
 * `tollgate serve` in the process that was started, which becomes the supervisor process and prints the
 * banner. main.ts calls `serve`.
 *
 * Must hold: this file imports neither Commander nor the reader of settings (config/load.ts), which would
 * stay in memory as long as the gateway serves; only the process that `readSettings` forks loads them
 * (test/unit/bundle.test.ts). A banner that cannot be written ends nothing (test/unit/cli/program.test.ts).
 */
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { ConfigError } from '../config/config-error.js';
import type { LoadedSettings } from '../config/load.js';
import type { Settings } from '../config/schema.js';
import { packageVersion } from '../core/version.js';
import { supervise, supervisorOptions } from '../supervisor/supervisor.js';
import { createLogSwitch, LogSwitch } from '../telemetry/log-switch.js';
import { createLog } from '../telemetry/log.js';
import { bannerOf, commandOf } from './banner.js';
import { printError } from './output.js';
import { SETTINGS_PROCESS_VARIABLE } from './runtime-support.js';

/** Runs until the gateways have ended, and sets the exit code. Called once, first in its process. */
export async function serve(): Promise<void> {
  const logSwitch = new LogSwitch(createLogSwitch());
  const log = createLog('supervisor', logSwitch);
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    // The reader of the banner may close the pipe, as `head` does. No error of the output ends the gateways.
    if (error.code !== 'EPIPE')
      log.warn('the banner cannot be written to standard output', { error: error.message });
  });
  let loaded: LoadedSettings;
  try {
    loaded = await readSettings();
  } catch (error) {
    if (error instanceof SettingsUnread) {
      if (error.signal !== null) printError(error.message);
      process.exitCode = error.exitCode;
      return;
    }
    if (!(error instanceof ConfigError)) throw error;
    printError(error.message);
    process.exitCode = 1;
    return;
  }
  const { settings, source } = loaded;
  const command = commandOf(process.argv[1] ?? '', process.cwd());
  // The supervisor calls it at the start and at each reload. The gateways set the level of their own logs.
  const onSettings = ({ log: { level } }: Settings): void => {
    logSwitch.level = level;
  };
  const options = supervisorOptions(loaded, readSettings, log, onSettings);
  const { rejection: whyNoGateway, exitCode } = await supervise(options, process, (ready) =>
    process.stdout.write(bannerOf({ version: packageVersion(), settings, source, ready, command })),
  );
  if (whyNoGateway !== undefined) printError(whyNoGateway);
  process.exitCode = exitCode;
}

/**
 * The only message that the process of serve-command.ts sends. At a reload the process may be of a newer
 * version than the supervisor, so kinds and members keep their names, also those of LoadedSettings.
 */
export type SettingsMessage =
  | { readonly kind: 'loaded'; readonly loaded: LoadedSettings }
  | { readonly kind: 'refused'; readonly problems: readonly string[] };

/**
 * The process that reads the settings ended without a message. Unless a signal ended it, it has printed why,
 * or the help.
 */
class SettingsUnread extends Error {
  readonly exitCode: number;
  readonly signal: string | null;

  constructor(exitCode: number | null, signal: string | null) {
    super(
      `the settings could not be read: the process that reads them ended (${signal ?? `exit code ${exitCode ?? 0}`})`,
    );
    this.exitCode = exitCode ?? 1;
    this.signal = signal;
  }
}

/** `../cli/` is right from a chunk of the bundle too. After an upgrade this is the newer version's file. */
const ENTRY = new URL('../cli/main.js', import.meta.url);
/** The first read takes half a second. With a file that never ends, such as a pipe, the start would hang. */
const FIRST_READ_MS_MAX = 120_000;

/**
 * Reads the settings with the arguments of this process, in a process that ends afterwards. Because of the
 * variable, main.ts runs the command of serve-command.ts there, and not `serve` again. So the supervisor
 * loads neither Commander nor YAML nor TypeBox (20 MB resident), at its start and at reloads. Rejects with
 * ConfigError, with SettingsUnread, or with the system's error if no process can be started.
 *
 * Must hold: the process that reads ends, or is ended: after FIRST_READ_MS_MAX, or at a reload by `stop`
 * (test/e2e/refused-start.test.ts, test/e2e/reload.test.ts).
 */
function readSettings(stop?: AbortSignal): Promise<LoadedSettings> {
  const child = fork(fileURLToPath(ENTRY), process.argv.slice(2), {
    env: { ...process.env, [SETTINGS_PROCESS_VARIABLE]: '1' },
    serialization: 'advanced',
    ...(stop === undefined ? { timeout: FIRST_READ_MS_MAX } : { signal: stop }),
  });
  stop?.addEventListener('abort', () => {
    // No signal ends a process whose disk hangs. Such a process must not keep the supervisor from its end.
    child.unref();
    child.channel?.unref();
  });
  return new Promise((resolve, reject) => {
    child.once('message', (message: SettingsMessage) => {
      if (message.kind === 'loaded') resolve(message.loaded);
      else reject(new ConfigError(message.problems));
    });
    child.once('error', reject);
    // 'close' comes after the message, unlike 'exit', and a promise that is settled stays as it is.
    child.once('close', (exitCode, signal) => reject(new SettingsUnread(exitCode, signal)));
  });
}
