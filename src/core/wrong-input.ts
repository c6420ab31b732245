/**
 * Makes the parts that messages about a wrong input have in common: paths, cut texts, rules in words, the
 * known name that a mistyped name most likely meant, and the characters that are never printed. The readers
 * of settings (config/), of admin requests (admin/input-reader.ts) and of chat bodies (protocol/) use these
 * functions; the registry uses UNPRINTABLE and `nearestName`, the commands `visible`. Pure; any thread.
 *
 * Must hold: the texts stay, because users and tests of these readers match on them; the edit distance is
 * exact (test/unit/core/wrong-input.nearest-name.test.ts).
 */
import type { Branded } from './units.js';

/**
 * Matches a control character; a character that breaks a line or sets the direction of writing, by which one
 * name can look like another; or half of a surrogate pair, which no URL can carry. No name or note may have
 * such a character, and none is written to a terminal. The direction marks are listed by code, because many
 * checkers of JSON Schemas, which have the pattern too, do not know the property Bidi_Control.
 */
export const UNPRINTABLE = /[\p{Cc}\p{Cs}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;

const UNPRINTABLES = new RegExp(UNPRINTABLE, 'gu');

/** What `visible` returns, or is made of that alone. */
export type VisibleText = Branded<string, 'VisibleText'>;

/** The text with `�` for each unprintable character, which could move the cursor of a terminal. */
export function visible(text: string): VisibleText {
  return text.replace(UNPRINTABLES, '\u{fffd}') as VisibleText;
}

/** Names of members and positions in arrays from the root, such as `['models', 0, 'price']`. */
export type InputPath = readonly (string | number)[];

/** The path as text, such as `models[0].price`; empty for the root. */
export function formatInputPath(path: InputPath): string {
  return path.reduce<string>((text, step) => {
    if (typeof step === 'number') return `${text}[${step}]`;
    return text === '' ? step : `${text}.${step}`;
  }, '');
}

/** The text, or its first `charsMax` characters and `…`. May cut a surrogate pair. */
export function clipped(text: string, charsMax: number): string {
  return text.length <= charsMax ? text : `${text.slice(0, charsMax)}…`;
}

/** The keywords of a JSON Schema for a value without children that `wantedBy` puts in words. */
export interface ValueSchema {
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly minimum?: number;
  readonly maximum?: number;
  /** The unit of an integer, in the plural: a keyword of config/annotations.ts. */
  readonly 'x-unit'?: string;
}

/** What a schema allows, such as `a whole number of bytes from 1 to 9`; undefined for other schemas. */
export function wantedBy(schema: ValueSchema): string | undefined {
  const { type, minimum, maximum } = schema;
  if (schema.enum !== undefined) return `one of ${schema.enum.join(', ')}`;
  if (type === 'integer' && minimum !== undefined && maximum !== undefined) {
    const unit = schema['x-unit'] === undefined ? '' : ` of ${schema['x-unit']}`;
    return `a whole number${unit} from ${minimum} to ${maximum}`;
  }
  return type === 'boolean' ? 'true or false' : undefined;
}

/** Only so many characters are compared, which bounds the work. The names of settings are shorter. */
const NAME_CHARS_MAX = 64;

/** The Levenshtein distance: insertions, deletions and replacements. At most 64² steps. */
export function editDistance(first: string, second: string): number {
  const from = first.slice(0, NAME_CHARS_MAX);
  const to = second.slice(0, NAME_CHARS_MAX);
  // A row of the usual table: the distances from the first characters of `from` to each beginning of `to`.
  let previousRow = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let row = 1; row <= from.length; row++) {
    const currentRow = [row];
    for (let column = 1; column <= to.length; column++) {
      const replaced = previousRow[column - 1]! + (from[row - 1] === to[column - 1] ? 0 : 1);
      currentRow.push(Math.min(replaced, previousRow[column]! + 1, currentRow[column - 1]! + 1));
    }
    previousRow = currentRow;
  }
  return previousRow[to.length]!;
}

/** Other gateways' names for settings of this one, which are too different to be found by their distance. */
const SYNONYMS: Readonly<Record<string, string>> = {
  rpm: 'requests_per_minute',
  rpm_limit: 'requests_per_minute',
  rate_limit: 'requests_per_minute',
  requests_per_min: 'requests_per_minute',
  rpd: 'calls_per_day',
  rpd_limit: 'calls_per_day',
  requests_per_day: 'calls_per_day',
  daily_limit: 'calls_per_day',
  api_key: 'key',
  api_base: 'url',
  base_url: 'url',
  ttl: 'keep_hours',
  ttl_seconds: 'keep_hours',
};

/** Returns the setting that other gateways call `name`; undefined if none does. */
export function synonymOf(name: string): string | undefined {
  const folded = name.toLowerCase().replaceAll('-', '_');
  return Object.hasOwn(SYNONYMS, folded) ? SYNONYMS[folded] : undefined;
}

/** The first candidate with the smallest distance to `name`, however large; undefined without candidates. */
export function nearestName<C>(
  name: string,
  candidates: readonly C[],
  nameOf: (candidate: C) => string,
): C | undefined {
  let best: C | undefined;
  let bestDistance = Infinity;
  for (const candidate of candidates) {
    const distance = editDistance(name, nameOf(candidate));
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}
