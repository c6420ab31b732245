/**
 * `tollgate serve` in the process that was started: becomes the supervisor process and prints a banner.
 * main.ts calls it.
 *
 * Must hold: it imports neither Commander nor the reader of settings, which would stay in memory as long as
 * the gateway serves: settings-process.ts reads them (test/unit/bundle.test.ts).
 */
import { ConfigError } from '../config/config-error.js';
import type { LoadedSettings } from '../config/load.js';
import { packageVersion } from '../core/version.js';
import { supervise, supervisorOptions } from '../supervisor/supervisor.js';
import { createLog, createLogSwitch, LogSwitch } from '../telemetry/log.js';
import { bannerOf, commandOf } from './banner.js';
import { readSettings, SettingsUnread } from './settings-process.js';

/** Runs until the gateways have ended, and sets the exit code. */
export async function serve(): Promise<void> {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    // The reader of the banner may close the pipe.
    if (error.code !== 'EPIPE') throw error;
  });
  let loaded: LoadedSettings;
  try {
    loaded = await readSettings();
  } catch (error) {
    if (error instanceof SettingsUnread) {
      process.exitCode = error.exitCode;
      return;
    }
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exitCode = 1;
    return;
  }
  const { settings, source } = loaded;
  const logSwitch = new LogSwitch(createLogSwitch());
  const log = createLog('supervisor', logSwitch);
  const command = commandOf(process.argv[1] ?? '', process.cwd());
  const supervisor = supervisorOptions(
    loaded,
    readSettings,
    log,
    ({ log: { level } }) => (logSwitch.level = level),
  );
  const end = await supervise(supervisor, process, (ready) =>
    process.stdout.write(bannerOf({ version: packageVersion(), settings, source, ready, command })),
  );
  if (end.rejection !== undefined) process.stderr.write(`${end.rejection}\n`);
  process.exitCode = end.exitCode;
}
