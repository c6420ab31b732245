/**
 * Declares the sections `listen` and `admin`: addresses, TLS, and the web pages that may call (CORS).
 * schema.ts has both sections as part of all settings, and annotations.ts says what the keywords that begin
 * with `x-` mean. `Cors` (request/response.ts) and admin/allowed-hosts.ts enforce `listen.cors` and
 * `admin.hosts`. Main threads and commands.
 *
 * Must hold: an origin is written as browsers send it, because listeners compare it with the header `Origin`
 * as a text (test/unit/config/listen-schema.cors.test.ts).
 */
import * as Type from 'typebox';
import { LISTENERS_MAX } from '../core/limits.js';
import { filePath, section, settingsMap, wholeNumber, type Annotations } from './annotations.js';
import { oidcSchema } from './oidc-schema.js';

/** An address to listen on. It is no part of a URL, so IPv6 has no brackets. */
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

/** Apps and extensions have schemes of their own, such as `capacitor:`. */
const ORIGIN = '^(?:\\*|[a-z][a-z0-9+.-]{0,30}://[a-z0-9._:\\[\\]-]{1,255})$';

/** Whether browsers send the origin in this form. They leave out the scheme's default port. */
function isAsSent(origin: string): boolean {
  // For the schemes of apps and extensions `URL` gives no origin, and `*` is no URL: both pass.
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

const tlsSchema = Type.Object(
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
);

/** `listen.tls` after setting-files.ts has read the files. */
export interface TlsSettings extends Type.Static<typeof tlsSchema> {
  /** Digest of both files, which setting-files.ts adds: so a change of a file is one of the settings. */
  digest?: string;
}

export const listenSchema = Type.Object(
  {
    host: host('TOLLGATE_HOST', 'Address that callers reach.'),
    port: port('TOLLGATE_PORT', 8080, 'Port that callers reach.'),
    listeners: wholeNumber(1, LISTENERS_MAX, 1, 'threads', {
      description: 'Threads that accept calls, all on one port.',
      applies: 'replacement',
    }),
    tls: Type.Optional(Type.Unsafe<TlsSettings>(tlsSchema)),
    cors: Type.Optional(corsSchema),
  },
  section('Where callers are served.'),
);

/** The Host of a request is compared with each entry `*.name`, one by one. */
const ADMIN_HOSTS_MAX = 100;

export const adminSchema = Type.Object(
  {
    host: host('TOLLGATE_ADMIN_HOST', 'Address of the admin interface, health and metrics.'),
    port: port('TOLLGATE_ADMIN_PORT', 8081, 'Port of the admin interface, health and metrics.'),
    hosts: Type.Array(
      Type.String({
        // As in the header Host, without the port: IPv6 has brackets.
        pattern: '^(?:\\*|(?:\\*\\.)?[0-9A-Za-z._-]{1,253}|\\[[0-9A-Fa-f:.]{2,45}\\])$',
        description: 'A name, an address, *.name for all names below it, or * for every Host.',
        'x-want': 'a host name or address without scheme and port, such as gateway.example or [fd00::1]',
      } satisfies Annotations),
      {
        default: [],
        maxItems: ADMIN_HOSTS_MAX,
        description:
          'Names by which browsers and monitoring reach the admin port. Always allowed are localhost, 127.0.0.1, [::1], admin.host and the host of admin.oidc.redirect_url; IP addresses too, unless admin.host is of the loopback. Under any other Host the port answers only /healthz, /readyz and requests with a valid token, so that no web page can read it by DNS rebinding. The variable has the names separated by commas.',
        'x-environment': 'TOLLGATE_ADMIN_HOSTS',
        'x-applies': 'restart',
        'x-want': 'a list of host names',
      } satisfies Annotations,
    ),
    oidc: Type.Optional(oidcSchema),
  },
  section('Where operators are served.'),
);
