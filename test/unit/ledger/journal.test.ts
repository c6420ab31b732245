import t from 'tap';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import {
  APPENDED,
  COMMITTED,
  DRAINED,
  JOURNAL_OUTCOMES,
  createJournalBuffer,
  createRing,
  type JournalBuffer,
  type JournalRecord,
} from '#src/ledger/journal-layout.js';
import { JournalReader, JournalWriter } from '#src/ledger/journal.js';
import { interruptAt } from '../../fixtures/ledger-world.js';

/** A record in which every field depends on `seed`, so that a torn or misplaced one shows. */
function recordOf(seed: number): JournalRecord {
  return {
    request: seed,
    endedMs: asWallMs(1_700_000_000_000 + seed),
    promptTokens: 2 ** 52 + seed,
    cachedTokens: seed * 3,
    cacheWriteTokens: seed * 5,
    cacheWrite1hTokens: seed * 9,
    reasoningTokens: seed * 11,
    completionTokens: -seed,
    charged: asPicoUnits(8_999_999_999_999_999_000n + BigInt(seed)),
    uncovered: asPicoUnits(-BigInt(seed)),
    account: asAccountIndex(4_000_000 - seed),
    key: asKeyIndex(20_000_000 - seed),
    model: seed % 1_000,
    requested: (seed + 1) % 1_000,
    outcome: JOURNAL_OUTCOMES[seed % JOURNAL_OUTCOMES.length]!,
    source: seed % 3,
    durationMs: seed * 7,
  };
}

/** What is in the ring, copied out. */
function drainAll(reader: JournalReader): JournalRecord[] {
  const records: JournalRecord[] = [];
  reader.drain((record) => records.push({ ...record }));
  return records;
}

/** A ring whose counters are about to pass 2^31 and 2^32. */
function ringAt(capacity: number, position: number): JournalBuffer {
  const ring = createRing(capacity);
  const words = new Int32Array(ring.shared);
  for (const word of [APPENDED, DRAINED, COMMITTED]) words[word] = position;
  return ring;
}

const ignore = (): void => undefined;

void t.test(
  'every field of every record comes out as it went in, around the ring and around the counters',
  (t) => {
    for (const start of [0, 2 ** 31 - 3, -3]) {
      const ring = ringAt(4, start);
      const writer = new JournalWriter(ring, ignore);
      const reader = new JournalReader(ring);
      let next = 0;
      for (let round = 0; round < 40; round++) {
        const burst = 1 + (round % 4);
        const wanted = Array.from({ length: burst }, () => recordOf(next++));
        for (const record of wanted) {
          t.equal(writer.roomFor(0), 'room');
          writer.append(record);
        }
        t.same(drainAll(reader), wanted, `from ${start}, round ${round}`);
      }
    }
    t.end();
  },
);

const inOrder = (order: number, what: string): string => `order ${order.toString(3)}: ${what}`;

void t.test('small worlds: every order of eleven steps, against a queue', (t) => {
  const CAPACITY = 2;
  const STEPS = 11;
  let worlds = 0;
  for (let order = 0; order < 3 ** STEPS; order += 1) {
    const ring = ringAt(CAPACITY, -4);
    let writer = new JournalWriter(ring, ignore);
    const reader = new JournalReader(ring);
    const queue: number[] = [];
    let appended = 0;
    let committed = 0;
    const positions: number[] = [];
    for (let step = 0, digits = order; step < STEPS; step++, digits = Math.floor(digits / 3)) {
      const action = digits % 3;
      if (action === 0) {
        const room = writer.roomFor(0);
        if ((room === 'room') !== queue.length < CAPACITY)
          throw new Error(inOrder(order, `room ${room} beside ${queue.length}`));
        if (room === 'room') {
          positions.push(writer.append(recordOf(appended)));
          queue.push(appended++);
        }
      } else if (action === 1) {
        const seen = drainAll(reader).map(({ request }) => request);
        if (seen.join() !== queue.splice(0).join()) throw new Error(inOrder(order, `drained ${seen.join()}`));
        reader.markCommitted();
        committed = appended;
      } else {
        // The listener has died, and another goes on.
        writer = new JournalWriter(ring, ignore);
      }
      for (const [index, position] of positions.entries()) {
        if (writer.isCommitted(position) !== index < committed)
          throw new Error(inOrder(order, `commit of ${index}`));
      }
    }
    worlds++;
  }
  t.equal(worlds, 3 ** STEPS);
  t.end();
});

