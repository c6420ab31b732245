/**
 * Parts of the sentences that say what is wrong with an input. Settings, bodies of the admin interface and
 * chat bodies are read by three readers, which say it alike. Pure; any thread.
 */

/** Names and positions from the root: `['models', 0, 'price']`. */
export type InputPath = readonly (string | number)[];

/** `models[0].price`; empty for the empty path. */
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

/** The words of a JSON Schema that a value without children has to fit. */
export interface ValueSchema {
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly 'x-unit'?: string;
}

/**
 * What a schema wants, such as `a whole number of bytes from 1 to 9`; undefined if only its reader knows the
 * words for it.
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
