/**
 * Reads a raw configuration along its declaration: replaces variables, applies overrides, fills in defaults,
 * and reports each value that does not fit. The reader goes on after an error, so that one run reports all.
 * load.ts makes one reader for each load, in the supervisor and in commands, and calls `read` once.
 *
 * A value comes from the first of these sources that has it, and is converted as the table says:
 *
 *     an option (--port)           a number or a text, as the command has parsed it
 *     a variable (TOLLGATE_PORT)   digits become a number if the setting is an integer; for a list the text
 *                                  is split at commas; otherwise it stays text
 *     the file                     as YAML has it; a text in which `${NAME}` was replaced stays text, so
 *                                  `${NAME}` cannot stand for a number, a switch or a list
 *     the declaration's default    as declared
 *
 * Must hold:
 * - All errors are reported, each with its path and what is wanted, and no error has the value of a secret
 *   (test/unit/config/settings-reader.errors.test.ts).
 * - Options go before variables, and variables before the file (test/unit/config/load.test.ts).
 */
import { isRecord } from '../core/json.js';
import { editDistance, wantedBy, nearestName, synonymOf } from '../core/wrong-input.js';
import type { Declaration } from './annotations.js';
import {
  COMMA_IN_NUMBER,
  describe,
  formatPath,
  isNumberName,
  type SettingPath,
  unsetVariableText,
} from './config-error.js';

/** `${NAME}` stands for a variable, `$${` for a plain `${`. The groups: the second dollar, and the name. */
const REFERENCE = /\$(\$?)\{([^}]*)\}/g;
/** A name that a shell accepts for a variable. */
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;

export type Environment = Readonly<Record<string, string | undefined>>;

interface Interpolation {
  /** Unset and malformed references are left in the text as they are. */
  readonly text: string;
  /** How many references the raw text has. */
  readonly references: number;
  /** Names of variables that are not set. */
  readonly unset: readonly string[];
  /** Contents of `${…}` that cannot be a variable's name. */
  readonly malformed: readonly string[];
}

/** Replaces each `${NAME}` in one pass: values are not searched for variables. Exported for tests. */
export function interpolate(raw: string, environment: Environment): Interpolation {
  const unset: string[] = [];
  const malformed: string[] = [];
  let references = 0;
  const text = raw.replace(REFERENCE, (reference: string, secondDollar: string, name: string) => {
    if (secondDollar !== '') return reference.slice(1);
    if (!VARIABLE.test(name)) {
      malformed.push(name);
      return reference;
    }
    references++;
    // `process.env` also inherits names from Object, such as `constructor`.
    const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
    if (value === undefined) unset.push(name);
    return value ?? reference;
  });
  return { text, references, unset, malformed };
}

/** A value that goes before the file, and its origin: `--port` or `TOLLGATE_PORT`. */
export interface Override {
  readonly origin: string;
  readonly value: string | number;
}

interface ReaderOptions {
  readonly environment: Environment;
  /** Options of the command line, by the setting's path. */
  readonly optionOverrides: ReadonlyMap<string, Override>;
  /**
   * False for commands that need no secrets of providers. Then the variable of a secret may be unset: the
   * secret is left out of the settings, without an error.
   */
  readonly secrets: boolean;
  /** Called with each error. `origin`: the option or variable that gave the value; undefined for the file. */
  readonly report: (path: SettingPath, text: string, origin?: string) => void;
}

export class SettingsReader {
  readonly #options: ReaderOptions;
  readonly #root: Declaration;
  /** Where settings are, such as `models[].price`, by their names: to suggest one for an unknown name. */
  readonly #pathsByName = new Map<string, string[]>();
  /** Which option or variable gave a setting its value, by the setting's path. `read` fills it. */
  readonly #overridden = new Map<string, string>();

  constructor(root: Declaration, options: ReaderOptions) {
    this.#root = root;
    this.#options = options;
    this.#collectNames(root, '');
  }

  /** Returns the settings; a value with an error is undefined. Does not change `raw`. */
  read(raw: unknown): unknown {
    return this.#read(this.#root, raw, []);
  }

