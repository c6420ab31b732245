/**
 * Bodies and query parameters against their schemas, and the sentence that tells what is wrong. Readers are compiled when
 * the routes are loaded: on the main thread, before it disallows code generation.
 */
import type { Static, TObject, TSchema } from 'typebox';
import { Compile, type Validator } from 'typebox/compile';
import { invariant } from '../core/errors.js';
import { invalid, UNPRINTABLE } from '../registry/record-id.js';

/** Of a wrong value in a message: enough to know it again, where a whole body may be 64 KiB and more. */
const SHOWN_CHARS_MAX = 100;

export type InputNoun = 'field' | 'query parameter';

/** Gives back the value, typed, or throws `invalid_parameters` that names the first field at fault and its rule. */
export type Reader<Value> = (value: unknown) => Value;

type InputErrors = ReturnType<Validator['Errors']>;

export function compileReader<Schema extends TObject>(
  schema: Schema,
  noun: InputNoun,
): Reader<Static<Schema>> {
  const validator = Compile(schema);
  invariant(validator.IsAccelerated(), 'validators of the admin interface are compiled');
  return (value) => {
    if (validator.Check(value)) return value;
    throw invalid(inputErrorOf(validator.Errors(value), schema, noun, value));
  };
}

/** What was given, cut to a length that a message can hold. */
export function shown(value: unknown): string {
  return clipped(value === undefined ? 'nothing' : jsonOf(value));
}

function jsonOf(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch {
    // Text can be nested deeper than the stack on which it would be written again.
    return 'what is nested too deeply';
  }
}

/** Unknown names first, for a misspelt field is also a missing one. */
function inputErrorOf(errors: InputErrors, schema: TSchema, noun: InputNoun, value: unknown): string {
  for (const fault of errors) {
    if (fault.keyword === 'additionalProperties') {
      const names = fault.params.additionalProperties.map((name) => fieldOf(`${fault.instancePath}/${name}`));
      return `unknown ${noun} ${clipped(names.join(', '))}`;
    }
  }
  for (const fault of errors) {
    if (fault.keyword === 'required') {
      const names = fault.params.requiredProperties.map((name) => fieldOf(`${fault.instancePath}/${name}`));
      return `${names.join(', ')} must be given`;
    }
  }
  const first = errors[0];
  invariant(first !== undefined, 'what is refused has a fault');
  if (first.instancePath === '') return `the body must be a JSON object, got ${shown(value)}`;
  const rule = ruleOf(schemaAt(schema, first.schemaPath), first.message);
  return `${fieldOf(first.instancePath)} ${rule}, got ${shown(valueAt(value, first.instancePath))}`;
}

/** The whole rule of a field, where its parts would each tell half of it. */
function ruleOf(schema: unknown, message: string): string {
  const {
    type,
    minimum,
    maximum,
    enum: words,
  } = schema as {
    type?: string;
    minimum?: number;
    maximum?: number;
    enum?: readonly unknown[];
  };
  if (words !== undefined) return `must be one of ${words.join(', ')}`;
  if (type === 'integer' && minimum !== undefined && maximum !== undefined) {
    return `must be a whole number from ${minimum} to ${maximum}`;
  }
  return type === 'boolean' ? 'must be true or false' : message;
}

/** From `/accounts/3/name` to `accounts[3].name`. */
function fieldOf(path: string): string {
  return phraseOf(path)
    .map((word, at) => (/^\d+$/.test(word) ? `[${word}]` : at === 0 ? word : `.${word}`))
    .join('');
}

function schemaAt(schema: TSchema, path: string): unknown {
  return valueAt(schema, path.slice('#'.length));
}

/** A name that is not there, as in a schema of another kind, gives an empty record. */
function valueAt(value: unknown, path: string): unknown {
  let found = value;
  for (const word of phraseOf(path)) found = (found as Record<string, unknown> | undefined)?.[word];
  return found;
}

function phraseOf(path: string): string[] {
  return path
    .split('/')
    .slice(1)
    .map((word) => word.replaceAll('~1', '/').replaceAll('~0', '~'));
}

function clipped(text: string): string {
  return text.length <= SHOWN_CHARS_MAX ? text : `${text.slice(0, SHOWN_CHARS_MAX)}…`;
}

/*
 * Query strings of the admin interface: decoded strictly, so that nothing is read otherwise than it was meant. Pure; main
 * thread.
 */

/** Digits beyond these are no count of anything here, and would lose their last ones in a number. */
const WHOLE_NUMBER = /^-?\d{1,15}$/;

/** Names and ids, of which the longest is a model's, and cursors, which are among them. */
const VALUE_CHARS_MAX = 500;

/**
 * Parameters by name, ready for the schema's reader: what the schema wants as a number, true or false is made one where it
 * has that form, and left as text, to be refused, where it has not. Throws `invalid_parameters` where a parameter comes
 * twice, is not percent-encoded UTF-8, or is no text that a name could have.
 */
export function parseQuery(query: string, schema: TObject): Record<string, unknown> {
  const values = new Map<string, unknown>();
  for (const part of query.split('&')) {
    if (part === '') continue;
    const at = part.indexOf('=');
    const name = decode(at < 0 ? part : part.slice(0, at), 'the name of a query parameter');
    const text = decode(at < 0 ? '' : part.slice(at + 1), `query parameter ${shown(name)}`);
    if (values.has(name)) throw invalid(`query parameter ${shown(name)} must be given once`);
    assertText(name, text);
    values.set(name, valueOf(text, schema.properties[name]));
  }
  return Object.fromEntries(values);
}

function decode(text: string, what: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw invalid(`${what} must be percent-encoded UTF-8, got ${shown(text)}`);
  }
}

function assertText(name: string, text: string): void {
  if (text.length > VALUE_CHARS_MAX) {
    throw invalid(
      `query parameter ${shown(name)} must have at most ${VALUE_CHARS_MAX} characters, got ${text.length}`,
    );
  }
  if (UNPRINTABLE.test(text))
    throw invalid(`query parameter ${shown(name)} must not have control characters`);
}

function valueOf(text: string, schema: { type?: unknown } | undefined): unknown {
  if (schema?.type === 'integer' && WHOLE_NUMBER.test(text)) return Number(text);
  if (schema?.type === 'boolean' && (text === 'true' || text === 'false')) return text === 'true';
  return text;
}
