/**
 * The certificate that callers are served with: its settings, and whether its files are what they should be. Main threads and
 * commands.
 */
import { createHash, createPrivateKey, X509Certificate } from 'node:crypto';
import { resolve } from 'node:path';
import { Type } from 'typebox';
import { filePath, type Annotations } from './annotations.js';
import type { SettingPath } from './config-error.js';
import { readBounded } from './yaml-source.js';

/** A chain of ten certificates with long names; a key is some 3 KB. */
const FILE_BYTES_MAX = 256 * 1024;

export interface TlsSettings {
  cert_file: string;
  key_file: string;
  passphrase?: string;
  /** Of the contents of both files, so that a change of them is one of the settings. Not written by people, but by `readTlsFiles`. */
  digest?: string;
}

export const tlsSchema = Type.Unsafe<TlsSettings>(
  Type.Object(
    {
      cert_file: filePath(
        'File with the certificate and those between it and a well-known one (PEM); relative to the configuration file.',
      ),
      key_file: filePath('File with the private key of the certificate (PEM).'),
      passphrase: Type.Optional(
        Type.String({
          minLength: 1,
          maxLength: 1_024,
          description: 'What the private key is encrypted with, as a reference to an environment variable.',
          'x-secret': true,
          'x-want': 'a reference such as "${TLS_PASSPHRASE}"',
        } satisfies Annotations),
      ),
    },
    {
      description: 'Serves HTTPS (TLS 1.2 and 1.3) in place of HTTP. The files are read again by a reload.',
      'x-want': 'a map of settings',
      'x-applies': 'reload',
    } satisfies Annotations,
  ),
);

type Report = (path: SettingPath, text: string) => void;
type TlsDraft = { [Name in keyof TlsSettings]?: TlsSettings[Name] | undefined };

/** Makes the paths absolute, reports files that cannot serve, naming them, and puts in the digest where they can. */
export function readTlsFiles(tls: TlsDraft | undefined, folder: string, nowMs: number, report: Report): void {
  if (tls?.cert_file === undefined || tls.key_file === undefined) return;
  tls.cert_file = resolve(folder, tls.cert_file);
  tls.key_file = resolve(folder, tls.key_file);
  const certificate = readFile('cert_file', tls.cert_file, report);
  const key = readFile('key_file', tls.key_file, report);
  if (certificate === undefined || key === undefined) return;
  const fault = tlsFileErrorOf(tls, certificate, key, nowMs);
  if (fault === undefined) tls.digest = createHash('sha256').update(certificate).update(key).digest('hex');
  else report(['listen', 'tls', fault.setting], fault.text);
}

function readFile(setting: 'cert_file' | 'key_file', file: string, report: Report): string | undefined {
  try {
    const text = readBounded(file, FILE_BYTES_MAX);
    if (text === undefined)
      report(['listen', 'tls', setting], `${file}: longer than ${FILE_BYTES_MAX} bytes`);
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
    const belongs = leaf.checkPrivateKey(
      createPrivateKey({ key, ...(passphrase === undefined ? {} : { passphrase }) }),
    );
    if (belongs) return undefined;
    return { setting: 'key_file', text: `${keyFile}: is not the key of the certificate in ${certFile}` };
  } catch (error) {
    const text = `${keyFile}: no private key in PEM form can be read from it, with the passphrase as it is: ${reasonOf(error)}`;
    return { setting: 'key_file', text };
  }
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
