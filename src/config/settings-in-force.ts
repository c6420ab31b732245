/**
 * The settings in force, and what a reload would change, as operators see it: every setting as text, the
 * paths that differ between two files, and their values before and after. load.ts and the supervisor
 * (supervisor.ts, reloads.ts) call it. The supervisor sends the texts to the gateway processes.
 *
 * Must hold:
 * - No text contains a secret (test/unit/config/settings-in-force.changes.test.ts).
 * - Members of exported types keep their names, because the processes that exchange them may be of different
 *   versions (gateway/messages.ts), and the admin interface shows them.
 */
import { isDeepStrictEqual } from 'node:util';
import { isRecord, type Members } from '../core/json.js';
import { SECRET, withoutUrlPath, withoutUrlSecrets } from '../core/secret-url.js';
import { clipped } from '../core/wrong-input.js';
import type { Applies, Declaration } from './annotations.js';
import { formatPath, type SettingPath } from './config-error.js';
import type { Settings } from './schema.js';
import { appliesAt, isLive } from './settings-adoption.js';

export interface SettingInForce {
  /** The path as text, such as `models.gpt-4o-mini.price.input`. */
  readonly setting: string;
  /** As text. A secret is `(secret)`, and so are user, password, query and keys in the path of an address. */
  readonly value: string;
  /** `tollgate.yaml:12`, `TOLLGATE_PORT`, `--port` or `default`. */
  readonly origin: string;
  /** Whether a reload can change it. */
  readonly live: boolean;
}

/** The longest text of a value. Lists of model patterns and addresses are shorter; others are clipped. */
const VALUE_CHARS_MAX = 300;

/**
 * Returns one entry for each setting that is not a map, in the order of the declarations. `originOf` gets the
 * path with positions in lists, such as `['models', 0, 'id']`; the entries have ids of models and plans.
 */
export function settingsInForce(
  declaration: Declaration,
  settings: unknown,
  originOf: (path: SettingPath) => string,
): SettingInForce[] {
  const entries: SettingInForce[] = [];
  const add = (path: SettingPath, shownPath: SettingPath, value: string): void => {
    entries.push({ setting: formatPath(shownPath), value, origin: originOf(path), live: isLive(shownPath) });
  };
  // `path` has positions in lists, `shownPath` the ids of models and plans.
  const walk = (property: Declaration, value: unknown, path: SettingPath, shownPath: SettingPath): void => {
    if (value === undefined) return;
    if (property['x-secret'] === true) {
      add(path, shownPath, SECRET);
    } else if (property.patternProperties !== undefined) {
      for (const [name, inner] of Object.entries(value as Members)) {
        // A header of any name may contain a variable of the environment, and so a secret.
        const text = property['x-names-secret'] === undefined ? textOf(inner) : SECRET;
        add([...path, name], [...shownPath, name], text);
      }
    } else if (property.type === 'object') {
      // Settings that are not declared are not shown: contents and digests of files.
      for (const [name, inner] of Object.entries(property.properties ?? {})) {
        walk(inner, (value as Members)[name], [...path, name], [...shownPath, name]);
      }
    } else if (property.type === 'array' && property.items?.type === 'object') {
      (value as readonly unknown[]).forEach((entry, index) =>
        walk(property.items!, entry, [...path, index], [...shownPath, idOf(entry) ?? index]),
      );
    } else {
      const isSecretPath = property['x-secret-path'] === true;
      add(path, shownPath, isSecretPath ? withoutUrlPath(value as string) : textOf(value));
    }
  };
  walk(declaration, settings, [], []);
  return entries;
}

/**
 * Returns the values that are declared as secrets. gateway/gateway-start.ts masks them in stored contents of
 * calls. Headers are not among them.
 */
export function secretsIn(declaration: Declaration, value: unknown): string[] {
  if (value === undefined) return [];
  if (declaration['x-secret'] === true) return [value as string];
  if (declaration.type === 'array' && declaration.items !== undefined)
    return (value as readonly unknown[]).flatMap((entry) => secretsIn(declaration.items!, entry));
  return Object.entries(declaration.properties ?? {}).flatMap(([name, inner]) =>
    secretsIn(inner, (value as Members)[name]),
  );
}

/** Returns `next` for the settings that take effect at `applied`, and `current` for all others. */
export function adoptInForce(
  current: readonly SettingInForce[],
  next: readonly SettingInForce[],
  applied: Applies,
): SettingInForce[] {
  const isAdopted = ({ setting }: SettingInForce): boolean => appliesAt(setting.split('.')) === applied;
  return [...current.filter((entry) => !isAdopted(entry)), ...next.filter(isAdopted)];
}

/** Whether the raw content of a file has a value at this path. An empty value (null) counts. */
export function isWritten(raw: unknown, path: SettingPath): boolean {
  let value = raw;
  for (const name of path) value = (value as Members | undefined | null)?.[name];
  return value !== undefined;
}

/** Returns the id of a list's entry; undefined if it has none, as an upstream. */
function idOf(entry: unknown): string | undefined {
  const { id } = entry as Members;
  return typeof id === 'string' ? id : undefined;
}

function textOf(value: unknown): string {
  const texts = (Array.isArray(value) ? value : [value]).map((entry) => withoutUrlSecrets(String(entry)));
  return clipped(texts.join(', '), VALUE_CHARS_MAX);
}

