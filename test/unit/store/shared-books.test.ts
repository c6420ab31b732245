/** Several gateways keep the books of one store: each adds its own, once. */
import t from 'tap';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { dayNumberOf } from '#src/ledger/day.js';
import type { JournalRecord } from '#src/ledger/journal-layout.js';
import { hourOf } from '#src/registry/usage-report.js';
import { audit } from '#src/store/audit.js';
import type { FlushedResponses, FlushStore } from '#src/store/flush.js';
import { hostClocks } from '#src/store/host-clocks.js';
import { recover } from '#src/store/recovery.js';
import { StoredResponses } from '#src/store/stored-responses.js';
import type { Store } from '#src/store/store.js';
import { BOUNDS, joinBooks, type BooksMember } from '../../support/books-member.js';
import { CATALOG, ListLog, flushOf, openHouse, serve, type House, type StoppedClock } from './support.js';
import { takenOfDay } from '../../fixtures/ledger-world.js';
import { addDay, addSlots } from '../../fixtures/day-leases.js';

const FIRST = asAccountIndex(0);
const KEY = asKeyIndex(0);

/** Whatever the gateway spends was lent to it. */
function joinStore(
  store: Store,
  clock: StoppedClock,
  slot: number,
  through: FlushStore = store,
): BooksMember {
  const member = joinBooks(store, clock, slot, `life ${slot}`, through);
  lend(member, clock);
  return member;
}

/** An account with a key that has limits of its own. */
function openShop(path: string): House {
  const house = openHouse(path);
  house.registry.accounts.create({ name: 'a', planId: 'free', credit: asPicoUnits(1_000_000n) });
  house.registry.keys.create({ account: 'a', name: 'k', limits: { callsPerDay: 100 } });
  return house;
}

function lend(member: BooksMember, clock: StoppedClock): void {
  member.leases.addMoney(FIRST, asPicoUnits(100_000n), asPicoUnits(0n));
  addSlots(member.leases, FIRST, 16);
  lendDay(member, clock);
}

function lendDay({ leases }: BooksMember, clock: StoppedClock): void {
  const today = dayNumberOf(clock.wallMs());
  addDay(leases.accounts, FIRST, today, 100, 0);
  addDay(leases.keys, KEY, today, 100, 0);
}

const callerOf =
  (clock: StoppedClock) =>
  (member: BooksMember, cost: bigint, more: Partial<JournalRecord> = {}): void => {
    member.serve(FIRST, cost, more);
    member.ledger.keys.takeDay(KEY, 100);
    member.keyTable.recordUse(KEY, Math.floor(clock.nowMs / 1_000));
  };

const usageOf = (store: Store, clock: StoppedClock) =>
  store.findUsage({
    account: FIRST,
    hour: hourOf(clock.wallMs()),
    keyId: store.findKeyId(KEY)!,
    modelId: 'small',
  });

void t.test('members add up, in any order of their flushes', async (t) => {
  const path = t.testdir();
  const { store, clock } = openShop(path);
  const call = callerOf(clock);
  const members = [0, 1, 2].map((slot) => joinStore(store, clock, slot));
  let versionBefore = store.shared.accountingVersion();
  for (let round = 1; round <= 4; round++) {
    members.forEach((member, index) => {
      for (let calls = 0; calls <= index; calls++) call(member, BigInt(10 ** index));
    });
    for (const member of round % 2 === 0 ? members : [...members].reverse()) t.ok(member.flush.run());
    const spent = BigInt(round) * 321n;
    t.match(store.findSpending(FIRST), { spent, uncovered: 0n, dayCalls: round * 6 });
    t.match(usageOf(store, clock), { calls: round * 6, cost: spent, promptTokens: round * 18 });
    t.match(store.keys.findUse(KEY), { dayCalls: round * 6 });
    t.equal(members[2]!.totals.writtenOf(FIRST), BigInt(round) * 300n);
    const version = store.shared.accountingVersion();
    t.ok(version > versionBefore, 'newer with every flush');
    versionBefore = version;
  }
  t.match(await audit(path, BOUNDS), { spent: 1_284n, differences: [] });

  const late = joinStore(store, clock, 3);
  t.equal(late.ledger.day.read(FIRST).dayCalls, 0, 'it has used nothing itself');
  call(late, 1n);
  t.ok(store.shared.accountingVersion() > versionBefore, 'and with every life that begins');
  late.flush.run();
  t.match(store.findSpending(FIRST), { spent: 1_285n, dayCalls: 25 });
  await store.close();

  const alone = openHouse(path);
  recover({ ...alone, catalog: CATALOG, ...BOUNDS, log: new ListLog() });
  t.match(
    alone.ledger.snapshot(FIRST),
    { available: 998_715n, dayCalls: 25 },
    'a gateway without a group goes on',
  );
  serve(alone, 0, 15n);
  flushOf(alone, new ListLog()).run();
  t.equal(alone.store.findSpending(FIRST)?.spent, 1_300n);
  await alone.store.close();
});

