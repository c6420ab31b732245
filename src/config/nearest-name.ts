/**
 * Finds the known name that an operator most likely meant by a mistyped one, for the messages about settings
 * and admin requests. settings-reader.ts and cross-checks.ts call it. Pure; main thread and commands.
 *
 * Must hold: the edit distance is exact (test/unit/config/nearest-name.test.ts).
 */

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
