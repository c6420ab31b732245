/**
 * What differs between two settings, by path and never by value, for some are secrets. Pure; supervisor process.
 *
 * Models and plans are told by their ids: `models.gpt-4o-mini.price`, `models.gpt-4o-mini (added)`, `plans.free (removed)`.
 * Of a model's upstreams, which have no names, the place is told: `models.gpt-4o-mini.upstreams[0].key`.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Declaration } from './annotations.js';
import { formatPath, type SettingPath } from './config-error.js';
import { isLive } from './live-settings.js';
import type { Settings } from './schema.js';
import { settingsInForce } from './settings-in-force.js';

export interface SettingsDifference {
  /** Paths that can take effect now. */
  readonly applied: readonly string[];
  /** Paths that differ from what runs and stay as they are until a restart. */
  readonly restartNeeded: readonly string[];
}

/** Maps whose values belong together and are told as one. */
const WHOLE_MAPS: ReadonlySet<string> = new Set(['price', 'headers', 'tls', 'cors']);

interface Change {
  readonly path: SettingPath;
  readonly text: string;
}

/** `isApplied` tells what can take effect. */
export function differenceOf(
  current: Settings,
  next: Settings,
  isApplied: (path: SettingPath) => boolean = isLive,
): SettingsDifference {
  const changes = compare([], current, next);
  const textsOf = (applied: boolean): string[] =>
    changes.filter(({ path }) => isApplied(path) === applied).map(({ text }) => text);
  return { applied: textsOf(true), restartNeeded: textsOf(false) };
}

function compare(path: SettingPath, current: unknown, next: unknown): Change[] {
  if (isDeepStrictEqual(current, next)) return [];
  if (isMapList(current) && isMapList(next)) {
    if (hasIds(current) && hasIds(next)) return compareById(path, current, next);
    if (current.length === next.length)
      return current.flatMap((entry, index) => compare([...path, index], entry, next[index]));
  }
  if (isMap(current) && isMap(next) && !WHOLE_MAPS.has(String(path.at(-1)))) {
    const names = new Set([...Object.keys(current), ...Object.keys(next)]);
    return [...names].flatMap((name) => compare([...path, name], current[name], next[name]));
  }
  return [change(path)];
}

function compareById(path: SettingPath, current: readonly Entry[], next: readonly Entry[]): Change[] {
  const before = new Map(current.map((entry) => [entry.id, entry]));
  const after = new Map(next.map((entry) => [entry.id, entry]));
  return [...new Set([...before.keys(), ...after.keys()])].flatMap((id) => {
    const place = [...path, id];
    if (!before.has(id)) return [change(place, ' (added)')];
    if (!after.has(id)) return [change(place, ' (removed)')];
    return compare(place, before.get(id), after.get(id));
  });
}

function change(path: SettingPath, what = ''): Change {
  return { path, text: formatPath(path) + what };
}

interface Entry {
  readonly id: string;
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isMapList(value: unknown): value is readonly object[] {
  return Array.isArray(value) && value.every(isMap);
}

function hasIds(list: readonly object[]): list is readonly Entry[] {
  return list.every((entry) => 'id' in entry && typeof entry.id === 'string');
}

/*
 * The values before and after a change of the settings, as text, for an operator who looks at it first. Secrets are not in
 * it. Pure; supervisor process.
 */

export interface SettingChange {
  /** As the difference names it: `models.gpt-4o-mini.price`, `plans.free (removed)`. */
  readonly setting: string;
  /** Null where there was none, and of a whole entry that is added or removed. */
  readonly before: string | null;
  /** The same of what will be; it says `(changed)` where the texts do not show what differs: a secret, or what a file holds. */
  readonly after: string | null;
}

/** Of maps and lists, which are told as one; a longer text is looked up in the file. */
const TEXT_CHARS_MAX = 300;

/** One for each of the paths that `differenceOf` gives, in their order. */
export function changesOf(
  declaration: Declaration,
  current: unknown,
  next: unknown,
  paths: readonly string[],
): SettingChange[] {
  const before = textsOf(declaration, current);
  const after = textsOf(declaration, next);
  return paths.map((setting) => {
    const [was, will] = [textAt(before, setting), textAt(after, setting)];
    return { setting, before: was, after: was !== null && was === will ? `${will} (changed)` : will };
  });
}

type Texts = ReadonlyMap<string, string>;

function textsOf(declaration: Declaration, settings: unknown): Texts {
  const entries = settingsInForce(declaration, settings, () => '');
  return new Map(entries.map(({ setting, value }) => [setting, value]));
}

/** Of one value, or of all that are below the path: `input: 0.15, output: 0.60`. */
function textAt(texts: Texts, path: string): string | null {
  const own = texts.get(path);
  if (own !== undefined) return own;
  const below = [...texts].flatMap(([name, value]) =>
    name.startsWith(`${path}.`) || name.startsWith(`${path}[`)
      ? [`${name.slice(path.length).replace(/^\./, '')}: ${value}`]
      : [],
  );
  if (below.length === 0) return null;
  const text = below.join(', ');
  return text.length <= TEXT_CHARS_MAX ? text : `${text.slice(0, TEXT_CHARS_MAX)}…`;
}
