import t from 'tap';
import { asAccountIndex, asKeyIndex } from '#src/core/units.js';
import { digestOf } from '#src/registry/key-digest.js';
import { KEYS_MAX } from '#src/core/limits.js';
import { createKeyTableBuffers, KEY_EXPIRES_SECONDS_MAX, KeyTable } from '#src/registry/key-table.js';
import { interruptAt } from '../../fixtures/ledger-world.js';
import { newSeed, randomBelow } from '../../support/random.js';

const ACCOUNT = asAccountIndex(77);

/** A digest whose first word decides the slot it wants, and whose last tells it from others. */
function digestAt(slot: number, last: number): Buffer {
  const digest = Buffer.alloc(32);
  digest.writeInt32LE(slot, 0);
  digest.writeInt32LE(last, 28);
  return digest;
}

void t.test('finds what was inserted, from every thread, and nothing else', (t) => {
  const buffers = createKeyTableBuffers({ keysMax: 1_000 });
  const table = new KeyTable(buffers);
  const other = new KeyTable(structuredClone(buffers));
  for (let key = 0; key < 1_000; key++) {
    table.insert(asKeyIndex(key), digestOf(`key ${key}`), asAccountIndex(key * 3), key % 2 === 0);
  }
  for (let key = 0; key < 1_000; key++) {
    const found = other.find(digestOf(`key ${key}`));
    if (found !== key) t.fail(`key ${key}: ${found}`);
    if (other.accountOf(asKeyIndex(key)) !== key * 3) t.fail('its account');
    if (other.stateOf(asKeyIndex(key)) !== (key % 2 === 0 ? 'active' : 'disabled')) t.fail('its state');
    if (other.find(digestOf(`no key ${key}`)) !== undefined) t.fail('what was not inserted');
  }
  t.end();
});

void t.test('all 32 bytes count', (t) => {
  const table = new KeyTable(createKeyTableBuffers({ keysMax: 4 }));
  const digest = digestOf('a key');
  table.insert(asKeyIndex(0), digest, ACCOUNT, true);
  for (let byte = 0; byte < 32; byte++) {
    for (let bit = 0; bit < 8; bit++) {
      const near = Buffer.from(digest);
      near[byte]! ^= 1 << bit;
      if (table.find(near) !== undefined) t.fail(`byte ${byte}, bit ${bit}`);
    }
  }
  t.equal(table.find(Buffer.from(digest)), 0);
  t.end();
});

void t.test('a state changes on every thread at once; a removed key is gone', (t) => {
  const buffers = createKeyTableBuffers({ keysMax: 4 });
  const table = new KeyTable(buffers);
  const other = new KeyTable(buffers);
  const key = asKeyIndex(2);
  table.insert(key, digestAt(0, 1), ACCOUNT, true);
  table.setActive(key, false);
  t.equal(other.stateOf(key), 'disabled');
  table.setActive(key, true);
  t.equal(other.stateOf(key), 'active');
  table.remove(key);
  t.equal(other.find(digestAt(0, 1)), undefined);
  t.equal(other.stateOf(key), 'disabled', 'who found it before is told that it may not be used');
  t.throws(() => table.remove(key), /is in the table/);
  t.throws(() => table.setActive(key, true), /is in the table/);
  table.insert(key, digestAt(0, 2), ACCOUNT, true);
  t.equal(other.find(digestAt(0, 2)), key);
  t.end();
});

