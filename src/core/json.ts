/**
 * JSON as ASCII. Any thread.
 *
 * µWS takes strings for answers, and writes one whose characters all lie below U+0100 as Latin-1 in newer
 * versions (seen on Node 24) and as UTF-8 in older ones. Text without such characters is the same in both.
 */

/** JSON text of `value`, with every character beyond ASCII escaped. */
export function jsonText(value: unknown): string {
  return JSON.stringify(value).replace(
    /[\u0080-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/*
 * JSON that nobody vouches for. Pure; any thread.
 */

/** The value of a JSON text, undefined (which is no JSON value) where the text is none. */
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
