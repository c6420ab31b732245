/**
 * `tollgate serve` in the process that was started: becomes the supervisor process and prints a banner.
 * main.ts calls it.
 *
 * Must hold: it imports neither Commander nor the reader of settings, which would stay in memory as long as
 * the gateway serves: `readSettings` has another process for them (test/unit/bundle.test.ts). The commands
 * of the banner work as they are printed (test/unit/cli/serve.banner.test.ts, test/e2e/first-start.test.ts).
 * A banner that cannot be written ends nothing (test/unit/cli/program.test.ts).
 */
import { fork } from 'node:child_process';
import { basename, dirname, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ConfigError } from '../config/config-error.js';
import { DEMO_MODEL } from '../config/examples.js';
import type { LoadedSettings } from '../config/load.js';
import type { Settings } from '../config/schema.js';
import { packageVersion } from '../core/version.js';
import type { GatewayReady } from '../gateway/messages.js';
import { supervise, supervisorOptions } from '../supervisor/supervisor.js';
import { createLog, createLogSwitch, LogSwitch } from '../telemetry/log.js';
import { SETTINGS_PROCESS_VARIABLE } from './runtime-support.js';

/** Runs until the gateways have ended, and sets the exit code. Called once, first in its process. */
export async function serve(): Promise<void> {
  const logSwitch = new LogSwitch(createLogSwitch());
  const log = createLog('supervisor', logSwitch);
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    // The reader of the banner may close the pipe. Whatever else the output is, callers are served.
    if (error.code !== 'EPIPE')
      log.warn('the banner cannot be written to standard output', { error: error.message });
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

export interface BannerFacts {
  readonly version: string;
  readonly settings: Settings;
  /** Path of the configuration file; undefined if there is none. */
  readonly source: string | undefined;
  readonly ready: GatewayReady;
  /** How an operator calls this program here: `node dist/cli/main.js`. */
  readonly command: string;
}

/** These ids fit into two lines of a terminal. */
const MODELS_SHOWN_MAX = 8;

/** The banner, with a line break at its end. It shows the demo key at the start at which the key is made. */
export function bannerOf(facts: BannerFacts): string {
  const { settings, ready } = facts;
  const address = `${settings.listen.tls === undefined ? 'http' : 'https'}://${hostPort(settings.listen.host, ready.port)}`;
  const ids = settings.models.map((model) => model.id);
  const more = ids.length > MODELS_SHOWN_MAX ? ` and ${ids.length - MODELS_SHOWN_MAX} more` : '';
  const lines = [
    `Tollgate ${facts.version}`,
    '',
    `  Serving   ${address}/v1`,
    `  Admin     http://${hostPort(settings.admin.host, ready.adminPort)}`,
    `  Models    ${ids.slice(0, MODELS_SHOWN_MAX).join(', ')}${more}`,
    `  Data      ${settings.data}`,
    `  Settings  ${facts.source ?? 'built in (no tollgate.yaml here); to write one: ' + facts.command + ' config example'}`,
    '',
    ...demoLines(facts, address),
  ];
  return `${lines.join('\n')}\n`;
}

function demoLines({ ready, settings, command }: BannerFacts, address: string): string[] {
  if (ready.demoKey !== undefined) {
    return [
      'Demo key, shown only once:',
      '',
      `  ${ready.demoKey}`,
      '',
      'Try it, whole and streamed:',
      '',
      `  ${curlLine(address, ready.demoKey, false)}`,
      '',
      `  ${curlLine(address, ready.demoKey, true)}`,
      '',
    ];
  }
  if (ready.demoAccountId === undefined) return [];
  return [
    'The demo key was shown at the first start. To make another:',
    '',
    `  ${command} keys create --account ${ready.demoAccountId} --name another --data ${quoted(settings.data)}`,
    '',
  ];
}

function curlLine(address: string, key: string, stream: boolean): string {
  const body = {
    model: DEMO_MODEL,
    messages: [{ role: 'user', content: 'Hello, Tollgate!' }],
    ...(stream ? { stream: true } : {}),
  };
  return [
    stream ? 'curl -N' : 'curl',
    `${address}/v1/chat/completions`,
    `-H 'Authorization: Bearer ${key}'`,
    `-H 'Content-Type: application/json'`,
    `-d '${JSON.stringify(body)}'`,
  ].join(' ');
}

/** An address that this machine can call: nobody can connect to a wildcard. */
function hostPort(host: string, port: number): string {
  if (host === '0.0.0.0') return `127.0.0.1:${port}`;
  if (host === '::') return `[::1]:${port}`;
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** The command line by which an operator in `workingDirectory` calls the script again, without arguments. */
export function commandOf(scriptPath: string, workingDirectory: string): string {
  if (basename(scriptPath) === 'tollgate') {
    return basename(dirname(scriptPath)) === '.bin' ? 'npx tollgate' : 'tollgate';
  }
  const path = relative(workingDirectory, scriptPath);
  return `node ${quoted(path.startsWith('..') ? scriptPath : path)}`;
}

/** The word, quoted for a POSIX shell if it has to be. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** The one message that the process of serve-command.ts sends. */
export type ReadSettings =
  | { readonly kind: 'loaded'; readonly loaded: LoadedSettings }
  | { readonly kind: 'refused'; readonly problems: readonly string[] };

/** The process that reads the settings has ended without them. It has printed why, or the help. */
class SettingsUnread extends Error {
  readonly exitCode: number;

  constructor(exitCode: number | null, signal: string | null) {
    super(
      `the settings could not be read: the process that reads them ended (${signal ?? `exit code ${exitCode ?? 0}`})`,
    );
    this.exitCode = exitCode ?? 1;
  }
}

/** `../cli/`, so that the path is right from a chunk of the bundle too (scripts/bundle.mjs). */
const ENTRY = new URL('../cli/main.js', import.meta.url);
/** Reading takes half a second. A file that never ends, such as a pipe, must not block later reloads. */
const READ_MS_MAX = 120_000;

/**
 * Reads the settings with the arguments of this process, in a process that runs `serve-command.ts` and ends.
 * So the supervisor loads neither Commander nor YAML nor TypeBox (20 MB resident), at its start and at
 * reloads. Rejects with ConfigError or SettingsUnread.
 *
 * Must hold: that process ends, or is ended after a time limit (test/e2e/refused-start.test.ts,
 * test/e2e/reload.test.ts).
 */
function readSettings(): Promise<LoadedSettings> {
  const child = fork(fileURLToPath(ENTRY), process.argv.slice(2), {
    env: { ...process.env, [SETTINGS_PROCESS_VARIABLE]: '1' },
    serialization: 'advanced',
    timeout: READ_MS_MAX,
  });
  return new Promise((resolve, reject) => {
    child.once('message', (read: ReadSettings) => {
      if (read.kind === 'loaded') resolve(read.loaded);
      else reject(new ConfigError(read.problems));
    });
    child.once('error', reject);
    // After its last message, unlike 'exit'.
    child.once('close', (exitCode, signal) => reject(new SettingsUnread(exitCode, signal)));
  });
}
