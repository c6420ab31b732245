import t from 'tap';
import { SlotArray } from '#src/core/slot-array.js';
import { grownBytes } from '../../support/collections.js';
import { randomOf } from '../../support/random.js';

void t.test('holds what was added and not removed', (t) => {
  const random = randomOf(1);
  const array = new SlotArray<number>();
  const places = new Map<number, number>();
  for (let item = 0; item < 5_000; item++) {
    const slot = array.add(item);
    if ([...places.values()].includes(slot)) t.fail(`place ${slot} was given twice`);
    places.set(item, slot);
    while (random() < 0.5 && places.size > 0) {
      const [gone, at] = [...places][Math.floor(random() * places.size)]!;
      array.remove(at);
      places.delete(gone);
    }
  }
  t.ok(places.size > 1, `${places.size} are left`);
  t.equal(array.size, places.size);
  t.same([...array].sort(), [...places.keys()].sort());
  for (const [item, slot] of places) t.equal(array.at(slot), item);
  for (const slot of places.values()) array.remove(slot);
  t.same([...array], []);
  t.equal(array.size, 0);
  t.end();
});

void t.test('those who leave while it is walked', (t) => {
  const array = new SlotArray<{ slot: number }>();
  for (let count = 0; count < 100; count++) {
    const item = { slot: 0 };
    item.slot = array.add(item);
  }
  let visited = 0;
  for (const { slot } of array) {
    array.remove(slot);
    visited++;
  }
  t.equal(visited, 100);
  t.equal(array.size, 0);
  t.end();
});

void t.test('what has left is gone with the next small collection', (t) => {
  const array = new SlotArray<{ slot: number; bytes: string[] }>();
  const open: { slot: number; bytes: string[] }[] = [];
  const come = (): void => {
    const item = { slot: 0, bytes: new Array<string>(500).fill('x') };
    item.slot = array.add(item);
    open.push(item);
    if (open.length > 64) array.remove(open.shift()!.slot);
  };
  const bytes = grownBytes(come);
  // A Set keeps 26 MB here.
  t.ok(bytes < 4e6, `the heap grew by ${bytes} bytes`);
  t.end();
});

void t.test('a slot that is free is not freed again', (t) => {
  const array = new SlotArray<string>();
  const slot = array.add('item');
  array.remove(slot);
  t.throws(() => array.remove(slot), { message: /a slot is freed once/ });
  t.throws(() => array.remove(7), { message: /a slot is freed once/ });
  t.equal(array.size, 0);
  t.equal(array.add('next'), slot);
  t.equal(array.add('one after'), slot + 1, 'no two items share a slot');
  t.end();
});
