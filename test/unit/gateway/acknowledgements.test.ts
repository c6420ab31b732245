/** Who has taken it, who has ended, who is late. */
import t from 'tap';
import { Acknowledgements } from '#src/gateway/acknowledgements.js';

const LONG_MS = 120_000;
const SHORT_MS = 20;

void t.test('resolves when each has taken it or has ended', async (t) => {
  const taken = new Acknowledgements(LONG_MS);
  const sent: [number, number][] = [];
  const done = taken.collect([3, 5, 9], (thread, turn) => sent.push([thread, turn]));
  t.same(sent, [
    [3, 1],
    [5, 1],
    [9, 1],
  ]);
  taken.note(9, 1);
  taken.note(9, 1);
  taken.note(77, 1);
  taken.noteEnd(3);
  taken.note(5, 1);
  t.same(await done, []);
  taken.note(5, 1);
  taken.noteEnd(5);
});

void t.test('nobody to ask, and one that answers at once', async (t) => {
  const taken = new Acknowledgements(LONG_MS);
  t.same(await taken.collect([], () => t.fail('nobody is there')), []);
  t.same(await taken.collect([1], (thread, turn) => taken.note(thread, turn)), []);
});

void t.test('names those that are late, and what they say of an earlier turn does not count', async (t) => {
  const taken = new Acknowledgements(SHORT_MS);
  const first = taken.collect([1, 2], () => undefined);
  taken.note(1, 1);
  t.same(await first, [2]);
  const second = taken.collect([1, 2], () => undefined);
  taken.note(2, 1);
  taken.note(1, 2);
  t.same(await second, [2]);
});
