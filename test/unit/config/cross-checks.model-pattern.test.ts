/** Patterns against a regular expression as independent judge, over a small world. */
import t from 'tap';
import { matchesModel } from '#src/config/cross-checks.js';

function words(alphabet: string, lengthMax: number): string[] {
  const all = [''];
  for (const word of all)
    if (word.length < lengthMax) all.push(...Array.from(alphabet, (letter) => word + letter));
  return all;
}

void t.test('every pattern of up to four characters against every id of up to four', (t) => {
  const ids = words('ab', 4);
  let checked = 0;
  for (const pattern of words('ab*', 4)) {
    const judge = new RegExp(`^${pattern.replaceAll('*', '.*')}$`);
    for (const id of ids) {
      if (matchesModel(pattern, id) !== judge.test(id)) t.fail(`"${pattern}" on "${id}"`);
      checked++;
    }
  }
  t.equal(checked, 121 * 31);
  t.end();
});

void t.test('other characters are plain', (t) => {
  t.ok(matchesModel('gpt-4.1*', 'gpt-4.1-mini'));
  t.notOk(matchesModel('gpt-4.1*', 'gpt-4x1-mini'));
  t.ok(matchesModel('vendor/(x)+', 'vendor/(x)+'));
  t.end();
});
