/**
 * Every setting as text, with where its value came from, for an operator who asks what runs. Secrets are not in it. Supervisor
 * process, which hands it to the gateways.
 */
import type { Declaration } from './annotations.js';
import { isLive } from './live-settings.js';
import { formatPath, type SettingPath } from './config-error.js';

export interface SettingInForce {
  /** `models.gpt-4o-mini.price.input`. */
  readonly setting: string;
  /** As text; of a secret `(secret)`. */
  readonly value: string;
  /** `tollgate.yaml:12`, `TOLLGATE_PORT`, `--port` or `default`. */
  readonly origin: string;
  /** Whether a reload can change it. */
  readonly live: boolean;
}

const SECRET = '(secret)';
/** A list of model patterns, or an address, is shorter; a longer value is looked up in the file. */
const VALUE_CHARS_MAX = 300;

/** One entry a leaf, in the order of the declarations. `originOf` is asked with the path by places: `['models', 0, 'id']`. */
export function settingsInForce(
  declaration: Declaration,
  settings: unknown,
  originOf: (path: SettingPath) => string,
): SettingInForce[] {
  const entries: SettingInForce[] = [];
  const add = (place: SettingPath, name: SettingPath, value: string): void => {
    entries.push({ setting: formatPath(name), value, origin: originOf(place), live: isLive(name) });
  };
  const walk = (declared: Declaration, value: unknown, place: SettingPath, name: SettingPath): void => {
    if (value === undefined) return;
    if (declared['x-secret'] === true) {
      add(place, name, SECRET);
    } else if (declared.patternProperties !== undefined) {
      // Headers. Their names do not tell which are secret: any may have a variable from the environment in it.
      for (const header of Object.keys(value as object)) {
        add([...place, header], [...name, header], SECRET);
      }
    } else if (declared.type === 'object') {
      // What is not declared was derived from files: contents and digests.
      for (const [member, inner] of Object.entries(declared.properties ?? {})) {
        walk(
          inner,
          (value as Readonly<Record<string, unknown>>)[member],
          [...place, member],
          [...name, member],
        );
      }
    } else if (declared.type === 'array' && declared.items?.type === 'object') {
      (value as readonly unknown[]).forEach((entry, index) =>
        walk(declared.items!, entry, [...place, index], [...name, idOf(entry) ?? index]),
      );
    } else {
      add(place, name, textOf(value));
    }
  };
  walk(declaration, settings, [], []);
  return entries;
}

/** What is in force after a change: of `next` what took effect, after a reload what can while serving; of `current` the rest. */
export function adoptInForce(
  current: readonly SettingInForce[],
  next: readonly SettingInForce[],
  isAdopted: (entry: SettingInForce) => boolean = ({ live }) => live,
): SettingInForce[] {
  return [...current.filter((entry) => !isAdopted(entry)), ...next.filter(isAdopted)];
}

/** Whether a plain value is written at this place of the file. */
export function isWritten(raw: unknown, path: SettingPath): boolean {
  let found = raw;
  for (const part of path)
    found = (found as Readonly<Record<string | number, unknown>> | undefined | null)?.[part];
  return found !== undefined;
}

function idOf(entry: unknown): string | undefined {
  const { id } = entry as { readonly id?: unknown };
  return typeof id === 'string' ? id : undefined;
}

function textOf(value: unknown): string {
  const text = Array.isArray(value) ? value.join(', ') : String(value);
  return text.length <= VALUE_CHARS_MAX ? text : `${text.slice(0, VALUE_CHARS_MAX)}…`;
}
