/**
 * Query strings of the admin interface: decoded strictly, so that nothing is read otherwise than it was meant. Pure; main
 * thread.
 */
import type { TObject } from 'typebox';
import { UNPRINTABLE, invalid } from '../registry/record-id.js';
import { shown } from './input-reader.js';

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
