/**
 * What a setting's declaration says beyond JSON Schema's own words. The `x-` words are read by the settings reader and
 * travel with `tollgate config schema`, where tools ignore them. Main threads and commands.
 */
import { Type } from 'typebox';

/**
 * When a changed setting takes effect: `reload` at the next reload, `replacement` if the gateway processes are replaced
 * (`reload --restart`), `restart` at the next start of the supervisor.
 */
export type Applies = 'reload' | 'replacement' | 'restart';

export interface Annotations {
  readonly [jsonSchemaWord: string]: unknown;
  readonly description: string;
  /** What the number counts: `milliseconds`. */
  readonly 'x-unit'?: string;
  /** The environment variable that overrides the file. */
  readonly 'x-environment'?: string;
  /** Ends the sentence "want …" of a refusal, where type and bounds do not say it. */
  readonly 'x-want'?: string;
  /** Follows it in brackets: the reason, or the fine print. */
  readonly 'x-hint'?: string;
  /** The value is never shown, and stands in the file only as a reference to the environment. */
  readonly 'x-secret'?: boolean;
  /** Of a map with free names: a pattern that each must match, one that it must not, and one that marks its value secret. */
  readonly 'x-names'?: string;
  readonly 'x-names-refused'?: string;
  readonly 'x-names-secret'?: string;
  /** For everything below this declaration too. On the way from the root to a setting, exactly one declaration has it. */
  readonly 'x-applies'?: Applies;
}

/** A declaration as the settings reader sees it: the words of JSON Schema that this folder uses, and ours. */
export interface Declaration extends Partial<Annotations> {
  readonly type?: 'object' | 'array' | 'string' | 'integer' | 'boolean';
  readonly enum?: readonly string[];
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Declaration>>;
  readonly required?: readonly string[];
  /** Set on maps with free names alone; its one entry declares the values. */
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
  /** TypeBox keeps what `Type.Refine` adds here, out of the printed schema. */
  readonly '~refine'?: readonly { check(value: unknown): boolean }[];
}

export const IDENTIFIER_PATTERN = '^[!-)+-~]{1,128}$';

/** A name that callers, commands and files write: visible ASCII, but no `*`, which is for patterns. */
export const identifier = (description: string) =>
  Type.String({
    pattern: IDENTIFIER_PATTERN,
    description,
    'x-want': 'a name of 1 to 128 visible ASCII characters without *',
  } satisfies Annotations);

/** A count or an amount in whole units. */
export const whole = (
  minimum: number,
  maximum: number,
  preset: number,
  unit: string,
  description: string,
  applies?: Applies,
) =>
  Type.Integer({
    minimum,
    maximum,
    default: preset,
    description,
    'x-unit': unit,
    ...(applies && { 'x-applies': applies }),
  } satisfies Annotations);

/** Relative ones are resolved by whoever reads the settings. */
export const filePath = (description: string) =>
  Type.String({
    minLength: 1,
    maxLength: 4_096,
    description,
    'x-want': 'the path of a file',
  } satisfies Annotations);
