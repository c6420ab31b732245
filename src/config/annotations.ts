/**
 * The annotations of settings, which are keywords besides JSON Schema's own, and helpers for the schema
 * files. settings-reader.ts reads the annotations, `tollgate config schema` prints them, and JSON Schema
 * tools ignore them. Main threads and commands.
 *
 * Must hold:
 * - A setting whose value is a secret has `x-secret`. Otherwise operators, logs and commands would show it
 *   (test/unit/config/settings-in-force.changes.test.ts, test/e2e/secrets.test.ts).
 * - settings-reader.ts checks every keyword of JSON Schema that a declaration has, or a wrong value gets
 *   through (test/unit/config/schema.test.ts lists the keywords).
 */
import type { TSchema } from 'typebox';
import * as Type from 'typebox';
import { QUOTA_FIELDS, QUOTA_LIMITS_MAX, type QuotaName } from '../core/quotas.js';

/** A body is in memory until it is checked, so a few callers can take a few times this much. */
export const BODY_BYTES_MAX = 256 * 1024 * 1024;
/** A smaller `body_bytes` would reject a prompt of a few sentences. */
export const BODY_BYTES_MIN = 1_024;

/**
 * When a changed setting takes effect: `reload` at the next reload, `replacement` if the gateway processes
 * are replaced (`reload --restart`), `restart` at the next start of the supervisor.
 */
export type Applies = 'reload' | 'replacement' | 'restart';

export interface Annotations {
  readonly [jsonSchemaWord: string]: unknown;
  readonly description: string;
  /** What the number counts, such as `milliseconds`. */
  readonly 'x-unit'?: string;
  /** The environment variable that overrides the file. */
  readonly 'x-environment'?: string;
  /** The end of the sentence "want …" in an error, if type and bounds do not describe the value. */
  readonly 'x-want'?: string;
  /** Follows the text of `x-want` in brackets: the reason, or a detail. */
  readonly 'x-hint'?: string;
  /** The value is never printed, and the file must refer to the environment for it. */
  readonly 'x-secret'?: boolean;
  /** The value is an address whose path is a secret: only its origin is shown. */
  readonly 'x-secret-path'?: boolean;
  /** For a map with free names: a pattern that each name must match, without regard to case. */
  readonly 'x-names'?: string;
  /** A pattern that no name may match. */
  readonly 'x-names-refused'?: string;
  /** A pattern of names whose values are secrets. */
  readonly 'x-names-secret'?: string;
  /**
   * When a change applies, for this setting and all below it. On the way from the root to a setting exactly
   * one declaration has `x-applies` (test/unit/config/settings-adoption.test.ts).
   */
  readonly 'x-applies'?: Applies;
}

/** A declaration as settings-reader.ts sees it: keywords of JSON Schema, and annotations. */
export interface Declaration extends Partial<Annotations> {
  readonly type?: 'object' | 'array' | 'string' | 'integer' | 'boolean';
  readonly enum?: readonly string[];
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Declaration>>;
  readonly required?: readonly string[];
  /** Only on maps with free names. Its one entry declares the values. */
  readonly patternProperties?: Readonly<Record<string, Declaration>>;
  readonly maxProperties?: number;
  readonly items?: Declaration;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  /** Added by `Type.Refine`. TypeBox keeps it out of the printed schema. */
  readonly '~refine'?: readonly { check(value: unknown): boolean }[];
}

/** All visible ASCII characters but `*`, which lies between the ranges `!-)` and `+-~`. */
export const IDENTIFIER_PATTERN = '^[!-)+-~]{1,128}$';

/** A name that callers, commands and files use. `*` is for patterns. */
export const identifier = (description: string) =>
  Type.String({
    pattern: IDENTIFIER_PATTERN,
    description,
    'x-want': 'a name of 1 to 128 visible ASCII characters without *',
  } satisfies Annotations);

/** The last argument of the functions below. An object, so that the numbers before it stay on one line. */
interface Meaning {
  readonly description: string;
  /** Undefined if an outer declaration has it. */
  readonly applies?: Applies;
}

/** Declares a whole number, by default `preset` (`default` is a keyword); if undefined, it must be given. */
export const wholeNumber = (
  minimum: number,
  maximum: number,
  preset: number | undefined,
  unit: string,
  { description, applies }: Meaning,
) =>
  Type.Integer({
    minimum,
    maximum,
    ...(preset !== undefined && { default: preset }),
    description,
    'x-unit': unit,
    ...(applies && { 'x-applies': applies }),
  } satisfies Annotations);

/** Declares a whole number that must be given. `optionalLimit` declares one that may be absent. */
export const limit = (minimum: number, maximum: number, unit: string, meaning: Meaning) =>
  wholeNumber(minimum, maximum, undefined, unit, meaning);

export const optionalLimit = (minimum: number, maximum: number, unit: string, meaning: Meaning) =>
  Type.Optional(limit(minimum, maximum, unit, meaning));

/** A quota that is counted in whole numbers. */
type CountedQuota = Exclude<QuotaName, 'spend_per_day' | 'spend_per_month'>;

export const quota = (name: CountedQuota, unit: string, meaning: Meaning) =>
  limit(1, QUOTA_LIMITS_MAX[QUOTA_FIELDS[name]], unit, meaning);

export const optionalQuota = (name: CountedQuota, unit: string, meaning: Meaning) =>
  Type.Optional(quota(name, unit, meaning));

/** Declares true or false, by default false. */
export const switchSetting = ({ description, applies }: Meaning) =>
  Type.Boolean({
    default: false,
    description,
    'x-want': 'true or false',
    ...(applies && { 'x-applies': applies }),
  } satisfies Annotations);

/** Returns the keywords of a map of settings. */
export const settingsMap = (description: string, applies?: Applies) =>
  ({
    description,
    'x-want': 'a map of settings',
    ...(applies && { 'x-applies': applies }),
  }) satisfies Annotations;

/**
 * Declares a map with free names. `Type.Record` is the same, but would load the 120 KB of TypeBox that
 * interpret types, in every process that loads the settings' schema (test/unit/bundle.test.ts).
 */
export const namedValues = <Value extends TSchema>(value: Value, annotations: Annotations) => {
  const schema = Type.RecordFromPattern(Type.StringKey, value);
  Object.assign(schema, annotations);
  return schema;
};

/** As `settingsMap`, for a map that may be left out of the file; its settings then have their defaults. */
export const section = (description: string, applies?: Applies) => ({
  default: {},
  ...settingsMap(description, applies),
});

/** Declares a file's path. If setting-files.ts reads the file, supervisor/file-watch.ts must list it. */
export const filePath = (description: string) =>
  Type.String({
    minLength: 1,
    maxLength: 4_096,
    description,
    'x-want': 'the path of a file',
  } satisfies Annotations);

export const optionalFile = (description: string) => Type.Optional(filePath(description));
