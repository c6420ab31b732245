/** The known name that a mistyped one most likely meant. Pure; any thread. */

/** Names are short; a longer one is no typing error of ours. */
const NAME_CHARS_MAX = 64;

/** Levenshtein distance: insertions, deletions and replacements. Cost: the product of both lengths, at most 64². */
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

/** The first of the candidates with the smallest distance to `name`; undefined where there is none. */
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
