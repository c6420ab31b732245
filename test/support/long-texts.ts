/** A text that costs much to whatever tries each of its places anew. */

/**
 * Pieces of which a long run costs much if a pattern or a loop tries each of them anew: characters of names,
 * starts of what is searched for, openings without an end.
 */
const UNITS: readonly string[] = [
  ...['a', '0', ' ', '\n', '-', '.', 'é', '😀', '{', '[', '{"a":', '<', '</', '&', '`', '%', '#a', '?', '@'],
  ...['a@', 'a.', 'a/', 'a=', 'A1', ';', ',', ':', '_', '\\', '"', '1234567890123456 '],
  ...['token count ', 'exceeds the maximum ', 'exceed ', 'context ', 'projects/', 'project ', 'project=a-'],
  ...['org_', 'req_aaaaaa_', 'arn:aws', 'arn:aws:', 'AKIA', '123456789012-', 'API key ', 'Profile '],
  ...['data:', 'data: {', 'event: a\n', 'https://', 's3://a/', 'gs://', ';base64,', '<system-reminder>'],
  ...['functionCall', 'toolUse', 'tool_use', '"text":"', '```', 'model: '],
];

const made = new Map<number, string>();

/** A run of each unit, one after the other; the last is a string of JSON without its end. */
export function longText(size: number): string {
  let text = made.get(size);
  if (text === undefined) {
    const runs = UNITS.map((unit) => `${unit.repeat(Math.ceil(size / unit.length))}!`);
    text = `${runs.join('\u0001')}1234567890123456"${String.raw`\"`.repeat(size)}`;
    made.set(size, text);
  }
  return text;
}
