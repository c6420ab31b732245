/**
 * Parts of the messages that say what is wrong with an input. The readers of settings, of admin requests and
 * of chat bodies share them. Pure; any thread.
 *
 * Must hold: the texts stay, because users and tests of those readers match on them
 * (test/unit/core/wrong-input.test.ts).
 */

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
