/** Edit distance against its definition over a small world, and the choice of the nearest. */
import t from 'tap';
import { editDistance, nearestName } from '#src/core/wrong-input.js';

/** The textbook recursion: slow, and plainly right. */
function slowDistance(a: string, b: string): number {
  if (a === '' || b === '') return a.length + b.length;
  const rest = slowDistance(a.slice(1), b.slice(1));
  if (b.startsWith(a.charAt(0))) return rest;
  return 1 + Math.min(rest, slowDistance(a.slice(1), b), slowDistance(a, b.slice(1)));
}

void t.test('every pair of words of up to three letters out of two', (t) => {
  const words = [''];
  for (const word of words) if (word.length < 3) words.push(`${word}x`, `${word}y`);
  t.equal(words.length, 15);
  let pairs = 0;
  for (const a of words) {
    for (const b of words) {
      if (editDistance(a, b) !== slowDistance(a, b)) t.fail(`distance of "${a}" and "${b}"`);
      pairs++;
    }
  }
  t.equal(pairs, 225);
  t.equal(editDistance('kitten', 'sitting'), 3);
  t.end();
});

void t.test('the first of the nearest', (t) => {
  const choose = (name: string, names: string[]) => nearestName(name, names, (candidate) => candidate);
  t.equal(choose('prot', ['host', 'port', 'plot']), 'plot');
  t.equal(choose('ab', ['ax', 'ay']), 'ax');
  t.equal(choose('anything', []), undefined);
  t.end();
});