void t.test('a charge that another flush has written is taken back', async (t) => {
  const path = t.testdir();
  const { store, clock } = openShop(path);
  const call = callerOf(clock);
  const [one, other] = [0, 1].map((slot) => joinStore(store, clock, slot)) as [BooksMember, BooksMember];
  call(one, 50n, { source: 2, uncovered: asPicoUnits(5n) });
  one.flush.run();
  call(other, 7n);
  other.flush.run();
  one.record({
    ...{ account: FIRST, charged: asPicoUnits(-50n), uncovered: asPicoUnits(-5n) },
    ...{
      promptTokens: -3,
      cachedTokens: -1,
      cacheWriteTokens: 0,
      cacheWrite1hTokens: 0,
      reasoningTokens: 0,
      completionTokens: -2,
      outcome: 'reversed',
      source: 2,
    },
  });
  t.ok(one.flush.run());
  t.match(store.findSpending(FIRST), { spent: 7n, uncovered: 0n });
  t.match(usageOf(store, clock), {
    ...{
      calls: 2,
      failedCalls: 1,
      estimatedCalls: 0,
      promptTokens: 3,
      cachedTokens: 1,
      cacheWriteTokens: 0,
      cacheWrite1hTokens: 0,
      reasoningTokens: 0,
      completionTokens: 2,
    },
    ...{ cost: 7n, uncovered: 0n },
  });
  t.match(await audit(path, BOUNDS), { differences: [] });
  await store.close();
});

void t.test(
  'money of a charge that is taken back is the authority’s again, once the store has it no more',
  async (t) => {
    const { store, clock } = openShop(t.testdir());
    const one = joinStore(store, clock, 0);
    const held = () => one.ledger.snapshot(FIRST).credited - one.totals.writtenOf(FIRST);
    one.serve(FIRST, 50n);
    one.flush.run();
    t.equal(held(), 99_950n, 'what the authority has on record');
    const settlement = { charged: asPicoUnits(50n), uncovered: asPicoUnits(0n) };
    one.ledger.reverse(takenOfDay(FIRST, one.ledger.day.read(FIRST).dayNumber), settlement);
    one.record({ account: FIRST, charged: asPicoUnits(-50n), outcome: 'reversed' });
    t.equal(one.ledger.balance.available(FIRST), 99_950n, 'cannot be spent here');
    t.equal(held(), 99_950n);
    one.flush.run();
    t.equal(store.findSpending(FIRST)?.spent, 0n);
    t.equal(held(), 99_950n);
    t.equal(one.ledger.snapshot(FIRST).credited - one.ledger.snapshot(FIRST).spent, 99_950n);
    await store.close();
  },
);

void t.test('a day that is over for one is over for all', async (t) => {
  const path = t.testdir();
  const { store, clock } = openShop(path);
  const call = callerOf(clock);
  const [one, other] = [0, 1].map((slot) => joinStore(store, clock, slot)) as [BooksMember, BooksMember];
  const behind = asWallMs(clock.nowMs);
  call(one, 1n);
  one.flush.run();
  const today = one.ledger.day.read(FIRST).dayNumber;
  call(one, 1n);
  clock.nowMs += 86_400_000;
  lendDay(other, clock);
  call(other, 1n);
  other.flush.run();
  t.match(store.findSpending(FIRST), { dayNumber: today + 1, dayCalls: 1 });
  clock.nowMs = behind;
  one.flush.run();
  t.match(
    store.findSpending(FIRST),
    { dayNumber: today + 1, dayCalls: 1, spent: 3n },
    'yesterday’s come late',
  );
  clock.nowMs += 86_400_000;
  lendDay(one, clock);
  call(one, 1n);
  one.flush.run();
  t.match(store.findSpending(FIRST), { dayNumber: today + 1, dayCalls: 2 });
  t.match(store.keys.findUse(KEY), { dayNumber: today + 1, dayCalls: 2 });
  await store.close();
});

