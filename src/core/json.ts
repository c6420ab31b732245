/**
 * JSON text for responses, and JSON text from callers. Any thread.
 *
 * Responses are written in ASCII. µWS takes them as strings. If all characters lie below U+0100, newer
 * versions (seen on Node 24) write Latin-1 and older ones UTF-8; for ASCII both are the same.
 */

/** The JSON text of `value`, with every character beyond ASCII escaped. */
export function jsonText(value: unknown): string {
  return JSON.stringify(value).replace(
    /[\u0080-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/*
 * JSON from outside. Pure; any thread.
 */

/** The value of a JSON text; undefined, which is no JSON value, if the text is malformed. */
export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