export interface SettingsDifference {
  /** Paths that can take effect now. */
  readonly applied: readonly string[];
  /** Paths that differ from what runs and stay as they are until a restart. */
  readonly restartNeeded: readonly string[];
}

/** Maps that are reported as one change, whichever of their settings differ. */
const WHOLE_MAPS: ReadonlySet<string> = new Set(['price', 'headers', 'tls', 'cors']);

interface PathChange {
  readonly path: SettingPath;
  readonly text: string;
}

/**
 * Returns the paths that differ. Models and plans are named by their ids: `models.gpt-4o-mini.price`,
 * `plans.free (removed)`. Upstreams are given by position: `models.gpt-4o-mini.upstreams[0].key`. `isApplied`
 * tells which paths can take effect now.
 */
export function differenceOf(
  current: Settings,
  next: Settings,
  isApplied: (path: SettingPath) => boolean = isLive,
): SettingsDifference {
  const changes = changesAt([], current, next);
  return {
    applied: changes.filter(({ path }) => isApplied(path)).map(({ text }) => text),
    restartNeeded: changes.filter(({ path }) => !isApplied(path)).map(({ text }) => text),
  };
}

/** One change for a list whose length differs. */
function changesAt(path: SettingPath, current: unknown, next: unknown): PathChange[] {
  if (isDeepStrictEqual(current, next)) return [];
  if (isMapList(current) && isMapList(next)) {
    if (hasIds(current) && hasIds(next)) return changesById(path, current, next);
    if (current.length === next.length)
      return current.flatMap((entry, index) => changesAt([...path, index], entry, next[index]));
  }
  if (isRecord(current) && isRecord(next) && !WHOLE_MAPS.has(String(path.at(-1)))) {
    const names = new Set([...Object.keys(current), ...Object.keys(next)]);
    return [...names].flatMap((name) => changesAt([...path, name], current[name], next[name]));
  }
  return [changeAt(path)];
}

/** An entry of a list that is named by its id: a model or a plan. */
interface NamedEntry {
  readonly id: string;
}

function changesById(
  path: SettingPath,
  current: readonly NamedEntry[],
  next: readonly NamedEntry[],
): PathChange[] {
  const currentById = new Map(current.map((entry) => [entry.id, entry]));
  const nextById = new Map(next.map((entry) => [entry.id, entry]));
  return [...new Set([...currentById.keys(), ...nextById.keys()])].flatMap((id) => {
    const entryPath = [...path, id];
    if (!currentById.has(id)) return [changeAt(entryPath, ' (added)')];
    if (!nextById.has(id)) return [changeAt(entryPath, ' (removed)')];
    return changesAt(entryPath, currentById.get(id), nextById.get(id));
  });
}

/** `suffix`: what follows the path in the text. */
function changeAt(path: SettingPath, suffix = ''): PathChange {
  return { path, text: formatPath(path) + suffix };
}

function isMapList(value: unknown): value is readonly object[] {
  return Array.isArray(value) && value.every(isRecord);
}

function hasIds(list: readonly object[]): list is readonly NamedEntry[] {
  return list.every((entry) => 'id' in entry && typeof entry.id === 'string');
}

export interface SettingChange {
  /** A path as `differenceOf` gives it: `models.gpt-4o-mini.price`, `plans.free (removed)`. */
  readonly setting: string;
  /** Null if the setting had no value, or if a whole entry is added or removed. */
  readonly before: string | null;
  /** The value after the change, with `(changed)` if both texts are equal, as the texts of a secret are. */
  readonly after: string | null;
}

/** Returns a change for each path of `differenceOf`, in their order. */
export function changesOf(
  declaration: Declaration,
  current: unknown,
  next: unknown,
  paths: readonly string[],
): SettingChange[] {
  const currentTexts = textsOf(declaration, current);
  const nextTexts = textsOf(declaration, next);
  return paths.map((setting) => {
    const [before, after] = [textAt(currentTexts, setting), textAt(nextTexts, setting)];
    const isSameText = before !== null && before === after;
    return { setting, before, after: isSameText ? `${after} (changed)` : after };
  });
}

/** Stands for a list without entries and for an empty text, so that a change does not end with an arrow. */
const EMPTY = '(empty)';

/** Returns the values of all settings as texts, by their paths. No text is empty. */
function textsOf(declaration: Declaration, settings: unknown): ReadonlyMap<string, string> {
  const entries = settingsInForce(declaration, settings, () => '');
  return new Map(entries.map(({ setting, value }) => [setting, value === '' ? EMPTY : value]));
}

/** The value at `path`, or all values below it in one text: `input: 0.15, output: 0.60`. Null if none. */
function textAt(texts: ReadonlyMap<string, string>, path: string): string | null {
  const text = texts.get(path);
  if (text !== undefined) return text;
  const below = [...texts].flatMap(([name, value]) =>
    name.startsWith(`${path}.`) || name.startsWith(`${path}[`)
      ? [`${name.slice(path.length).replace(/^\./, '')}: ${value}`]
      : [],
  );
  return below.length === 0 ? null : clipped(below.join(', '), VALUE_CHARS_MAX);
}
