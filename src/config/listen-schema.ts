/**
 * Declares the sections `listen` and `admin`: addresses, TLS, and the web pages that may call (CORS).
 * schema.ts has both sections as part of all settings. Main threads and commands.
 *
 * Must hold: an origin is written as browsers send it, because listeners compare it with the header `Origin`
 * as a text (test/unit/config/listen-schema.cors.test.ts).
 */
import * as Type from 'typebox';
import { LISTENERS_MAX } from '../core/limits.js';
import { filePath, section, settingsMap, wholeNumber, type Annotations } from './annotations.js';
import { oidcSchema } from './oidc-schema.js';

const host = (environment: string, description: string) =>
  Type.String({
    pattern: '^[0-9A-Za-z.:_-]{1,255}$',
    default: '127.0.0.1',
    description,
    'x-environment': environment,
    'x-want': 'an address or a host name such as 127.0.0.1, 0.0.0.0 or :: (without brackets)',
    'x-applies': 'restart',
  } satisfies Annotations);

const port = (environment: string, preset: number, description: string) =>
  Type.Integer({
    minimum: 0,
    maximum: 65_535,
    default: preset,
    description: `${description} 0 takes a free one.`,
    'x-environment': environment,
    'x-applies': 'restart',
  } satisfies Annotations);

/** Every listener has all origins in memory, some hundred bytes each. */
const ORIGINS_MAX = 100;
/** No browser keeps the response to a preflight for longer than a day. */
const MAX_AGE_SECONDS_MAX = 86_400;

const ORIGIN = '^(?:\\*|[a-z][a-z0-9+.-]{0,30}://[a-z0-9._:\\[\\]-]{1,255})$';

/** Whether browsers send the origin in this form. They leave out the scheme's default port. */
function isAsSent(origin: string): boolean {
  if (!/^https?:/.test(origin)) return true;
  try {
    return new URL(origin).origin === origin;
  } catch {
    return false;
  }
}

const corsSchema = Type.Object(
  {
    origins: Type.Array(
      Type.Refine(
        Type.String({
          pattern: ORIGIN,
          description: 'Scheme, host and port of a page, or * for every page.',
          'x-want':
            'an origin as browsers send it, such as https://app.example.com or http://localhost:3000 (lower case, no path, no usual port), or *',
        } satisfies Annotations),
        isAsSent,
      ),
      {
        minItems: 1,
        maxItems: ORIGINS_MAX,
        description:
          'Pages whose scripts may call the gateway and read its answers. A key that a page holds is known to whoever opens it.',
        'x-want': 'a list of at least one origin',
      } satisfies Annotations,
    ),
    max_age_seconds: wholeNumber(0, MAX_AGE_SECONDS_MAX, 600, 'seconds', {
      description: 'How long a browser may keep the answer to a preflight.',
    }),
  },
  settingsMap(
    'Lets scripts in browsers call the gateway (CORS); left out, browsers refuse them the answers.',
    'reload',
  ),
);

/** `listen.tls` after load.ts has read the files. */
export interface TlsSettings {
  cert_file: string;
  key_file: string;
  passphrase?: string;
  /** Digest of both files, so that a change of a file is a change of the settings. load.ts adds it. */
  digest?: string;
}

const tlsSchema = Type.Unsafe<TlsSettings>(
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
    settingsMap(
      'Serves HTTPS (TLS 1.2 and 1.3) in place of HTTP. The files are read again by a reload.',
      'reload',
    ),
  ),
);

export const listenSchema = Type.Object(
  {
    host: host('TOLLGATE_HOST', 'Address that callers reach.'),
    port: port('TOLLGATE_PORT', 8080, 'Port that callers reach.'),
    listeners: wholeNumber(1, LISTENERS_MAX, 1, 'threads', {
      description: 'Threads that accept calls, all on one port.',
      applies: 'replacement',
    }),
    tls: Type.Optional(tlsSchema),
    cors: Type.Optional(corsSchema),
  },
  section('Where callers are served.'),
);

/** More names than any admin port has. */
const ADMIN_HOSTS_MAX = 100;

export const adminSchema = Type.Object(
  {
    host: host('TOLLGATE_ADMIN_HOST', 'Address of the admin interface, health and metrics.'),
    port: port('TOLLGATE_ADMIN_PORT', 8081, 'Port of the admin interface, health and metrics.'),
    hosts: Type.Array(
      Type.String({
        pattern: '^(?:\\*|(?:\\*\\.)?[0-9A-Za-z._-]{1,253}|\\[[0-9A-Fa-f:.]{2,45}\\])$',
        description: 'A name, an address, *.name for all names below it, or * for every Host.',
        'x-want': 'a host name or address without scheme and port, such as gateway.example or [fd00::1]',
      } satisfies Annotations),
      {
        default: [],
        maxItems: ADMIN_HOSTS_MAX,
        description:
          'Names that the admin port is reached by, besides localhost, 127.0.0.1, [::1] and admin.host; any address if admin.host is not of the loopback. Under another Host it answers only /healthz, /readyz and who sends the admin token, so that no web page can read it by DNS rebinding. In the variable separated by commas.',
        'x-environment': 'TOLLGATE_ADMIN_HOSTS',
        'x-applies': 'restart',
        'x-want': 'a list of host names',
      } satisfies Annotations,
    ),
    oidc: Type.Optional(oidcSchema),
  },
  section('Where operators are served.'),
);