void t.test('expiry, limits and last use are seen by every thread, and go with the key', (t) => {
  const buffers = createKeyTableBuffers({ keysMax: 4 });
  const table = new KeyTable(buffers);
  const other = new KeyTable(buffers);
  const [plain, rich] = [asKeyIndex(1), asKeyIndex(2)];
  table.insert(plain, digestAt(0, 1), ACCOUNT, true);
  const latest = KEY_EXPIRES_SECONDS_MAX;
  table.insert(rich, digestAt(0, 2), ACCOUNT, false, { expiresSeconds: latest, isLimited: true });
  t.notOk(other.isExpired(plain, latest), 'never');
  t.notOk(other.isExpired(rich, latest - 1));
  t.ok(other.isExpired(rich, latest), 'from that second on');
  t.same([other.isLimited(plain), other.isLimited(rich)], [false, true]);
  table.setActive(rich, true);
  t.equal(other.stateOf(rich), 'active');
  t.ok(other.isLimited(rich), 'a change of state leaves the limits');
  table.setActive(rich, false);
  t.equal(other.stateOf(rich), 'disabled');
  t.ok(other.isLimited(rich));

  t.equal(table.lastUsedSecondsOf(plain), undefined);
  t.equal(other.recordUse(plain, latest), true);
  t.equal(table.recordUse(plain, latest), false, 'once a second');
  t.equal(table.lastUsedSecondsOf(plain), latest);
  t.equal(table.recordUse(plain, 5), true, 'a clock that was set back is believed');
  t.equal(other.lastUsedSecondsOf(plain), 5);
  t.equal(table.lastUsedSecondsOf(rich), undefined);

  table.setExpiry(plain, 7);
  t.notOk(other.isExpired(plain, 6));
  t.ok(other.isExpired(plain, 7));
  for (const wrong of [0, latest + 1]) {
    t.throws(() => table.setExpiry(plain, wrong), /expiry/, 'else it would mean never, or another moment');
    const traits = { expiresSeconds: wrong };
    t.throws(() => table.insert(asKeyIndex(3), digestAt(0, 5), ACCOUNT, true, traits), /expiry/);
    t.notOk(other.has(asKeyIndex(3)));
  }
  t.ok(other.isExpired(plain, 7), 'as it was');
  t.ok(table.has(plain));
  table.remove(plain);
  table.remove(rich);
  t.notOk(other.has(plain));
  t.throws(() => table.setExpiry(plain, 1), /is in the table/);
  table.insert(rich, digestAt(0, 3), ACCOUNT, true);
  table.insert(plain, digestAt(0, 4), ACCOUNT, true);
  t.same(
    [other.isLimited(rich), other.isExpired(plain, latest), other.lastUsedSecondsOf(plain)],
    [false, false, undefined],
    'the next key at the index has none of it',
  );
  t.end();
});

void t.test('an index or a digest is in the table once', (t) => {
  const table = new KeyTable(createKeyTableBuffers({ keysMax: 4 }));
  table.insert(asKeyIndex(0), digestAt(0, 0), ACCOUNT, true);
  const insert = (key: number, digest: Buffer) => () => table.insert(asKeyIndex(key), digest, ACCOUNT, true);
  t.throws(insert(0, digestAt(0, 1)), /is vacant/);
  t.throws(insert(1, digestAt(0, 0)), /once/);
  t.throws(insert(4, digestAt(0, 1)), /within the table/);
  t.throws(insert(1, Buffer.alloc(31)), /32 bytes/);
  t.equal(table.find(digestAt(0, 1)), undefined, 'what was refused is not there');
  t.throws(() => createKeyTableBuffers({ keysMax: 0 }), /keysMax/);
  t.throws(() => createKeyTableBuffers({ keysMax: KEYS_MAX + 1 }), /keysMax/);
  t.end();
});

void t.test('at most 64 bytes a key', (t) => {
  for (const keysMax of [1_024, 1_025, 1_000_000, 2_000_000]) {
    const { entries, records } = createKeyTableBuffers({ keysMax });
    t.ok(entries.byteLength / 4 >= 2 * keysMax, 'half of the entries stay empty');
    t.ok((entries.byteLength + records.byteLength) / keysMax <= 64);
  }
  t.end();
});

void t.test('a small world, exhaustively: 8 steps over 3 keys that all want the last slot', (t) => {
  const digests = [0, 1, 2].map((key) => digestAt(7, key));
  for (let code = 0; code < 3 ** 8; code++) {
    const table = new KeyTable(createKeyTableBuffers({ keysMax: 4 }));
    const present = [false, false, false];
    for (let step = 0, rest = code; step < 8; step++, rest = Math.floor(rest / 3)) {
      const key = rest % 3;
      if (present[key]) table.remove(asKeyIndex(key));
      else table.insert(asKeyIndex(key), digests[key]!, ACCOUNT, true);
      present[key] = !present[key];
      for (let other = 0; other < 3; other++) {
        const expected = present[other] ? other : undefined;
        if (table.find(digests[other]!) !== expected) t.fail(`sequence ${code}, step ${step}, key ${other}`);
      }
    }
  }
  t.end();
});

