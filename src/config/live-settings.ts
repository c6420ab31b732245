/**
 * Which settings take effect while the gateway runs, and which when its processes are replaced; the others need a restart. Pure; supervisor process.
 */
import type { SettingPath } from './config-error.js';
import type { Settings } from './schema.js';

const LIVE_SETTINGS = [
  'models',
  'plans',
  'low_balance',
  'durability',
  'on_store_error',
  'flush_interval_ms',
  'drain_timeout_ms',
  'log',
  'access_log',
  'watch',
] as const satisfies readonly (keyof Settings)[];

/** The others are sizes of shared tables, which are made once. */
const LIVE_LIMITS = [
  'body_bytes',
  'bodies_in_work_bytes',
  'parse_inline_bytes',
  'parse_wait_ms',
  'calls_in_flight_per_account',
  'client_idle_timeout_ms',
] as const satisfies readonly (keyof Settings['limits'])[];

/** Undefined where left out: then no name of the settings. */
const LIVE_LISTEN = ['tls', 'cors'] as const satisfies readonly (keyof Settings['listen'])[];

/** Where the socket is and how many threads accept. */
const FIXED_LISTEN = ['host', 'port', 'listeners'] as const satisfies readonly (keyof Settings['listen'])[];

/** The path of each, as `limits.body_bytes`. */
export const LIVE_PATHS: readonly string[] = [
  ...LIVE_SETTINGS,
  ...LIVE_LISTEN.map((name) => `listen.${name}`),
  ...LIVE_LIMITS.map((name) => `limits.${name}`),
];

export function isLive([section, name]: SettingPath): boolean {
  return LIVE_PATHS.includes(String(section)) || LIVE_PATHS.includes(`${section}.${name}`);
}

/** `current` with all of `next` that can take effect now. */
export function adoptLive(current: Settings, next: Settings): Settings {
  const limits = { ...current.limits, ...pick(next.limits, LIVE_LIMITS) };
  return {
    ...current,
    ...pick(next, LIVE_SETTINGS),
    limits,
    listen: {
      ...pick(current.listen, FIXED_LISTEN),
      ...pick(
        next.listen,
        LIVE_LISTEN.filter((name) => next.listen[name] !== undefined),
      ),
    },
  };
}

/** What the gateways of a group have in common, or cannot have each its own of: it stays for the life of the supervisor. */
const COMMON_SETTINGS = [
  'admin',
  'processes',
  'data',
  'sharing',
] as const satisfies readonly (keyof Settings)[];
const COMMON_LISTEN = ['host', 'port'] as const satisfies readonly (keyof Settings['listen'])[];

/** Whether a gateway that takes the place of another has it as it is then. */
export function isReplaceable([section, name]: SettingPath): boolean {
  return ![...COMMON_SETTINGS, ...COMMON_LISTEN.map((common) => `listen.${common}`)].some(
    (common) => common === section || common === `${section}.${name}`,
  );
}

/** `next` for gateways that take the place of those that have `current`. */
export function adoptReplaced(current: Settings, next: Settings): Settings {
  return {
    ...next,
    ...pick(current, COMMON_SETTINGS),
    listen: { ...next.listen, ...pick(current.listen, COMMON_LISTEN) },
  };
}

function pick<T extends object, Name extends keyof T>(from: T, names: readonly Name[]): Pick<T, Name> {
  return Object.fromEntries(names.map((name) => [name, from[name]])) as Pick<T, Name>;
}
