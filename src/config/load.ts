/**
 * From file, environment and command line to the settings. Precedence: command line, environment, file, defaults.
 * Reads files synchronously: main threads and commands, at start.
 */
import { existsSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { SystemClock } from '../core/clock.js';
import { crossCheck } from './cross-checks.js';
import { DEMO_SETTINGS } from './defaults.js';
import { type Environment, type Override, SettingsReader } from './settings-reader.js';
import { CA_BYTES_MAX, isCertificates } from './model-schema.js';
import { ConfigError, formatPath, type SettingPath } from './config-error.js';
import { settingsDeclaration, type Settings, type SettingsDraft } from './schema.js';
import { isWritten, settingsInForce, type SettingInForce } from './settings-in-force.js';
import { readTlsFiles } from './tls.js';
import { CONFIG_BYTES_MAX, parseYaml, readBounded, type YamlSource } from './yaml-source.js';

export const CONFIG_FILE_NAME = 'tollgate.yaml';
/** Keys are some hundred characters; signed tokens some thousand. */
const KEY_FILE_BYTES_MAX = 16 * 1024;
const KEY_PATTERN = /^[!-~]{1,4096}$/;

export interface LoadOptions {
  /** Path of the configuration file, which must exist. */
  readonly config?: string | undefined;
  readonly host?: string | undefined;
  readonly port?: number | undefined;
  readonly adminPort?: number | undefined;
  readonly data?: string | undefined;
  /** False for a command that calls no upstream: providers' keys are not looked for then, and may be absent. Default true. */
  readonly secrets?: boolean | undefined;
}

/** Where the process stands; tests give their own. */
export interface Surroundings {
  readonly environment: Environment;
  readonly workingDirectory: string;
}

export interface LoadedSettings {
  /** Complete and deeply frozen. Paths are absolute; `upstreams[].key` holds the key, wherever it came from. */
  readonly settings: Settings;
  /** Absolute path of the file; undefined where there is none. */
  readonly source: string | undefined;
  /** Whether there was no file at all, and the built-in demo runs. */
  readonly demo: boolean;
  /** The same, setting by setting, for those who look. */
  readonly inForce: readonly SettingInForce[];
}

/** Throws ConfigError (`config_refused`) with one line for each fault: `tollgate.yaml:12: models[0].id: …`. */
export function loadSettings(
  options: LoadOptions = {},
  surroundings: Surroundings = { environment: process.env, workingDirectory: process.cwd() },
): LoadedSettings {
  const { environment, workingDirectory } = surroundings;
  const file = findFile(options, surroundings);
  const yaml = file === undefined ? undefined : readFile(file);
  const errors: LoadError[] = [];
  const report = (path: SettingPath, text: string, origin?: string): void => {
    const line = origin === undefined ? yaml?.lineOf(path) : undefined;
    const place = origin ?? (file === undefined || line === undefined ? undefined : `${file.shown}:${line}`);
    errors.push({
      line: line ?? 0,
      text: `${place === undefined ? '' : `${place}: `}${formatPath(path)}: ${text}`,
    });
  };
  const secrets = options.secrets ?? true;
  const reader = new SettingsReader(settingsDeclaration, {
    environment,
    flags: flagsOf(options),
    secrets,
    report,
  });
  const draft = (reader.read(yaml === undefined ? DEMO_SETTINGS : yaml.value) ?? {}) as SettingsDraft;
  crossCheck(draft, report);

  const folder = file === undefined ? workingDirectory : dirname(file.path);
  if (draft.data !== undefined) {
    draft.data = resolve(reader.overrideAt(['data']) !== undefined ? workingDirectory : folder, draft.data);
  }
  for (const file of [draft.usage_log, draft.access_log]) {
    if (file?.path !== undefined) file.path = resolve(folder, file.path);
  }
  readKeyFiles(draft, folder, secrets, report);
  readCaFiles(draft, folder, report);
  if (secrets) readTlsFiles(draft.listen?.tls, folder, new SystemClock().wallMs(), report);

  if (errors.length > 0) {
    errors.sort((left, right) => left.line - right.line);
    throw new ConfigError(errors.map((fault) => fault.text));
  }
  // Without a fault nothing is missing: the reader filled every declared setting.
  const settings = freezeDeep(draft) as Settings;
  const originOf = (path: SettingPath): string => {
    const override = reader.overrideAt(path);
    if (override !== undefined) return override;
    if (file === undefined || yaml === undefined) return isWritten(DEMO_SETTINGS, path) ? 'demo' : 'default';
    return isWritten(yaml.value, path) ? `${file.shown}:${yaml.lineOf(path)}` : 'default';
  };
  const inForce = settingsInForce(settingsDeclaration, settings, originOf);
  return { settings, source: file?.path, demo: file === undefined, inForce };
}

interface LoadError {
  /** 0 for what was not written in the file. */
  readonly line: number;
  readonly text: string;
}

interface ConfigFile {
  readonly path: string;
  /** As the operator named it. */
  readonly shown: string;
}

function findFile(
  options: LoadOptions,
  { environment, workingDirectory }: Surroundings,
): ConfigFile | undefined {
  const fromEnvironment = environment.TOLLGATE_CONFIG;
  const named = options.config ?? (fromEnvironment === '' ? undefined : fromEnvironment);
  if (named !== undefined) return { path: resolve(workingDirectory, named), shown: named };
  const path = resolve(workingDirectory, CONFIG_FILE_NAME);
  return existsSync(path) ? { path, shown: basename(path) } : undefined;
}

function readFile(file: ConfigFile): YamlSource {
  let text: string | undefined;
  try {
    text = readBounded(file.path, CONFIG_BYTES_MAX);
  } catch (error) {
    throw new ConfigError([`${file.shown}: cannot be read: ${reasonOf(error)}`]);
  }
  if (text === undefined) throw new ConfigError([`${file.shown}: longer than ${CONFIG_BYTES_MAX} bytes`]);
  return parseYaml(text, file.shown);
}

function flagsOf(options: LoadOptions): Map<string, Override> {
  const flags = new Map<string, Override>();
  const add = (path: string, origin: string, value: string | number | undefined): void => {
    if (value !== undefined) flags.set(path, { origin, value });
  };
  add('listen.host', '--host', options.host);
  add('listen.port', '--port', options.port);
  add('admin.port', '--admin-port', options.adminPort);
  add('data', '--data', options.data);
  return flags;
}

/** Puts each key file's content in `key`, so that whoever calls upstreams need not know where keys come from. */
function readKeyFiles(
  draft: SettingsDraft,
  folder: string,
  secrets: boolean,
  report: (path: SettingPath, text: string) => void,
): void {
  draft.models?.forEach((model, modelIndex) => {
    model?.upstreams?.forEach((upstream, index) => {
      if (upstream?.key_file === undefined) return;
      upstream.key_file = resolve(folder, upstream.key_file);
      if (!secrets) return;
      const path = ['models', modelIndex, 'upstreams', index, 'key_file'];
      try {
        const key = readBounded(upstream.key_file, KEY_FILE_BYTES_MAX)?.trim();
        if (key !== undefined && KEY_PATTERN.test(key)) upstream.key = key;
        else report(path, 'the file holds no key, want one line of visible characters');
      } catch (error) {
        report(path, `cannot be read: ${reasonOf(error)}`);
      }
    });
  });
}

/** Puts each certificate file's content in `ca`. */
function readCaFiles(
  draft: SettingsDraft,
  folder: string,
  report: (path: SettingPath, text: string) => void,
): void {
  draft.models?.forEach((model, modelIndex) => {
    model?.upstreams?.forEach((upstream, index) => {
      if (upstream?.ca_file === undefined) return;
      upstream.ca_file = resolve(folder, upstream.ca_file);
      const path = ['models', modelIndex, 'upstreams', index, 'ca_file'];
      try {
        const ca = readBounded(upstream.ca_file, CA_BYTES_MAX);
        if (ca !== undefined && isCertificates(ca)) upstream.ca = ca;
        else report(path, 'the file holds no certificate, want one or more in PEM form');
      } catch (error) {
        report(path, `cannot be read: ${reasonOf(error)}`);
      }
    });
  });
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function freezeDeep<T>(value: T): T {
  if (typeof value === 'object' && value !== null) Object.values(Object.freeze(value)).forEach(freezeDeep);
  return value;
}
