/**
 * Reads the claims of an OpenID Connect provider about a person: a name, and the values that map to a role.
 * oidc.ts calls these functions when somebody signs in. Pure. Main thread of the gateway.
 *
 * Must hold: claims are untrusted text. So a name is one line, an email is ignored if the provider says that
 * it is not verified, and what a console session keeps is bounded.
 */
import { ROLES, type Role } from '../core/roles.js';
import type { Settings } from '../config/schema.js';

export type OidcSettings = NonNullable<Settings['admin']['oidc']>;
export type Claims = Readonly<Record<string, unknown>>;

export interface Person {
  /** One line of at most NAME_CHARS_MAX characters. */
  readonly name: string;
  /** The provider's id of the person, which stays after a change of name: for the log, cut to one line. */
  readonly sub: string;
  /** Values of the role claim, such as groups, without those that the setting `roles` cannot name. */
  readonly values: readonly string[];
  /** Whether the provider has left out the role claim, because of too many groups (Entra ID: _overage_). */
  readonly hasOverage: boolean;
}

const NAME_CHARS_MAX = 200;
/** The setting `roles` can name no longer value, so a longer one gives no role. */
const VALUE_CHARS_MAX = 256;
/** A console session keeps the values, so these bounds keep it to 256,000 characters. */
const VALUES_MAX = 1_000;
/** Names are logged, so they have no control characters and none that change the direction of text. */
const ONE_LINE = /^[^\p{C}\p{Zl}\p{Zp}]+$/u;

/** `claims` must be of a validated token, which always has `sub`. */
export function personOf(claims: Claims, settings: OidcSettings): Person {
  const sub = String(claims.sub);
  const roleClaim = claimAt(claims, settings.role_claim);
  const values = (Array.isArray(roleClaim) ? (roleClaim as readonly unknown[]) : [roleClaim]).filter(
    (value) => typeof value === 'string' && value.length <= VALUE_CHARS_MAX,
  ) as string[];
  // `_claim_names` names whole claims that are elsewhere (OpenID Connect Core 5.6.2).
  const absent = isMap(claims._claim_names) ? Object.keys(claims._claim_names) : [];
  return {
    name: nameIn(claims, settings) ?? oneLine(sub),
    sub: oneLine(sub),
    values: values.slice(0, VALUES_MAX),
    hasOverage:
      roleClaim === undefined && absent.some((name) => `${settings.role_claim}.`.startsWith(`${name}.`)),
  };
}

/** Returns the role with the most rights that `values` map to (the last of ROLES), else the default role. */
export function roleOf(
  values: readonly string[],
  { roles, default_role: defaultRole }: OidcSettings,
): Role | undefined {
  const mapped = values.flatMap((value) => (Object.hasOwn(roles, value) ? roles[value]! : []));
  return ROLES.findLast((role) => mapped.includes(role)) ?? defaultRole;
}

/**
 * Returns the claim at a path; undefined if it is missing or null. A dot leads into an object, or is part of
 * a name, as in a URL; the whole path is tried first. People choose an unverified email themselves, so an
 * `email` counts as missing if an `email_verified` beside it is neither true nor the text of some providers.
 */
export function claimAt(claims: Claims, path: string): unknown {
  const { email_verified: verified = true } = claims;
  if (path === 'email' && verified !== true && verified !== 'true') return undefined;
  if (Object.hasOwn(claims, path)) return claims[path] ?? undefined;
  for (let dot = path.indexOf('.'); dot >= 0; dot = path.indexOf('.', dot + 1)) {
    const name = path.slice(0, dot);
    const outerClaim = Object.hasOwn(claims, name) ? claims[name] : undefined;
    const claim = isMap(outerClaim) ? claimAt(outerClaim, path.slice(dot + 1)) : undefined;
    if (claim !== undefined) return claim;
  }
  return undefined;
}

/** Returns undefined if the claim is missing, too long or not one line. */
function nameIn(claims: Claims, settings: OidcSettings): string | undefined {
  const name = claimAt(claims, settings.name_claim);
  return typeof name === 'string' && name.length <= NAME_CHARS_MAX && ONE_LINE.test(name) ? name : undefined;
}

/** Cuts the text to NAME_CHARS_MAX, and replaces what ONE_LINE forbids (the same character class). */
function oneLine(text: string): string {
  return text.slice(0, NAME_CHARS_MAX).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '?');
}

function isMap(value: unknown): value is Claims {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