void t.test(
  'a reader stopped at any step, while keys come and go: it finds what was there all the time',
  (t) => {
    const histories: number[][] = [
      [0],
      [1, 0],
      [1, 2, 0],
      [2, 1, 0, -1],
      [1, 2, 3, 0, -2],
      [1, 2, 0, -1, -2],
    ];
    // Negative: remove that key; positive: insert it. Key 0 is the one looked for, key 9 is new and wants the
    // same slot.
    const intrusions: number[][] = [[9], [-1], [-2], [-1, -2], [-1, 9], [-2, -1, 9], [9, -9], [-3, -2, -1]];
    let cases = 0;
    for (const history of histories) {
      for (const intrusion of intrusions) {
        for (let step = 0, reached = true; reached; step++) {
          const buffers = createKeyTableBuffers({ keysMax: 10 });
          const table = new KeyTable(buffers);
          const present = new Set<number>();
          const apply = (change: number): void => {
            if (change < 0 && present.delete(-change)) table.remove(asKeyIndex(-change));
            if (change < 0 || present.has(change)) return;
            present.add(change);
            table.insert(asKeyIndex(change), digestAt(31, change), ACCOUNT, true);
          };
          history.forEach(apply);
          let found: number | undefined;
          reached = interruptAt(
            step,
            () => (found = new KeyTable(buffers).find(digestAt(31, 0))),
            () => intrusion.forEach(apply),
          );
          if (found !== 0) t.fail(`[${history.join()}] [${intrusion.join()}] step ${step}: ${found}`);
          cases++;
        }
      }
    }
    t.ok(cases > 300, `${cases} cases`);
    t.end();
  },
);

void t.test(
  'a reader between any two writes of insert and remove sees all of the key or nothing of it',
  (t) => {
    for (let step = 0, reached = true; reached; step++) {
      const table = new KeyTable(createKeyTableBuffers({ keysMax: 4 }));
      const look = (): void => {
        const found = table.find(digestAt(3, 5));
        if (found === undefined) return;
        t.equal(found, 2);
        t.equal(table.accountOf(found), ACCOUNT);
        if (inserting) t.equal(table.stateOf(found), 'active');
      };
      let inserting = true;
      const inserted = interruptAt(
        step,
        () => table.insert(asKeyIndex(2), digestAt(3, 5), ACCOUNT, true),
        look,
      );
      inserting = false;
      const removed = interruptAt(step, () => table.remove(asKeyIndex(2)), look);
      reached = inserted || removed;
    }
    t.end();
  },
);

void t.test('after many comings and goings the full table is right, and searches end', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random = randomBelow(seed);
  const keysMax = 512;
  const table = new KeyTable(createKeyTableBuffers({ keysMax }));
  const names = new Array<string>(keysMax);
  for (let key = 0; key < keysMax; key++) {
    names[key] = `first ${key}`;
    table.insert(asKeyIndex(key), digestOf(names[key]!), ACCOUNT, true);
  }
  for (let n = 0; n < 20_000; n++) {
    const key = random(keysMax);
    table.remove(asKeyIndex(key));
    if (n % 100 === 0 && table.find(digestOf(names[key]!)) !== undefined)
      t.fail(`seed ${seed}: removed at ${n}`);
    names[key] = `${seed} ${n}`;
    table.insert(asKeyIndex(key), digestOf(names[key]), ACCOUNT, true);
  }
  names.forEach((name, key) => {
    if (table.find(digestOf(name)) !== key) t.fail(`seed ${seed}: key ${key}`);
  });
  // A search for what is not there reads slots until an empty one: count the reads.
  let reads = 0;
  const load = Atomics.load;
  const atomics = Atomics as { load: unknown };
  atomics.load = (...args: Parameters<typeof load>) => {
    reads++;
    return load(...args);
  };
  for (let n = 0; n < 1_000; n++) table.find(digestOf(`absent ${n}`));
  atomics.load = load;
  t.ok(reads / 1_000 < 60, `${reads / 1_000} reads a search at full load`);
  t.end();
});