type Outcome = 'works' | 'nothing' | 'untold';

/** A store whose commits fail, with or without having reached the disk. */
function unclear(store: Store): FlushStore & { outcome: Outcome } {
  const through = {
    outcome: 'works' as Outcome,
    findKeyId: (index: Parameters<Store['findKeyId']>[0]) => store.findKeyId(index),
    findUsage: (key: Parameters<Store['findUsage']>[0]) => store.findUsage(key),
    putAccounting: (rows: Parameters<Store['putAccounting']>[0]) => store.putAccounting(rows),
    commit: <Result>(work: () => Result): Result => {
      if (through.outcome === 'nothing') throw new Error('no space left on device');
      const result = store.commit(work);
      if (through.outcome === 'untold') throw new Error('input/output error');
      return result;
    },
  };
  return through;
}

void t.test('a flush whose end was not told is looked up, and made once', async (t) => {
  const path = t.testdir();
  const { store, clock } = openShop(path);
  const call = callerOf(clock);
  const through = unclear(store);
  const one = joinStore(store, clock, 0, through);
  const other = joinStore(store, clock, 1);
  let spent = 0n;
  for (const outcome of ['untold', 'nothing', 'untold', 'untold', 'nothing', 'works'] as const) {
    through.outcome = outcome;
    call(one, 11n);
    t.equal(one.flush.run(), outcome === 'works', outcome);
    call(other, 100n);
    t.ok(other.flush.run());
    spent += 111n;
  }
  t.match(store.findSpending(FIRST), { spent, dayCalls: 12 });
  t.match(usageOf(store, clock), { calls: 12, cost: spent });
  t.match(store.keys.findUse(KEY), { dayCalls: 12 });
  t.equal(one.totals.writtenOf(FIRST), 66n);
  t.match(await audit(path, BOUNDS), { differences: [] });
  await store.close();
});

void t.test('responses of a flush whose end was not told are whole, if they are on disk', async (t) => {
  const { store, clock } = openShop(t.testdir());
  const through = unclear(store);
  const storedResponses = new StoredResponses({
    store,
    keepHours: 24,
    storeBytesMax: 1_000_000,
    isDrained: () => true,
    isCharged: () => true,
    clock,
  });
  const one = joinBooks(store, clock, 0, 'life 0', through, { storedResponses });
  lend(one, clock);
  for (const outcome of ['untold', 'nothing'] as const) {
    const bytes = new Uint8Array([1, 2]);
    const record = {
      ...{ account: FIRST, key: outcome, bodyDigest: '00'.repeat(32), endedMs: asWallMs(clock.nowMs) },
      ...{ stream: false, bytes },
    };
    storedResponses.keep(record, { listener: 0, position: 0 });
    callerOf(clock)(one, 11n);
    through.outcome = outcome;
    t.notOk(one.flush.run());
    through.outcome = 'works';
    t.ok(one.flush.run());
    const kept = { ...record, bytes: outcome === 'untold' ? bytes : undefined };
    t.same(storedResponses.find(record), { record: kept, isUnwritten: false }, outcome);
  }
  await store.close();
});

void t.test('flushes that failed, however many, are no difference of the books', async (t) => {
  const path = t.testdir();
  const { store, clock } = openShop(path);
  const through = unclear(store);
  const one = joinStore(store, clock, 0, through);
  callerOf(clock)(one, 11n);
  through.outcome = 'nothing';
  for (let failed = 0; failed < 10; failed++) t.notOk(one.flush.run());
  through.outcome = 'works';
  t.ok(one.flush.run());
  t.match(await audit(path, BOUNDS), { spent: 11n, differences: [] });
  await store.close();
});