void t.test(
  'a writer stopped at any atomic step shows nothing or a whole record; a reader stopped at any loses none',
  (t) => {
    for (let step = 0, reached = true; reached; step++) {
      const ring = ringAt(4, -1);
      const writer = new JournalWriter(ring, ignore);
      const reader = new JournalReader(ring);
      writer.append(recordOf(1));
      const seen: JournalRecord[] = [];
      reached = interruptAt(
        step,
        () => writer.append(recordOf(2)),
        () => seen.push(...drainAll(reader)),
      );
      seen.push(...drainAll(reader));
      t.same(seen, [recordOf(1), recordOf(2)], `writer stopped at ${step}`);
    }
    for (let step = 0, reached = true; reached; step++) {
      const ring = ringAt(4, -1);
      const writer = new JournalWriter(ring, ignore);
      const reader = new JournalReader(ring);
      for (let seed = 0; seed < 4; seed++) writer.append(recordOf(seed));
      const seen: JournalRecord[] = [];
      let next = 4;
      reached = interruptAt(
        step,
        () => seen.push(...drainAll(reader)),
        () => {
          while (writer.roomFor(0) === 'room') writer.append(recordOf(next++));
        },
      );
      seen.push(...drainAll(reader));
      t.same(
        seen,
        Array.from({ length: next }, (_, seed) => recordOf(seed)),
        `reader stopped at ${step}`,
      );
    }
    t.end();
  },
);

void t.test(
  'calls are admitted while all that are in flight find room; half full is told once each time',
  (t) => {
    const ring = createRing(8);
    let told = 0;
    const writer = new JournalWriter(ring, () => (told += 1));
    const reader = new JournalReader(ring);
    t.equal(writer.roomFor(7), 'room');
    t.equal(writer.roomFor(8), 'full', 'each of them would need a place');
    for (let round = 1; round <= 2; round++) {
      for (let seed = 0; seed < 8; seed++) writer.append(recordOf(seed));
      t.equal(told, round);
      t.equal(writer.roomFor(0), 'full');
      t.throws(() => writer.append(recordOf(8)), /only if its record has room/);
      t.equal(drainAll(reader).length, 8);
      t.equal(writer.roomFor(7), 'room');
      writer.append(recordOf(0));
      drainAll(reader);
    }
    reader.setRejecting(true);
    t.equal(writer.roomFor(0), 'rejecting');
    reader.setRejecting(false);
    t.equal(writer.roomFor(0), 'room');
    t.end();
  },
);

void t.test('a record that cannot be taken stays, with all behind it', (t) => {
  const ring = createRing(4);
  const writer = new JournalWriter(ring, ignore);
  const reader = new JournalReader(ring);
  for (let seed = 0; seed < 3; seed++) writer.append(recordOf(seed));
  const seen: number[] = [];
  const stumble = (record: JournalRecord): void => {
    if (record.request === 1) throw new Error('not now');
    seen.push(record.request);
  };
  t.throws(() => reader.drain(stumble), /not now/);
  t.same(seen, [0]);
  t.same(drainAll(reader), [recordOf(1), recordOf(2)]);
  t.end();
});

void t.test('capacities', (t) => {
  t.equal(createJournalBuffer(0).capacity, 65_536);
  t.equal(createJournalBuffer(32_769).capacity, 131_072, 'twice the calls, rounded up');
  t.throws(() => createRing(3), /power of two/);
  t.end();
});
