/**
 * Declares the section `admin.oidc`: signing in to the console at an OpenID Connect provider.
 * listen-schema.ts has the section as part of `admin`; cross-checks.ts checks that somebody can sign in. Main
 * threads and commands.
 *
 * Must hold: secrets are exchanged only over HTTPS, or within this machine
 * (test/unit/config/oidc-schema.test.ts).
 */
import * as Type from 'typebox';
import { ROLES } from '../core/roles.js';
import { namedValues, optionalFile, settingsMap, wholeNumber, type Annotations } from './annotations.js';

/** Paths on the admin port: where a sign-in begins, and where the provider sends the browser back to. */
export const OIDC_START_PATH = '/admin/session/oidc';
export const OIDC_CALLBACK_PATH = '/admin/session/oidc/callback';

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];
/** All scopes are in one URL. No provider has so many. */
const SCOPES_MAX = 30;
/** How many values of the claim have a role. More would be single people; roles are for groups of people. */
const ROLE_VALUES_MAX = 1_000;
/** If clocks are further apart, one of them is wrong. */
const CLOCK_TOLERANCE_SECONDS_MAX = 300;
/** A scope by RFC 6749. */
const SCOPE = '^[\\x21\\x23-\\x5b\\x5d-\\x7e]{1,128}$';
const CLAIM = '^[\\x20-\\x7e]{1,256}$';

/** Whether a text is a URL that secrets may be sent to: HTTPS, or HTTP within this machine. */
function isSafeUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname, username, password, hash } = new URL(text);
  // `hash` is empty for a lone `#` too, so the end of the text is looked at.
  if (username !== '' || password !== '' || hash !== '' || text.endsWith('#')) return false;
  return protocol === 'https:' || (protocol === 'http:' && LOOPBACK.includes(hostname));
}

/** Whether a text names an issuer: no query, and not the address of the issuer's own document. */
export function isIssuer(text: string): boolean {
  return isSafeUrl(text) && !text.includes('?') && !text.includes('/.well-known/');
}

/** Whether a text is a URL to which the provider may send a browser back. */
export function isRedirectUrl(text: string): boolean {
  return isSafeUrl(text) && !text.includes('?') && new URL(text).pathname === OIDC_CALLBACK_PATH;
}

export const oidcSchema = Type.Object(
  {
    issuer: Type.Refine(
      Type.String({
        maxLength: 2_000,
        description:
          'The provider as its tokens name it; its document is read from .well-known/openid-configuration below. One tenant: an issuer that signs in everybody, such as …/common of Entra ID, is refused.',
        'x-want':
          'an https:// address without query, as in the document of the provider (http:// for localhost alone)',
      } satisfies Annotations),
      isIssuer,
    ),
    client_id: Type.String({
      pattern: '^[\\x20-\\x7e]{1,512}$',
      description: 'What the provider knows this gateway as.',
      'x-want': 'the client id that the provider gave, of 1 to 512 visible ASCII characters',
    } satisfies Annotations),
    client_secret: Type.Optional(
      Type.String({
        pattern: '^[\\x21-\\x7e]{1,4096}$',
        description:
          'Secret of the client, as a reference to an environment variable; a public client has none and is protected by PKCE alone.',
        'x-want': 'a reference such as "${TOLLGATE_OIDC_SECRET}", or client_secret_file',
        'x-secret': true,
      } satisfies Annotations),
    ),
    client_secret_file: optionalFile('A file that holds the secret; relative to the configuration file.'),
    redirect_url: Type.Refine(
      Type.String({
        maxLength: 2_000,
        description: `Where the provider sends browsers back to, as registered there: the console as browsers reach it, and ${OIDC_CALLBACK_PATH}. Its host need not stand in admin.hosts.`,
        'x-want': `https://HOST${OIDC_CALLBACK_PATH} with the host of the console (http:// for localhost alone)`,
      } satisfies Annotations),
      isRedirectUrl,
    ),
    scopes: Type.Array(
      Type.String({
        pattern: SCOPE,
        description: 'A scope, of visible ASCII characters.',
        'x-want': 'a scope such as groups',
      } satisfies Annotations),
      {
        maxItems: SCOPES_MAX,
        default: ['profile', 'email'],
        description: 'What is asked of the provider besides openid.',
        'x-want': 'a list of scopes',
      } satisfies Annotations,
    ),
    role_claim: Type.String({
      pattern: CLAIM,
      default: 'groups',
      description:
        'The claim that roles are chosen by, a text or a list of texts; dots lead into nested claims, as in resource_access.tollgate.roles. It is looked for in the id token, then in what the provider answers at its userinfo endpoint.',
      'x-want': 'the name of a claim, such as groups',
    } satisfies Annotations),
    roles: namedValues(
      Type.Enum([...ROLES], {
        description: `${ROLES.join(', ')}.`,
        'x-want': `one of ${ROLES.join(', ')}`,
      } satisfies Annotations),
      {
        default: {},
        maxProperties: ROLE_VALUES_MAX,
        description: `Which value of role_claim has which role. Values are compared letter by letter. Who has several gets the one with the most rights: ${[...ROLES].reverse().join(', ')}.`,
        'x-names': '^[^\\x00-\\x1f]{1,256}$',
        'x-want': `a map from values of role_claim to roles, such as {"tollgate-admins": admin}`,
      } satisfies Annotations,
    ),
    default_role: Type.Optional(
      Type.Enum([...ROLES], {
        description: 'Role of everybody else whom the provider signs in. Without it nobody else is let in.',
      } satisfies Annotations),
    ),
    name_claim: Type.String({
      pattern: CLAIM,
      default: 'email',
      description:
        'The claim that operators are called by. Without it, and with an email that the provider calls unverified, they are called by their sub.',
      'x-want': 'the name of a claim, such as email or preferred_username',
    } satisfies Annotations),
    clock_tolerance_seconds: wholeNumber(0, CLOCK_TOLERANCE_SECONDS_MAX, 30, 'seconds', {
      description: 'How far the clocks of the provider and of this host may be apart.',
    }),
    timeout_seconds: wholeNumber(1, 60, 10, 'seconds', {
      description: 'Longest wait for one answer of the provider.',
    }),
  },
  settingsMap(
    'Signs operators in to the console at an OpenID Connect provider, besides the admin token. See docs/sign-in.md.',
    'reload',
  ),
);