void t.test("a flush that failed leaves nothing to the next in which a key's calls are fewer", async (t) => {
  const { store, clock } = openShop(t.testdir());
  const call = callerOf(clock);
  let fails = true;
  const through: FlushStore = {
    ...unclear(store),
    commit: (work) =>
      store.commit(() => {
        const result = work();
        if (fails) throw new Error('no space left on device');
        return result;
      }),
  };
  const one = joinStore(store, clock, 0, through);
  call(one, 5n);
  t.notOk(one.flush.run(), 'after its rows were made');
  fails = false;
  one.ledger.keys.giveBackDay(KEY, dayNumberOf(clock.wallMs()));
  t.ok(one.flush.run());
  t.match(store.keys.findUse(KEY), { dayCalls: 0 });
  call(one, 5n);
  t.ok(one.flush.run());
  t.match(store.keys.findUse(KEY), { dayCalls: 1 });
  await store.close();
});

void t.test('a damaged row of key use stops no charges: it is written anew', async (t) => {
  const { store, clock } = openShop(t.testdir());
  const call = callerOf(clock);
  const [one, other] = [0, 1].map((slot) => joinStore(store, clock, slot)) as [BooksMember, BooksMember];
  call(one, 5n);
  t.ok(one.flush.run());
  call(other, 7n);
  call(other, 7n);
  t.ok(other.flush.run());
  const whole = store.keys.findUse(KEY)!;
  t.equal(whole.dayCalls, 3);
  store.commit(() => store.keys.putUse(KEY, { ...whole, minuteUsed: -1 }));
  t.throws(() => store.keys.findUse(KEY), { code: 'damaged' });
  call(other, 7n);
  t.ok(other.flush.run(), 'the charge is on disk');
  t.equal(store.findSpending(FIRST)?.spent, 26n);
  t.equal(store.keys.findUse(KEY)?.dayCalls, 3, 'all that it counted itself');
  call(one, 5n);
  t.ok(one.flush.run());
  t.equal(store.keys.findUse(KEY)?.dayCalls, 4, 'and others add to it again');
  t.equal(other.log.lines.filter((line) => line.includes('damaged row of key use')).length, 1);
  await store.close();
});

void t.test('a flush that fails before its transaction is made by the next', async (t) => {
  const path = t.testdir();
  const { store, clock } = openShop(path);
  const call = callerOf(clock);
  let fails = false;
  const storedResponses: FlushedResponses = {
    due: () => {
      if (fails) throw new Error('EIO: i/o error, statfs');
      return undefined;
    },
    recordWritten: () => undefined,
    recordFailed: () => undefined,
  };
  const one = joinBooks(store, clock, 0, 'life 0', store, { storedResponses });
  lend(one, clock);
  call(one, 11n);
  t.ok(one.flush.run());
  call(one, 100n);
  fails = true;
  t.notOk(one.flush.run());
  fails = false;
  t.ok(one.flush.run());
  t.match(store.findSpending(FIRST), { spent: 111n, dayCalls: 2 });
  t.match(usageOf(store, clock), { calls: 2, cost: 111n });
  t.match(await audit(path, BOUNDS), { differences: [] });
  await store.close();
});

void t.test('a life does not take the mark of an earlier one in its slot for its own', async (t) => {
  const { store } = openShop(t.testdir());
  const before = store.newFlushMark(0, 'one');
  store.commit(before.begin());
  t.equal(before.hasReachedDisk(), true);
  const after = store.newFlushMark(0, 'other');
  after.begin();
  t.equal(after.hasReachedDisk(), false);
  before.begin();
  t.equal(before.hasReachedDisk(), false, 'the next has not begun on disk');
  await store.close();
});

void t.test(
  'what gateways that share have flushed is as old as their calendar says, for one alone',
  async (t) => {
    const house = openShop(t.testdir());
    const { store, clock } = house;
    serve(house, FIRST, 1n);
    t.ok(flushOf(house, new ListLog()).run());
    // The calendar is set while the store is shared.
    clock.nowMs += 3_600_000;
    clock.setMs += 3_600_000;
    t.equal(store.steppedMs(hostClocks(clock)), 3_600_000);
    const member = joinStore(store, clock, 0);
    callerOf(clock)(member, 1n);
    t.ok(member.flush.run());
    t.equal(store.steppedMs(hostClocks(clock)), 0, 'its rows are of the new calendar');
    await store.close();
  },
);
