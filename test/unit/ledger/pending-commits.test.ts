import t from 'tap';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { createRing } from '#src/ledger/journal-layout.js';
import { JournalReader, JournalWriter } from '#src/ledger/journal.js';
import { PendingCommits, type PendingCommit } from '#src/ledger/pending-commits.js';
import { FakeClock } from '../../fixtures/ledger-world.js';

const RECORD = {
  request: 1,
  endedMs: asWallMs(0),
  promptTokens: 0,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  reasoningTokens: 0,
  completionTokens: 0,
  charged: asPicoUnits(0n),
  uncovered: asPicoUnits(0n),
  account: asAccountIndex(0),
  key: asKeyIndex(0),
  model: 0,
  requested: 0,
  outcome: 'served',
  source: 0,
  durationMs: 0,
} as const;

function openWorld() {
  const ring = createRing(16);
  const journal = new JournalWriter(ring, () => undefined);
  const reader = new JournalReader(ring);
  const clock = new FakeClock();
  const events: string[] = [];
  const pending = new PendingCommits(journal, clock, () => events.push('ask'));
  const end = (name: string): PendingCommit => ({
    onCommitted: () => {
      if (name === 'thrower') throw new Error('ordered');
      events.push(`${name} committed`);
    },
    onUncommitted: () => events.push(`${name} given up`),
  });
  return {
    clock,
    pending,
    add: (name: string) => pending.add(journal.append(RECORD), end(name)),
    /** Adds one whose end calls `onCommitted`. */
    addWith: (onCommitted: () => void) =>
      pending.add(journal.append(RECORD), { onCommitted, onUncommitted: () => undefined }),
    /** Adds many that wait for one record. */
    addMany: (count: number, response: PendingCommit) => {
      const position = journal.append(RECORD);
      for (let added = 0; added < count; added++) pending.add(position, response);
    },
    commit: () => {
      reader.drain(() => undefined);
      reader.markCommitted();
    },
    /** What has happened since the last look; a turn of the event loop is let pass before. */
    seen: async () => {
      await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
      return events.splice(0);
    },
  };
}

void t.test(
  'ends of one turn ask once, and leave in their order when their charges are on disk',
  async (t) => {
    const { pending, add, commit, seen } = openWorld();
    add('a');
    add('b');
    t.equal(pending.size, 2);
    t.same(await seen(), ['ask']);
    commit();
    add('c');
    t.same(await seen(), [], 'one question at a time');
    pending.onCommit(true);
    t.same(await seen(), ['a committed', 'b committed', 'ask'], 'c has come since');
    commit();
    pending.onCommit(true);
    t.same(await seen(), ['c committed']);
    add('d');
    t.same(await seen(), ['ask']);
  },
);

void t.test('a store that fails lets nothing wait, but what is on disk is', async (t) => {
  const { pending, add, commit, seen } = openWorld();
  add('a');
  commit();
  add('b');
  await seen();
  pending.onCommit(false);
  t.same(await seen(), ['a committed', 'b given up']);
  t.equal(pending.size, 0);
});

void t.test('a listener that fails ends all, also if the end of one has thrown', async (t) => {
  const { pending, add, commit, seen } = openWorld();
  add('a');
  add('thrower');
  add('b');
  commit();
  add('c');
  await seen();
  t.throws(() => pending.onCommit(true));
  pending.giveUpAll();
  t.same(await seen(), ['a committed', 'b committed', 'c given up']);
  t.equal(pending.size, 0);
});

void t.test('those that come while others end wait behind those that a throw has left', async (t) => {
  const { pending, add, addMany, commit, seen } = openWorld();
  const bad: PendingCommit = {
    onCommitted: () => {
      add('late');
      throw new Error('ordered');
    },
    onUncommitted: () => undefined,
  };
  addMany(1, bad);
  add('a');
  commit();
  await seen();
  t.throws(() => pending.onCommit(true));
  t.equal(pending.size, 2);
  await seen();
  pending.giveUpAll();
  t.same(await seen(), ['a committed', 'late given up']);
});

void t.test('the end of many does not hold up the thread', async (t) => {
  const { pending, addMany, commit, seen } = openWorld();
  const COUNT = 200_000;
  for (const ending of ['on disk', 'given up'] as const) {
    let ended = 0;
    const response = { onCommitted: () => void ended++, onUncommitted: () => void ended++ };
    addMany(COUNT, response);
    if (ending === 'on disk') commit();
    await seen();
    const before = process.cpuUsage();
    pending.onCommit(ending === 'on disk');
    const { user, system } = process.cpuUsage(before);
    t.equal(ended, COUNT);
    // In proportion to their number it takes some 10 ms, to its square some seconds.
    t.ok(user + system < 1_000_000, `${COUNT} ${ending}: ${Math.round((user + system) / 1_000)} ms of CPU`);
  }
});

void t.test('nothing waits for longer than ten seconds', async (t) => {
  const { clock, pending, add, commit, seen } = openWorld();
  add('a');
  clock.pass(5_000);
  add('b');
  await seen();
  clock.pass(4_999);
  pending.onSweep();
  t.same(await seen(), []);
  clock.pass(1);
  pending.onSweep();
  t.same(await seen(), ['a given up']);
  commit();
  clock.pass(5_000);
  pending.onSweep();
  t.same(await seen(), ['b committed'], 'what came to the disk at the last moment counts');
});

void t.test('a response whose end makes another wait asks no second question at once', async (t) => {
  const { pending, add, addWith, commit, seen } = openWorld();
  addWith(() => add('b'));
  t.same(await seen(), ['ask']);
  commit();
  pending.onCommit(true);
  t.same(await seen(), ['ask'], 'for b');
  commit();
  pending.onCommit(true);
  t.same(await seen(), ['b committed']);
  t.end();
});