  /** The option or variable that gave the setting its value, if one did. Call it after `read`. */
  overrideAt(path: SettingPath): string | undefined {
    return this.#overridden.get(formatPath(path));
  }

  /** The option, or else the variable, that sets this very setting. An empty variable counts as unset. */
  #overrideOf(declaration: Declaration, path: SettingPath): Override | undefined {
    const option = this.#options.optionOverrides.get(formatPath(path));
    if (option !== undefined) return option;
    const origin = declaration['x-environment'];
    const value = origin === undefined ? undefined : this.#options.environment[origin];
    if (origin === undefined || value === undefined || value === '') return undefined;
    // More than 15 digits stay text, so that the error shows them as they were written.
    const isNumber = declaration.type === 'integer' && /^\d{1,15}$/.test(value);
    return { origin, value: isNumber ? Number(value) : value };
  }

  #read(declaration: Declaration, raw: unknown, path: SettingPath): unknown {
    const override = this.#overrideOf(declaration, path);
    if (override !== undefined) {
      this.#overridden.set(formatPath(path), override.origin);
      if (declaration.type === 'array') return this.#readCommaList(declaration, override, path);
      return this.#readLeaf(declaration, override.value, path, override.origin);
    }
    if (raw === undefined) {
      if (declaration.default !== undefined) return this.#read(declaration, declaration.default, path);
      this.#options.report(path, `missing, want ${wantOf(declaration)}`);
      return undefined;
    }
    if (declaration.type === 'array') return this.#readList(declaration, raw, path);
    if (declaration.patternProperties !== undefined) return this.#readNamedValues(declaration, raw, path);
    if (declaration.type === 'object') return this.#readMap(declaration, raw, path);
    if (typeof raw !== 'string') return this.#readLeaf(declaration, raw, path);
    return this.#readText(declaration, raw, path, declaration['x-secret'] === true);
  }

  #readMap(declaration: Declaration, raw: unknown, path: SettingPath): unknown {
    if (!isRecord(raw)) return this.#reject(declaration, raw, path);
    const properties = declaration.properties ?? {};
    for (const name of Object.keys(raw)) {
      if (!Object.hasOwn(properties, name)) {
        const text = isNumberName(name)
          ? COMMA_IN_NUMBER
          : `unknown setting, the nearest known ${this.#nearestTo(name, properties, path)}`;
        this.#options.report([...path, name], text);
      }
    }
    const result: Record<string, unknown> = {};
    for (const [name, property] of Object.entries(properties)) {
      const rawValue = Object.hasOwn(raw, name) ? raw[name] : undefined;
      // If the file lacks a map, but an option or a variable sets something in it, the map is read as empty.
      const isOverridden = rawValue === undefined && this.#isOverridden(property, [...path, name]);
      if (rawValue === undefined && !isOverridden && declaration.required?.includes(name) !== true) continue;
      const isMissingMap = isOverridden && property.type === 'object' && property.default === undefined;
      const value = this.#read(property, isMissingMap ? {} : rawValue, [...path, name]);
      if (value !== undefined) result[name] = value;
    }
    return result;
  }

  /** Whether the command line or the environment sets the setting at `path`, or one below it. */
  #isOverridden(declaration: Declaration, path: SettingPath): boolean {
    return (
      this.#overrideOf(declaration, path) !== undefined ||
      Object.entries(declaration.properties ?? {}).some(([name, inner]) =>
        this.#isOverridden(inner, [...path, name]),
      )
    );
  }

  #readList(declaration: Declaration, raw: unknown, path: SettingPath): unknown {
    if (!Array.isArray(raw)) return this.#reject(declaration, raw, path);
    if (!this.#hasLength(declaration, raw, path)) return undefined;
    const items = declaration.items ?? {};
    // An empty item is null here, because undefined means that a setting was left out.
    return raw.map((item: unknown, index) => this.#read(items, item ?? null, [...path, index]));
  }

  /** Whether a list or map has neither too few nor too many entries. Reports it if it has. */
  #hasLength(
    declaration: Declaration,
    entries: readonly unknown[],
    path: SettingPath,
    origin?: string,
  ): boolean {
    const { minItems = 0, maxItems, maxProperties } = declaration;
    const entriesMax = maxItems ?? maxProperties ?? Infinity;
    if (entries.length >= minItems && entries.length <= entriesMax) return true;
    if (entries.length < minItems) this.#reject(declaration, entries, path, origin);
    else this.#options.report(path, `got ${entries.length} entries, want at most ${entriesMax}`, origin);
    return false;
  }

  /** Reads a list from a variable: texts between commas. */
  #readCommaList(declaration: Declaration, { value, origin }: Override, path: SettingPath): unknown {
    const { items = {} } = declaration;
    const texts = String(value)
      .split(',')
      .map((text) => text.trim())
      .filter((text) => text !== '');
    if (!this.#hasLength(declaration, texts, path, origin)) return undefined;
    return texts.map((text, index) => this.#readLeaf(items, text, [...path, index], origin));
  }

  /** Reads a map whose names the operator chooses, such as headers, by its `x-names…` (annotations.ts). */
  #readNamedValues(declaration: Declaration, raw: unknown, path: SettingPath): unknown {
    if (!isRecord(raw)) return this.#reject(declaration, raw, path);
    // The only entry declares the values. Its pattern is for tools of JSON Schema: `x-names` is checked here.
    const [valueDeclaration = {}] = Object.values(declaration.patternProperties ?? {});
    const names = Object.keys(raw);
    if (!this.#hasLength(declaration, names, path)) return undefined;
    const matches = (pattern: string | undefined, name: string): boolean =>
      pattern !== undefined && new RegExp(pattern, 'i').test(name);
    const entries: [string, unknown][] = [];
    for (const name of names) {
      const entryPath = [...path, name];
      const rawValue = raw[name] ?? null;
      if (!matches(declaration['x-names'], name) || matches(declaration['x-names-refused'], name)) {
        this.#options.report(entryPath, 'a name that cannot be set here');
        continue;
      }
      const isSecret = matches(declaration['x-names-secret'], name);
      const value =
        typeof rawValue === 'string'
          ? this.#readText(valueDeclaration, rawValue, entryPath, isSecret)
          : this.#readLeaf({ ...valueDeclaration, 'x-secret': isSecret }, rawValue, entryPath);
      if (value !== undefined) entries.push([name, value]);
    }
    return Object.fromEntries(entries);
  }

  /**
   * Reads a text of the file: replaces its variables, and rejects a secret without a variable. No error shows
   * a text in which a variable was replaced, because the variable may be a secret.
   */
  #readText(declaration: Declaration, raw: string, path: SettingPath, isSecret: boolean): unknown {
    const interpolated = interpolate(raw, this.#options.environment);
    if (isSecret && interpolated.references === 0) {
      const want = declaration['x-secret'] === true ? wantOf(declaration) : 'a reference such as "${NAME}"';
      this.#options.report(path, `got a secret written inline, want ${want}`);
      return undefined;
    }
    // The command needs no secrets, and a secret without its variable has no value that could be checked.
    if (isSecret && interpolated.unset.length > 0 && !this.#options.secrets) return undefined;
    if (!this.#reportVariables(interpolated, path)) return undefined;
    if (interpolated.references === 0) return this.#readLeaf(declaration, interpolated.text, path);
    if (fits(declaration, interpolated.text)) return interpolated.text;
    this.#options.report(path, `got a value from the environment (not shown), want ${wantOf(declaration)}`);
    return undefined;
  }

  /** Reports variables that are unset, and malformed names. Returns whether there are neither. */
  #reportVariables(interpolated: Interpolation, path: SettingPath): boolean {
    for (const name of interpolated.unset) this.#options.report(path, unsetVariableText(name));
    for (const name of interpolated.malformed) {
      const got = describe(`\${${name}}`);
      this.#options.report(path, `got ${got}, want the name of a variable in it, or $\${ for a plain \${`);
    }
    return interpolated.unset.length === 0 && interpolated.malformed.length === 0;
  }

  /** Checks a leaf, which is a value other than a map or a list; rejects it if it does not fit. */
  #readLeaf(declaration: Declaration, value: unknown, path: SettingPath, origin?: string): unknown {
    return fits(declaration, value) ? value : this.#reject(declaration, value, path, origin);
  }

  /** Reports the value, and its type if that is wrong. Returns undefined. */
  #reject(declaration: Declaration, value: unknown, path: SettingPath, origin?: string): unknown {
    const { type = 'string' } = declaration;
    const isTypeRight = typeof value === (type === 'integer' ? 'number' : type);
    const isSecret = declaration['x-secret'] === true || declaration['x-secret-path'] === true;
    const shown = isSecret ? 'a value that is not shown' : describe(value, { withType: !isTypeRight });
    this.#options.report(path, `got ${shown}, want ${wantOf(declaration)}`, origin);
    return undefined;
  }

  /** Returns the end of "the nearest known …": each place of the setting that was probably meant. */
  #nearestTo(name: string, properties: Readonly<Record<string, Declaration>>, path: SettingPath): string {
    const siblings = Object.keys(properties);
    const synonym = synonymOf(name);
    // A synonym of no sibling may be the name of a setting that only stands in a wrong place.
    const isSynonym = synonym !== undefined && (siblings.includes(synonym) || !this.#pathsByName.has(name));
    const meant = isSynonym ? synonym : name;
    const nearestOf = (names: readonly string[]): string | undefined =>
      nearestName(meant, names, (candidate) => candidate);
    // Siblings come first, so that of two equally near names the sibling is named.
    const nearest = nearestOf([...siblings, ...this.#pathsByName.keys()]);
    // A name elsewhere is suggested only if most of its letters agree: then the indentation may be wrong.
    const isNear = nearest !== undefined && editDistance(meant, nearest) <= meant.length / 3;
    const found = isNear ? nearest : nearestOf(siblings);
    if (found === undefined) return 'one is none';
    if (siblings.includes(found)) return `one is ${formatPath([...path, found])}`;
    const paths = this.#pathsByName
      .get(found)!
      .map((known) => (known === found ? `${known} at the top level` : known));
    return paths.length === 1 ? `one is ${paths[0]}` : `ones are ${paths.join(', ')}`;
  }

  /** Adds all settings below the declaration to `#pathsByName`. `prefix`: the path of the declaration. */
  #collectNames(declaration: Declaration, prefix: string): void {
    for (const [name, property] of Object.entries(declaration.properties ?? {})) {
      const path = prefix === '' ? name : `${prefix}.${name}`;
      this.#pathsByName.set(name, [...(this.#pathsByName.get(name) ?? []), path]);
      this.#collectNames(property, path);
      if (property.items !== undefined) this.#collectNames(property.items, `${path}[]`);
    }
  }
}

/** Whether a leaf fits its declaration. */
function fits(declaration: Declaration, value: unknown): boolean {
  if (declaration.enum !== undefined) return typeof value === 'string' && declaration.enum.includes(value);
  if (declaration.type === 'integer') {
    if (!Number.isSafeInteger(value)) return false;
    const { minimum = -Infinity, maximum = Infinity } = declaration;
    return (value as number) >= minimum && (value as number) <= maximum;
  }
  if (declaration.type === 'boolean') return typeof value === 'boolean';
  if (typeof value !== 'string') return false;
  if (declaration.pattern !== undefined && !new RegExp(declaration.pattern).test(value)) return false;
  const { minLength = 0, maxLength = Infinity } = declaration;
  if (value.length < minLength || value.length > maxLength) return false;
  return (declaration['~refine'] ?? []).every((refinement) => refinement.check(value));
}

/** Returns the end of the sentence "want …": by type and bounds, or else by the annotations. */
function wantOf(declaration: Declaration): string {
  const hint = declaration['x-hint'] === undefined ? '' : ` (${declaration['x-hint']})`;
  return wantedBy(declaration) ?? `${declaration['x-want'] ?? 'a text'}${hint}`;
}
