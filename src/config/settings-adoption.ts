/**
 * When a changed setting takes effect, and which settings a reload or a replacement of gateways adopts: to
 * _adopt_ a setting is to take its value from the next settings. A setting is _live_ if a reload can change
 * it in a running gateway. The supervisor (reloads.ts, process-group.ts) and settings-in-force.ts call it;
 * gateway/main.ts calls `withDefaults`.
 *
 * Must hold (test/unit/config/settings-adoption.test.ts):
 * - On the way from the root to each setting exactly one declaration says when the setting applies.
 * - A setting that only another version knows is neither lost nor an error, because the supervisor keeps
 *   running while another version is installed.
 */
import { readFileSync } from 'node:fs';
import { isRecord, membersOf } from '../core/json.js';
import type { Applies, Declaration } from './annotations.js';
import type { SettingPath } from './config-error.js';
import type { Settings } from './schema.js';

/** What `declarationOnDisk` has read; undefined before its first call. */
let cachedDeclaration: Declaration | undefined;

/** The declarations of all settings, from the file of the build: so the supervisor loads no TypeBox. */
export function declarationOnDisk(): Declaration {
  const file = new URL('../tollgate.schema.json', import.meta.url);
  return (cachedDeclaration ??= JSON.parse(readFileSync(file, 'utf8')) as Declaration);
}

/**
 * When a setting takes effect that only a newer version knows. That version was installed while this
 * supervisor runs, and all processes that start from then on are of that version.
 */
const UNKNOWN_APPLIES: Applies = 'replacement';

/**
 * Returns when a change at this path takes effect. `path` may name models and plans by position or by id,
 * because no declaration below a list says when it applies. scripts/write-docs.mjs calls it too.
 */
export function appliesAt(path: SettingPath): Applies {
  let declaration = declarationOnDisk();
  for (const name of path) {
    const property: Declaration | undefined = declaration.properties?.[name];
    if (property === undefined) return UNKNOWN_APPLIES;
    if (property['x-applies'] !== undefined) return property['x-applies'];
    declaration = property;
  }
  // A map whose settings apply at different times. `differenceOf` gives no such path.
  return 'restart';
}

/** Whether a reload can change the setting in a running gateway. */
export const isLive = (path: SettingPath): boolean => appliesAt(path) === 'reload';

/** Whether a gateway process that replaces another starts with the new value. */
export const isReplaceable = (path: SettingPath): boolean => appliesAt(path) !== 'restart';

/** Returns `current` with all of `next` that a running gateway can take over. */
export function adoptLive(current: Settings, next: Settings): Settings {
  return adopt(declarationOnDisk(), current, next, (applies) => applies === 'reload') as Settings;
}

/** Returns the settings of a gateway process that replaces one which has `current`. */
export function adoptReplaced(current: Settings, next: Settings): Settings {
  return adopt(declarationOnDisk(), current, next, (applies) => applies !== 'restart') as Settings;
}

/**
 * Returns `current` with the settings of `next` whose `x-applies` passes `isAdopted`. The declaration may be
 * older or newer than both, because another version may have read the file.
 */
function adopt(
  declaration: Declaration,
  current: unknown,
  next: unknown,
  isAdopted: (applies: Applies) => boolean,
): unknown {
  const applies = declaration['x-applies'];
  if (applies !== undefined) return isAdopted(applies) ? next : current;
  if (current === undefined && next === undefined) return undefined;
  const currentMap = membersOf(current);
  const nextMap = membersOf(next);
  const { properties = {} } = declaration;
  const undeclared = Object.entries(isAdopted(UNKNOWN_APPLIES) ? nextMap : currentMap).filter(
    ([name]) => !Object.hasOwn(properties, name),
  );
  const declared = Object.entries(properties).flatMap(([name, property]) => {
    const value = adopt(property, currentMap[name], nextMap[name], isAdopted);
    return value === undefined ? [] : [[name, value] as const];
  });
  return Object.fromEntries([...undeclared, ...declared]);
}

/**
 * Fills in the defaults of settings that are absent, as SettingsReader does. gateway/main.ts calls it with
 * the settings that the supervisor sends, which may come from an older or a newer version (see `adopt`).
 * `declaration` must come from schema.ts: the file on disk requires no setting with a default.
 */
export function withDefaults(declaration: Declaration, settings: unknown): unknown {
  const value = settings ?? declaration.default;
  const { items, properties, required = [] } = declaration;
  if (Array.isArray(value) && items !== undefined) return value.map((entry) => withDefaults(items, entry));
  if (!isRecord(value) || properties === undefined) return value;
  const declared = Object.entries(properties).flatMap(([name, property]) => {
    if (value[name] === undefined && !required.includes(name)) return [];
    const filledIn = withDefaults(property, value[name]);
    return filledIn === undefined ? [] : [[name, filledIn] as const];
  });
  return { ...value, ...Object.fromEntries(declared) };
}
