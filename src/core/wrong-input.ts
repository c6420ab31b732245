/**
 * Parts of the messages that say what is wrong with an input, and the known name that was most likely meant
 * by a mistyped one; and which characters are printed nowhere. The readers of settings, of admin requests and
 * of chat bodies share them, the registry and the commands too. Pure; any thread.
 *
 * Must hold: the texts stay, because users and tests of those readers match on them
 * (test/unit/core/wrong-input.test.ts); the edit distance is exact
 * (test/unit/core/wrong-input.nearest-name.test.ts).
 */

/**
 * A control character; one that breaks a line, or turns or marks the direction of writing, so that a name
 * looks like another; or half of a character, which no URL can carry. No name or note may have one, and none
 * is written to a terminal. Written as a JSON Schema can have it, so without the property Bidi_Control.
 */
export const UNPRINTABLE = /[\p{Cc}\p{Cs}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;

const UNPRINTABLES = new RegExp(UNPRINTABLE, 'gu');

/**
 * The text on one line, with `�` for each unprintable character: texts may come from anybody, and must not
 * move the cursor of an operator's terminal or turn its writing.
 */
export function visible(text: string): string {
  return text.replace(UNPRINTABLES, '\u{fffd}');
}

/** Names and positions from the root, such as `['models', 0, 'price']`. */
export type InputPath = readonly (string | number)[];

/** The path as text, such as `models[0].price`; empty for the root. */
export function formatInputPath(path: InputPath): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === 'number') return `${text}[${part}]`;
    return text === '' ? part : `${text}.${part}`;
  }, '');
}

/** The text, or its first `charsMax` characters and `…`. */
export function clipped(text: string, charsMax: number): string {
  return text.length <= charsMax ? text : `${text.slice(0, charsMax)}…`;
}

/** The keywords of a JSON Schema for a value without children. */
export interface ValueSchema {
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly 'x-unit'?: string;
}

/**
 * What a schema allows, such as `a whole number of bytes from 1 to 9`; undefined if its keywords do not say
 * it.
 */
export function wantedBy(schema: ValueSchema): string | undefined {
  const { type, minimum, maximum } = schema;
  if (schema.enum !== undefined) return `one of ${schema.enum.join(', ')}`;
  if (type === 'integer' && minimum !== undefined && maximum !== undefined) {
    const unit = schema['x-unit'] === undefined ? '' : ` of ${schema['x-unit']}`;
    return `a whole number${unit} from ${minimum} to ${maximum}`;
  }
  return type === 'boolean' ? 'true or false' : undefined;
}

/** Of a longer text only the beginning is compared, which bounds the work. Known names are shorter. */
const NAME_CHARS_MAX = 64;

/** The Levenshtein distance: insertions, deletions and replacements. At most 64² steps. */
export function editDistance(left: string, right: string): number {
  const a = left.slice(0, NAME_CHARS_MAX);
  const b = right.slice(0, NAME_CHARS_MAX);
  let above = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row++) {
    const current = [row];
    for (let column = 1; column <= b.length; column++) {
      const replaced = above[column - 1]! + (a[row - 1] === b[column - 1] ? 0 : 1);
      current.push(Math.min(replaced, above[column]! + 1, current[column - 1]! + 1));
    }
    above = current;
  }
  return above[b.length]!;
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
};

/** Returns the setting that other gateways call `name`; undefined if none does. */
export function synonymOf(name: string): string | undefined {
  const plain = name.toLowerCase().replaceAll('-', '_');
  return Object.hasOwn(SYNONYMS, plain) ? SYNONYMS[plain] : undefined;
}

/** Returns the first candidate with the smallest distance to `name`; undefined if there are no candidates. */
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
