/**
 * Reads the files that settings name: keys, secrets and certificates; and checks that the two logs have
 * files of their own. load.ts calls it. Files are read synchronously.
 *
 * Must hold: no error has the content of a file. A file that both logs would
 * use is found also if the paths differ by links (test/unit/config/setting-files.log-files.test.ts). What
 * cannot serve as certificate or key is named (test/unit/config/setting-files.tls.test.ts).
 */
import { createHash, createPrivateKey, X509Certificate } from 'node:crypto';
import { readlinkSync, realpathSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { errorText } from '../core/errors.js';
import type { Report, SettingPath } from './config-error.js';
import type { TlsSettings } from './listen-schema.js';
import { WANTED_SECRET, webhookKeyOf } from './notify-schema.js';
import { forEachUpstream } from './provider-settings.js';
import type { SettingsDraft } from './schema.js';
import { CA_BYTES_MAX, isCertificates, KEY_PATTERN } from './upstream-schema.js';
import { readBounded } from './yaml-source.js';

/** Linux too follows at most this many links in a row. */
const LINKS_MAX = 40;
/** Keys have some hundred characters, signed tokens some thousand. */
const KEY_FILE_BYTES_MAX = 16 * 1024;
/** Enough for a chain of ten certificates with long names; a key has some 3 KB. */
const TLS_FILE_BYTES_MAX = 256 * 1024;

/** What a file may hold. */
interface FileForm {
  readonly bytesMax: number;
  /** Returns the value in the text of the file; undefined if there is none. */
  readonly valueIn: (text: string) => string | undefined;
  /** The error if there is none, or the file is too long. */
  readonly wrong: string;
}

const secretForm = (noun: string, want: string, fits: (value: string) => boolean): FileForm => ({
  bytesMax: KEY_FILE_BYTES_MAX,
  valueIn: (text) => (fits(text.trim()) ? text.trim() : undefined),
  wrong: `the file holds no ${noun}, want ${want}`,
});
const isLine = (value: string): boolean => new RegExp(KEY_PATTERN).test(value);
const KEY = secretForm('key', 'one line of visible characters', isLine);
const CLIENT_SECRET = secretForm('secret', 'one line of visible characters', isLine);
const SIGNING_SECRET = secretForm('secret', WANTED_SECRET, (value) => webhookKeyOf(value) !== undefined);
const CERTIFICATES: FileForm = {
  bytesMax: CA_BYTES_MAX,
  valueIn: (text) => (isCertificates(text) ? text : undefined),
  wrong: 'the file holds no certificate, want one or more in PEM form',
};

interface FileReader {
  /** Relative paths begin there. */
  readonly folder: string;
  /** If false, no file is read: paths are made absolute alone. */
  readonly readsSecrets: boolean;
  readonly report: Report;
}

/** Sets the keys and secrets that are in files, and makes the paths of `credentials_file` absolute. */
export function readKeyFiles(draft: SettingsDraft, reader: FileReader): void {
  forEachUpstream(draft.models, (upstream, path) => {
    if (upstream.credentials_file !== undefined)
      upstream.credentials_file = resolve(reader.folder, upstream.credentials_file);
    readFileValue(upstream, 'key', KEY, path, reader);
  });
  readFileValue(draft.notify, 'secret', SIGNING_SECRET, ['notify'], reader);
  readFileValue(draft.admin?.oidc, 'client_secret', CLIENT_SECRET, ['admin', 'oidc'], reader);
}

/** Sets each upstream's `ca` to the content of its certificate file. */
export function readCaFiles(draft: SettingsDraft, reader: FileReader): void {
  forEachUpstream(draft.models, (upstream, path) =>
    readFileValue(upstream, 'ca', CERTIFICATES, path, reader),
  );
}

/** If `NAME_file` is given, makes it absolute and sets the setting `name` to the value in that file. */
function readFileValue(
  settings: Record<string, unknown> | undefined,
  name: string,
  form: FileForm,
  path: SettingPath,
  { folder, readsSecrets, report }: FileReader,
): void {
  const fileSetting = `${name}_file`;
  const named = settings?.[fileSetting];
  if (settings === undefined || typeof named !== 'string') return;
  const file = (settings[fileSetting] = resolve(folder, named));
  const value = readsSecrets ? readValue(file, form, [...path, fileSetting], report) : undefined;
  if (value !== undefined) settings[name] = value;
}

/** Returns the value in the file. Undefined, after a report, if the file cannot be read or has none. */
function readValue(file: string, form: FileForm, path: SettingPath, report: Report): string | undefined {
  try {
    const text = readBounded(file, form.bytesMax);
    const value = text === undefined ? undefined : form.valueIn(text);
    if (value === undefined) report(path, form.wrong);
    return value;
  } catch (error) {
    report(path, `cannot be read: ${errorText(error)}`);
    return undefined;
  }
}

type TlsDraft = { [Name in keyof TlsSettings]?: TlsSettings[Name] | undefined };

/**
 * Makes the paths of `listen.tls` absolute, and adds the digest of its files or reports what is wrong. Checks
 * only the first certificate. `nowMs` is wall-clock time.
 */
export function readTlsFiles(tls: TlsDraft | undefined, folder: string, nowMs: number, report: Report): void {
  if (tls?.cert_file === undefined || tls.key_file === undefined) return;
  const certFile = (tls.cert_file = resolve(folder, tls.cert_file));
  const keyFile = (tls.key_file = resolve(folder, tls.key_file));
  const reportOf = (setting: string, text: string): void => report(['listen', 'tls', setting], text);
  const read = (file: string, setting: string): string | undefined => {
    const wrong = `${file}: longer than ${TLS_FILE_BYTES_MAX} bytes`;
    const form = { bytesMax: TLS_FILE_BYTES_MAX, valueIn: (text: string) => text, wrong };
    return readValue(file, form, ['listen', 'tls', setting], report);
  };
  const certificate = read(certFile, 'cert_file');
  const key = read(keyFile, 'key_file');
  if (certificate === undefined || key === undefined) return;
  const certificateError = certificateErrorOf(certificate, nowMs);
  const keyError = certificateError === undefined && keyErrorOf(key, tls.passphrase, certificate, certFile);
  if (certificateError !== undefined) reportOf('cert_file', `${certFile}: ${certificateError}`);
  else if (typeof keyError === 'string') reportOf('key_file', `${keyFile}: ${keyError}`);
  else tls.digest = createHash('sha256').update(certificate).update(key).digest('hex');
}

function certificateErrorOf(certificate: string, nowMs: number): string | undefined {
  if (!isCertificates(certificate)) return 'holds no certificate, want one or more in PEM form';
  const { validFrom, validTo } = new X509Certificate(certificate);
  if (nowMs > Date.parse(validTo)) return `the certificate has expired, on ${validTo}`;
  return nowMs < Date.parse(validFrom) ? `the certificate is not valid before ${validFrom}` : undefined;
}

function keyErrorOf(
  key: string,
  passphrase: string | undefined,
  certificate: string,
  certFile: string,
): string | undefined {
  try {
    const privateKey = createPrivateKey({ key, ...(passphrase === undefined ? {} : { passphrase }) });
    if (new X509Certificate(certificate).checkPrivateKey(privateKey)) return undefined;
    return `is not the key of the certificate in ${certFile}`;
  } catch (error) {
    return `no private key in PEM form can be read from it, with the passphrase as it is: ${errorText(error)}`;
  }
}

/**
 * The access log and the usage log must have different files: in a common file their lines would mix, and
 * both would rotate the file. Call it after the paths were made absolute.
 */
export function checkLogFiles({ usage_log: usage, access_log: access }: SettingsDraft, report: Report): void {
  if (usage?.path === undefined || access?.path === undefined) return;
  const usagePaths = spellingsOf(usage.path);
  const isCommon = (file: string): boolean =>
    usagePaths.some((path) => isLogFileOf(path, file) || isLogFileOf(file, path));
  if (!spellingsOf(access.path).some(isCommon)) return;
  report(
    ['access_log', 'path'],
    `got "${access.path}", want a file that is none of usage_log, also no older one or another process's`,
  );
}

/** Whether `file` is one of the log with that path: its current file or an older one, of any process. */
function isLogFileOf(path: string, file: string): boolean {
  return file.startsWith(path) && /^(\.p\d+)?(\.\d+)?$/.test(file.slice(path.length));
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
