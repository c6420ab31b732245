/**
 * Loads the settings from the command line, the environment, the file and the defaults, in this order of
 * precedence, with the keys and certificates that the file names. The supervisor (in a process that then
 * ends) and commands call it at a start and at reloads. Files are read synchronously.
 *
 * Must hold:
 * - A file that both logs would use is found also if the paths differ by links
 *   (test/unit/config/cross-checks.log-files.test.ts).
 * - The order of precedence stays, and the settings are frozen (test/unit/config/load.test.ts).
 * - All errors are thrown at once, in the order of their lines. A setting with an error is undefined in the
 *   draft, and no check reports a further error that only follows from that (test/unit/config/load.test.ts).
 */
import { createHash, createPrivateKey, X509Certificate } from 'node:crypto';
import { existsSync, readlinkSync, realpathSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { SystemClock } from '../core/clock.js';
import { checkLogFiles, crossCheck } from './cross-checks.js';
import { DEMO_SETTINGS } from './examples.js';
import { checkProviders, forEachUpstream } from './provider-settings.js';
import { WANTED_SECRET, webhookKeyOf } from './notify-schema.js';
import { type Environment, type Override, SettingsReader } from './settings-reader.js';
import { CA_BYTES_MAX, isCertificates, KEY_PATTERN } from './upstream-schema.js';
import { ConfigError, formatPath, type SettingPath } from './config-error.js';
import { settingsDeclaration, type Settings, type SettingsDraft } from './schema.js';
import { isWritten, settingsInForce, type SettingInForce } from './settings-in-force.js';
import type { TlsSettings } from './listen-schema.js';
import { checkUpstreamLimits } from './upstream-scopes.js';
import { CONFIG_BYTES_MAX, parseYaml, readBounded, readConfigFile, type YamlSource } from './yaml-source.js';

/** Linux too follows at most this many links in a row. */
const LINKS_MAX = 40;
const CONFIG_FILE_NAME = 'tollgate.yaml';
/** Keys have some hundred characters, signed tokens some thousand. */
const KEY_FILE_BYTES_MAX = 16 * 1024;
/** Enough for a chain of ten certificates with long names; a key has some 3 KB. */
const TLS_FILE_BYTES_MAX = 256 * 1024;

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

/** Throws ConfigError (`config_refused`) with a line for each error: `tollgate.yaml:12: models[0].id: …`. */
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
  checkLogFiles(draft, spellingsOf, report);
  readKeyFiles(draft, folder, readsSecrets, report);
  const lacksSecret = draft.notify?.url !== undefined && draft.notify.secret === undefined;
  // A `secret` or `secret_file` with an error leaves no secret in the draft, but none is missing.
  const isSecretWrong = hasErrors(['notify', 'secret']) || hasErrors(['notify', 'secret_file']);
  if (readsSecrets && lacksSecret && !isSecretWrong)
    report(['notify', 'url'], `needs secret or secret_file: ${WANTED_SECRET}`);
  // After the key files were read, because upstreams of one key share their limits.
  if (readsSecrets) checkUpstreamLimits(draft, report, hasErrors);
  readCaFiles(draft, folder, readsSecrets, report);
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

type Report = (path: SettingPath, text: string) => void;

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
    throw new ConfigError([`${file.shownPath}: cannot be read: ${reasonOf(error)}`]);
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

/**
 * Sets each upstream's `key`, `notify.secret` and `admin.oidc.client_secret` to the content of its file.
 * Makes the paths of these files and of `credentials_file` absolute. Reads no file unless `readsSecrets`.
 */
function readKeyFiles(draft: SettingsDraft, folder: string, readsSecrets: boolean, report: Report): void {
  const isKey = (text: string): boolean => new RegExp(KEY_PATTERN).test(text);
  const read = (file: string, path: SettingPath, errorText: string, fits: (text: string) => boolean) => {
    if (!readsSecrets) return undefined;
    try {
      const key = readBounded(file, KEY_FILE_BYTES_MAX)?.trim();
      if (key !== undefined && fits(key)) return key;
      report(path, errorText);
    } catch (error) {
      report(path, `cannot be read: ${reasonOf(error)}`);
    }
    return undefined;
  };
  forEachUpstream(draft.models, (upstream, path) => {
    if (upstream.credentials_file !== undefined)
      upstream.credentials_file = resolve(folder, upstream.credentials_file);
    if (upstream.key_file === undefined) return;
    upstream.key_file = resolve(folder, upstream.key_file);
    const errorText = 'the file holds no key, want one line of visible characters';
    const key = read(upstream.key_file, [...path, 'key_file'], errorText, isKey);
    if (key !== undefined) upstream.key = key;
  });
  const { notify } = draft;
  if (notify?.secret_file !== undefined) {
    notify.secret_file = resolve(folder, notify.secret_file);
    const errorText = `the file holds no secret, want ${WANTED_SECRET}`;
    const isSecret = (text: string): boolean => webhookKeyOf(text) !== undefined;
    const secret = read(notify.secret_file, ['notify', 'secret_file'], errorText, isSecret);
    if (secret !== undefined) notify.secret = secret;
  }
  const oidc = draft.admin?.oidc;
  if (oidc?.client_secret_file !== undefined) {
    oidc.client_secret_file = resolve(folder, oidc.client_secret_file);
    const path = ['admin', 'oidc', 'client_secret_file'];
    const errorText = 'the file holds no secret, want one line of visible characters';
    const secret = read(oidc.client_secret_file, path, errorText, isKey);
    if (secret !== undefined) oidc.client_secret = secret;
  }
}

/** Sets each upstream's `ca` to the content of its certificate file. Reads no file unless `readsSecrets`. */
function readCaFiles(draft: SettingsDraft, folder: string, readsSecrets: boolean, report: Report): void {
  forEachUpstream(draft.models, (upstream, path) => {
    if (upstream.ca_file === undefined) return;
    upstream.ca_file = resolve(folder, upstream.ca_file);
    if (!readsSecrets) return;
    try {
      const ca = readBounded(upstream.ca_file, CA_BYTES_MAX);
      if (ca !== undefined && isCertificates(ca)) upstream.ca = ca;
      else report([...path, 'ca_file'], 'the file holds no certificate, want one or more in PEM form');
    } catch (error) {
      report([...path, 'ca_file'], `cannot be read: ${reasonOf(error)}`);
    }
  });
}

type TlsDraft = { [Name in keyof TlsSettings]?: TlsSettings[Name] | undefined };

/**
 * Makes the paths of `listen.tls` absolute, and adds the digest of its files or reports what is wrong.
 * `nowMs` is wall-clock time. Exported for tests.
 */
export function readTlsFiles(tls: TlsDraft | undefined, folder: string, nowMs: number, report: Report): void {
  if (tls?.cert_file === undefined || tls.key_file === undefined) return;
  tls.cert_file = resolve(folder, tls.cert_file);
  tls.key_file = resolve(folder, tls.key_file);
  const certificate = readTlsFile('cert_file', tls.cert_file, report);
  const key = readTlsFile('key_file', tls.key_file, report);
  if (certificate === undefined || key === undefined) return;
  const error = tlsFileErrorOf(tls, certificate, key, nowMs);
  if (error === undefined) tls.digest = createHash('sha256').update(certificate).update(key).digest('hex');
  else report(['listen', 'tls', error.setting], error.text);
}

/** Returns the text of the file; undefined, after a report, if it cannot be read or is too long. */
function readTlsFile(setting: 'cert_file' | 'key_file', file: string, report: Report): string | undefined {
  try {
    const text = readBounded(file, TLS_FILE_BYTES_MAX);
    if (text === undefined)
      report(['listen', 'tls', setting], `${file}: longer than ${TLS_FILE_BYTES_MAX} bytes`);
    return text;
  } catch (error) {
    report(['listen', 'tls', setting], `cannot be read: ${reasonOf(error)}`);
    return undefined;
  }
}

interface TlsFileError {
  readonly setting: 'cert_file' | 'key_file';
  readonly text: string;
}

/** Returns what is wrong with the two files, or undefined. Checks only the first certificate. */
function tlsFileErrorOf(
  { cert_file: certFile, key_file: keyFile, passphrase }: TlsDraft,
  certificate: string,
  key: string,
  nowMs: number,
): TlsFileError | undefined {
  let leaf: X509Certificate;
  try {
    leaf = new X509Certificate(certificate);
  } catch {
    return { setting: 'cert_file', text: `${certFile}: holds no certificate, want one or more in PEM form` };
  }
  if (nowMs > Date.parse(leaf.validTo))
    return { setting: 'cert_file', text: `${certFile}: the certificate has expired, on ${leaf.validTo}` };
  if (nowMs < Date.parse(leaf.validFrom))
    return {
      setting: 'cert_file',
      text: `${certFile}: the certificate is not valid before ${leaf.validFrom}`,
    };
  try {
    const isKeyOfLeaf = leaf.checkPrivateKey(
      createPrivateKey({ key, ...(passphrase === undefined ? {} : { passphrase }) }),
    );
    if (isKeyOfLeaf) return undefined;
    return { setting: 'key_file', text: `${keyFile}: is not the key of the certificate in ${certFile}` };
  } catch (error) {
    const text = `${keyFile}: no private key in PEM form can be read from it, with the passphrase as it is: ${reasonOf(error)}`;
    return { setting: 'key_file', text };
  }
}

/**
 * Returns the path without links to folders, and also without a link at its end. Older files of a log are
 * beside the link, because the log is renamed, not the file that it links to.
 */
function spellingsOf(path: string): readonly string[] {
  return [join(withoutLinks(dirname(path)), basename(path)), withoutLinks(path)];
}

/** Returns the path of the same file without links, also if the file is not there yet. */
function withoutLinks(path: string, linksMax = LINKS_MAX): string {
  try {
    return realpathSync(path);
  } catch {
    // Something of the path is not there yet, or may not be read.
  }
  const target = linksMax > 0 ? linkTargetOf(path) : undefined;
  if (target !== undefined) return withoutLinks(target, linksMax - 1);
  const folder = dirname(path);
  return folder === path ? path : join(withoutLinks(folder, linksMax), basename(path));
}

/** Returns undefined if the path is no link. */
function linkTargetOf(path: string): string | undefined {
  try {
    return resolve(realpathSync(dirname(path)), readlinkSync(path));
  } catch {
    return undefined;
  }
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function freezeDeep<T>(value: T): T {
  if (typeof value === 'object' && value !== null) Object.values(Object.freeze(value)).forEach(freezeDeep);
  return value;
}
