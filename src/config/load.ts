/**
 * Loads the settings from the command line, the environment, the file and the defaults, in this order of
 * precedence, with the files that the settings name (setting-files.ts). The supervisor (in a process that
 * then ends) and commands call it at a start and at reloads. Files are read synchronously.
 *
 * Must hold:
 * - The order of precedence stays, and the settings are frozen (test/unit/config/load.test.ts).
 * - All errors are thrown at once, in the order of their lines. A setting with an error is undefined in the
 *   draft, and no check reports a further error that only follows from that (test/unit/config/load.test.ts).
 */
import { existsSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { SystemClock } from '../core/clock.js';
import { errorText } from '../core/errors.js';
import { crossCheck } from './cross-checks.js';
import { DEMO_SETTINGS } from './examples.js';
import { checkProviders } from './provider-settings.js';
import { WANTED_SECRET } from './notify-schema.js';
import { checkLogFiles, readCaFiles, readKeyFiles, readTlsFiles } from './setting-files.js';
import { type Environment, type Override, SettingsReader } from './settings-reader.js';
import { ConfigError, formatPath, type SettingPath } from './config-error.js';
import { settingsDeclaration, type Settings, type SettingsDraft } from './schema.js';
import { isWritten, settingsInForce, type SettingInForce } from './settings-in-force.js';
import { checkUpstreamLimits } from './upstream-scopes.js';
import { CONFIG_BYTES_MAX, parseYaml, readConfigFile, type YamlSource } from './yaml-source.js';

const CONFIG_FILE_NAME = 'tollgate.yaml';

export interface LoadOptions {
  /** Path of the configuration file, which must exist. */
  readonly config?: string | undefined;
  /** The content of the file `config`, if it has not been written yet. Then no file is read. */
  readonly text?: string | undefined;
  readonly host?: string | undefined;
  readonly port?: number | undefined;
  readonly adminPort?: number | undefined;
  readonly data?: string | undefined;
  /**
   * False for a command that neither serves nor calls an upstream: secrets and certificates are not read and
   * may be missing. Default: true.
   */
  readonly secrets?: boolean | undefined;
}

/** What the process was started with. Tests pass their own. */
interface ProcessContext {
  readonly environment: Environment;
  readonly workingDirectory: string;
}

/** cli/serve.ts sends it to the supervisor, perhaps one of an older version, so members keep their names. */
export interface LoadedSettings {
  /** Complete and deeply frozen. Paths are absolute; `upstreams[].key` is the key, wherever it came from. */
  readonly settings: Settings;
  /** Absolute path of the file; undefined without a file. */
  readonly source: string | undefined;
  /** Whether there is no file, so that the built-in demo runs. */
  readonly demo: boolean;
  /** Each setting as a text, for operators. */
  readonly inForce: readonly SettingInForce[];
}

/** Throws ConfigError with a line for each error: `tollgate.yaml:12: models[0].id: …`. */
export function loadSettings(
  options: LoadOptions = {},
  processContext: ProcessContext = { environment: process.env, workingDirectory: process.cwd() },
): LoadedSettings {
  const { environment, workingDirectory } = processContext;
  const file = findFile(options, processContext);
  const yaml = file === undefined ? undefined : readFile(file, options.text);
  const errors: LoadError[] = [];
  /** Paths of settings with an error, as texts. */
  const pathsWithError = new Set<string>();
  const hasErrors = (path: SettingPath): boolean => {
    const outer = formatPath(path);
    return [...pathsWithError].some(
      (text) => text === outer || text.startsWith(`${outer}.`) || text.startsWith(`${outer}[`),
    );
  };
  /** `origin`: the option or variable that gave the value; undefined if the file did. */
  const report = (path: SettingPath, text: string, origin?: string): void => {
    const line = origin === undefined ? yaml?.lineOf(path) : undefined;
    pathsWithError.add(formatPath(path));
    const location =
      origin ?? (file === undefined || line === undefined ? undefined : `${file.shownPath}:${line}`);
    errors.push({
      line: line ?? 0,
      text: `${location === undefined ? '' : `${location}: `}${formatPath(path)}: ${text}`,
    });
  };
  const readsSecrets = options.secrets ?? true;
  const readerOptions = { environment, optionOverrides: overridesOf(options), secrets: readsSecrets, report };
  const reader = new SettingsReader(settingsDeclaration, readerOptions);
  const draft = (reader.read(yaml === undefined ? DEMO_SETTINGS : yaml.value) ?? {}) as SettingsDraft;
  crossCheck(draft, report, hasErrors);
  // Last of the checks that may reject a setting, because it must not report a rejected one as missing.
  checkProviders(draft, report, hasErrors);

  const folder = file === undefined ? workingDirectory : dirname(file.path);
  const dataFolder = reader.overrideAt(['data']) === undefined ? folder : workingDirectory;
  if (draft.data !== undefined) draft.data = resolve(dataFolder, draft.data);
  for (const log of [draft.usage_log, draft.access_log])
    if (log?.path !== undefined) log.path = resolve(folder, log.path);
  checkLogFiles(draft, report);
  const fileReader = { folder, readsSecrets, report };
  readKeyFiles(draft, fileReader);
  const lacksSecret = draft.notify?.url !== undefined && draft.notify.secret === undefined;
  // A `secret` or `secret_file` with an error leaves no secret in the draft, but none is missing.
  const isSecretWrong = hasErrors(['notify', 'secret']) || hasErrors(['notify', 'secret_file']);
  if (readsSecrets && lacksSecret && !isSecretWrong)
    report(['notify', 'url'], `needs secret or secret_file: ${WANTED_SECRET}`);
  // After the key files were read, because upstreams of one key share their limits.
  if (readsSecrets) checkUpstreamLimits(draft, report, hasErrors);
  readCaFiles(draft, fileReader);
  // Without its passphrase the key cannot be read.
  if (readsSecrets && !hasErrors(['listen', 'tls', 'passphrase']))
    readTlsFiles(draft.listen?.tls, folder, new SystemClock().wallMs(), report);

  if (errors.length > 0) {
    errors.sort((error, other) => error.line - other.line);
    throw new ConfigError(errors.map(({ text }) => text));
  }
  // The cast is safe because without an error the reader has filled in every declared setting.
  const settings = freezeDeep(draft) as Settings;
  const originOf = (path: SettingPath): string => {
    const override = reader.overrideAt(path);
    if (override !== undefined) return override;
    if (file === undefined || yaml === undefined) return isWritten(DEMO_SETTINGS, path) ? 'demo' : 'default';
    return isWritten(yaml.value, path) ? `${file.shownPath}:${yaml.lineOf(path)}` : 'default';
  };
  const inForce = settingsInForce(settingsDeclaration, settings, originOf);
  return { settings, source: file?.path, demo: file === undefined, inForce };
}

interface LoadError {
  /** 0 if the setting is not in the file. */
  readonly line: number;
  readonly text: string;
}

interface ConfigFile {
  readonly path: string;
  /** The path as the operator gave it. */
  readonly shownPath: string;
}

/** Finds the file by the option, else the variable, else the default name; undefined without a file. */
function findFile(
  options: LoadOptions,
  { environment, workingDirectory }: ProcessContext,
): ConfigFile | undefined {
  const fromEnvironment = environment.TOLLGATE_CONFIG;
  const named = options.config ?? (fromEnvironment === '' ? undefined : fromEnvironment);
  if (named !== undefined) return { path: resolve(workingDirectory, named), shownPath: named };
  const path = resolve(workingDirectory, CONFIG_FILE_NAME);
  return existsSync(path) ? { path, shownPath: basename(path) } : undefined;
}

/** Parses the file, or `unwritten` in place of its content. Throws ConfigError. */
function readFile(file: ConfigFile, unwritten: string | undefined): YamlSource {
  /** Undefined if it is too long. */
  let text: string | undefined;
  try {
    if (unwritten === undefined) text = readConfigFile(file.path);
    else if (Buffer.byteLength(unwritten) <= CONFIG_BYTES_MAX) text = unwritten;
  } catch (error) {
    throw new ConfigError([`${file.shownPath}: cannot be read: ${errorText(error)}`]);
  }
  if (text === undefined) throw new ConfigError([`${file.shownPath}: longer than ${CONFIG_BYTES_MAX} bytes`]);
  return parseYaml(text, file.shownPath);
}

/** Returns the options of the command line by the paths of the settings that they override. */
function overridesOf(options: LoadOptions): Map<string, Override> {
  const overrides = new Map<string, Override>();
  const add = (path: string, origin: string, value: string | number | undefined): void => {
    if (value !== undefined) overrides.set(path, { origin, value });
  };
  add('listen.host', '--host', options.host);
  add('listen.port', '--port', options.port);
  add('admin.port', '--admin-port', options.adminPort);
  add('data', '--data', options.data);
  return overrides;
}

function freezeDeep<T>(value: T): T {
  if (typeof value === 'object' && value !== null) Object.values(Object.freeze(value)).forEach(freezeDeep);
  return value;
}
