/**
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
