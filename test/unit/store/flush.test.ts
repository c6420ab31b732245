import t from 'tap';
import { asAccountIndex, asCallSlot, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import type { JournalRecord } from '#src/ledger/journal-layout.js';
import type { FlushStore } from '#src/store/flush.js';
import { KeyUses } from '#src/store/key-uses.js';
import type { Store } from '#src/store/store.js';
import { hourOf, type UsageRecord } from '#src/registry/usage-report.js';
import { CATALOG, ListLog, flushOf, openHouse, serve, type House } from './support.js';
import { admitTo } from '../../fixtures/ledger-world.js';

const FIRST = asAccountIndex(0);
const SECOND = asAccountIndex(1);
const CREDIT = asPicoUnits(1_000n);
const ALL_HOURS = { fromHour: 0, toHour: Number.MAX_SAFE_INTEGER - 1 };

const RECORD = {
  request: 2,
  endedMs: asWallMs(Date.UTC(2025, 0, 31, 12)),
  promptTokens: 0,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  reasoningTokens: 0,
  completionTokens: 0,
  charged: asPicoUnits(0n),
  uncovered: asPicoUnits(0n),
  account: FIRST,
  key: asKeyIndex(0),
  model: 0,
  requested: 0,
  outcome: 'internal_error',
  source: 0,
  durationMs: 1,
} as const;

/** A house with two accounts of one key each. */
function openShop(path: string): House {
  const house = openHouse(path);
  for (const name of ['a', 'b']) {
    house.registry.accounts.create({ name, planId: 'free', credit: CREDIT });
    house.registry.keys.create({ account: name, name: `key of ${name}` });
  }
  return house;
}

interface WatchedStore extends FlushStore {
  broken: boolean;
  readonly written: { spendings: number; usages: number }[];
}

function watch(store: Store): WatchedStore {
  const watched: WatchedStore = {
    broken: false,
    written: [],
    commit: (work) => store.commit(work),
    findKeyId: (index) => store.findKeyId(index),
    findUsage: (key) => store.findUsage(key),
    putAccounting: (rows) => {
      if (watched.broken) throw new Error('no space left on device');
      watched.written.push({ spendings: rows.spendings.size, usages: [...rows.usages].length });
      store.putAccounting(rows);
    },
  };
  return watched;
}

/** The law of the books: each account's usage sums up to its spending. */
function usageOf(store: Store): UsageRecord[] {
  const rows: UsageRecord[] = [];
  for (const account of [FIRST, SECOND]) {
    const mine = [...store.usages({ account, ...ALL_HOURS })];
    rows.push(...mine);
    const spending = store.findSpending(account);
    const cost = mine.reduce((sum, row) => sum + row.cost, 0n);
    if (cost !== (spending?.spent ?? 0n)) throw new Error(`usage ${cost}, spent ${spending?.spent}`);
  }
  return rows;
}

void t.test(
  'money, usage and counters of changed accounts, and of those alone, are written; once',
  async (t) => {
    const house = openShop(t.testdir());
    const store = watch(house.store);
    const flush = flushOf(house, new ListLog(), store);
    t.equal(flush.run(), true);
    t.equal(store.written.length, 0, 'nothing was spent');

    house.ledger.minute.take(FIRST, 60);
    serve(house, 0, 250n);
    serve(house, 0, 0n, {
      outcome: 'provider_unavailable',
      promptTokens: 0,
      cachedTokens: 0,
      cacheWriteTokens: 0,
      cacheWrite1hTokens: 0,
      reasoningTokens: 0,
      completionTokens: 0,
    });
    serve(house, 0, 7n, { source: 2 });
    t.equal(flush.run(), true);
    t.equal(flush.run(), true);
    t.same(store.written, [{ spendings: 1, usages: 1 }]);
    t.match(house.store.findSpending(FIRST), { spent: 257n, uncovered: 0n, dayCalls: 3, minuteUsed: 1 });
    const hour = hourOf(house.clock.wallMs());
    const keyId = house.store.findKeyId(asKeyIndex(0));
    const row = {
      ...{ account: FIRST, hour, keyId, modelId: CATALOG.models[0]!.id },
      ...{
        calls: 3,
        failedCalls: 1,
        estimatedCalls: 1,
        fallbackCalls: 0,
        promptTokens: 6,
        cachedTokens: 2,
        cacheWriteTokens: 0,
        cacheWrite1hTokens: 0,
        reasoningTokens: 0,
        completionTokens: 4,
      },
      ...{ cost: 257n, uncovered: 0n },
    };
    t.same(usageOf(house.store), [row]);

    house.ledger.minute.take(SECOND, 60);
    t.equal(flush.run(), true);
    t.same(store.written.at(-1), { spendings: 1, usages: 0 }, 'a minute alone is written too');
    t.match(house.store.findSpending(SECOND), { spent: 0n, minuteUsed: 1 });
    t.equal(flush.commit(), true);
    t.equal(store.written.length, 2);
    await house.store.close();
  },
);

void t.test('hours, keys and models are told apart, and rows go on after they left memory', async (t) => {
  const house = openShop(t.testdir());
  const flush = flushOf(house, new ListLog());
  const hour = hourOf(house.clock.wallMs());
  const HOUR_MS = 3_600_000;
  for (let round = 1; round <= 3; round++) {
    serve(house, 0, 1n);
    serve(house, 1, 10n, { key: asKeyIndex(1) });
    flush.run();
    // The next hour has begun, then the clock is set back: the first row is read from disk again.
    house.clock.nowMs += HOUR_MS;
    serve(house, 0, 100n);
    flush.run();
    house.clock.nowMs -= HOUR_MS;
  }
  const rows = usageOf(house.store).map(({ account, hour: at, calls, cost }) => [
    account,
    at - hour,
    calls,
    cost,
  ]);
  t.same(rows, [
    [0, 0, 3, 3n],
    [0, 1, 3, 300n],
    [1, 0, 3, 30n],
  ]);
  await house.store.close();
});

void t.test(
  'one call of a clock that was ahead does not keep the rows of the present out of memory',
  async (t) => {
    const house = openShop(t.testdir());
    const store = watch(house.store);
    const reads: number[] = [];
    store.findUsage = (key) => {
      reads.push(key.hour);
      return house.store.findUsage(key);
    };
    const flush = flushOf(house, new ListLog(), store);
    serve(house, 0, 1n, { endedMs: asWallMs(house.clock.nowMs + 48 * 3_600_000) });
    t.ok(flush.run());
    for (let round = 0; round < 3; round++) {
      serve(house, 0, 1n);
      t.ok(flush.run());
    }
    const hour = hourOf(house.clock.wallMs());
    t.same(reads, [hour + 48, hour], 'read once');
    await house.store.close();
  },
);

void t.test('a call that ends after its key was deleted is booked on that key', async (t) => {
  const house = openShop(t.testdir());
  const keyId = house.store.findKeyId(asKeyIndex(0));
  house.registry.keys.delete(keyId!);
  house.registry.keys.create({ account: 'a', name: 'next' });
  serve(house, 0, 5n);
  flushOf(house, new ListLog()).run();
  t.match(usageOf(house.store), [{ keyId, cost: 5n }]);
  await house.store.close();
});

void t.test('a charge that is taken back leaves a failed call and no cost', async (t) => {
  const house = openShop(t.testdir());
  const flush = flushOf(house, new ListLog());
  serve(house, 0, 5n, { source: 2 });
  flush.run();
  serve(house, 0, 0n, {
    outcome: 'reversed',
    source: 2,
    promptTokens: -3,
    cachedTokens: -1,
    cacheWriteTokens: 0,
    cacheWrite1hTokens: 0,
    reasoningTokens: 0,
    completionTokens: -2,
    charged: asPicoUnits(-5n),
  });
  flush.run();
  t.match(usageOf(house.store), [
    {
      calls: 1,
      failedCalls: 1,
      estimatedCalls: 0,
      promptTokens: 0,
      cachedTokens: 0,
      cacheWriteTokens: 0,
      cacheWrite1hTokens: 0,
      reasoningTokens: 0,
      completionTokens: 0,
      cost: 0n,
    },
  ]);
  await house.store.close();
});

void t.test('a charge that is taken back in a later hour leaves rows that can be read', async (t) => {
  const house = openShop(t.testdir());
  const flush = flushOf(house, new ListLog());
  serve(house, 0, 5n, { source: 2 });
  flush.run();
  house.clock.nowMs += 3_600_000;
  house.journal.append({
    ...RECORD,
    endedMs: house.clock.wallMs(),
    outcome: 'reversed',
    source: 2,
    promptTokens: -3,
    charged: asPicoUnits(-5n),
  });
  t.ok(flush.run());
  t.match(usageOf(house.store), [
    { calls: 1, failedCalls: 0, estimatedCalls: 1, cost: 5n },
    { calls: 0, failedCalls: 1, estimatedCalls: 0, promptTokens: 0, cost: -5n },
  ]);
  await house.store.close();
});

void t.test('a failed flush is told once in ten seconds, loses nothing and ends by itself', async (t) => {
  const house = openShop(t.testdir());
  const log = new ListLog();
  const store = watch(house.store);
  const flush = flushOf(house, log, store);
  store.broken = true;
  serve(house, 0, 10n);
  serve(house, 1, 20n, { key: asKeyIndex(1) });
  const position = house.journal.append({ ...RECORD, account: SECOND, key: asKeyIndex(1) });
  t.equal(flush.run(), false);
  t.equal(flush.commit(), false);
  t.match(log.lines, [/^error the books cannot be written/]);
  t.same(flush.state, { ok: false, lastError: 'no space left on device', unflushedAccounts: 2 });
  t.equal(house.journal.roomFor(0), 'room', 'calls are served');
  t.equal(house.journal.isCommitted(position), false);
  t.equal(house.store.findSpending(FIRST), undefined);
  house.clock.nowMs += 10_000;
  flush.run();
  t.equal(log.lines.length, 2);

  serve(house, 1, 5n, { key: asKeyIndex(1) });
  store.broken = false;
  t.equal(flush.run(), true);
  t.equal(house.store.findSpending(FIRST)?.spent, 10n, 'kept from the failed run');
  t.equal(house.store.findSpending(SECOND)?.spent, 25n, 'with what came meanwhile');
  usageOf(house.store);
  t.equal(house.journal.isCommitted(position), true);
  t.same(flush.state, { ok: true, lastError: undefined, unflushedAccounts: 0 });
  t.match(log.lines.at(-1), /^warn the books are written again; no charge was lost$/);
  await house.store.close();
});

void t.test('new calls are refused while the store fails, where that is wanted', async (t) => {
  const house = openShop(t.testdir());
  const store = watch(house.store);
  const flush = flushOf(house, new ListLog(), store, { rejectOnError: () => true });
  store.broken = true;
  serve(house, 0, 10n);
  flush.run();
  t.equal(house.journal.roomFor(0), 'rejecting');
  store.broken = false;
  flush.run();
  t.equal(house.journal.roomFor(0), 'room');
  await house.store.close();
});

void t.test('a row that cannot be read holds up its journal and loses none of it', async (t) => {
  const house = openShop(t.testdir());
  const store = watch(house.store);
  let damaged = true;
  const flush = flushOf(house, new ListLog(), {
    ...store,
    findUsage: (key) => {
      if (damaged && key.account === SECOND) throw new Error('damaged');
      return house.store.findUsage(key);
    },
  });
  serve(house, 0, 1n);
  serve(house, 1, 2n, { key: asKeyIndex(1) });
  serve(house, 0, 4n);
  t.equal(flush.run(), false);
  damaged = false;
  t.equal(flush.run(), true);
  t.equal(house.store.findSpending(FIRST)?.spent, 5n);
  t.equal(house.store.findSpending(SECOND)?.spent, 2n);
  usageOf(house.store);
  await house.store.close();
});

void t.test('what a dead listener left is counted with its own request ids, if only later', async (t) => {
  const house = openShop(t.testdir());
  let damaged = true;
  let prefix = 'req_dead-';
  const lines: string[] = [];
  const flush = flushOf(
    house,
    new ListLog(),
    {
      ...watch(house.store),
      findUsage: (key) => {
        if (damaged && key.account === SECOND) throw new Error('damaged');
        return house.store.findUsage(key);
      },
    },
    {
      requestPrefixOf: () => prefix,
      usageLog: {
        add: (requestPrefix, { request }) => lines.push(`${requestPrefix}${request}`),
        write: () => undefined,
      },
    },
  );
  serve(house, 0, 1n, { request: 1 });
  serve(house, 1, 2n, { request: 2, key: asKeyIndex(1) });
  serve(house, 0, 4n, { request: 3 });
  flush.drainEnded(0);
  prefix = 'req_successor-';
  serve(house, 0, 8n, { request: 1 });
  t.equal(flush.run(), false, 'the row is damaged still');
  damaged = false;
  t.equal(flush.run(), true);
  t.same(lines.sort(), ['req_dead-1', 'req_dead-2', 'req_dead-3', 'req_successor-1']);
  t.equal(house.store.findSpending(FIRST)?.spent, 13n);
  t.equal(house.store.findSpending(SECOND)?.spent, 2n);
  usageOf(house.store);
  await house.store.close();
});

void t.test('what dead listeners left is counted in time that grows with its number alone', async (t) => {
  const house = openShop(t.testdir());
  const flush = flushOf(house, new ListLog());
  // To take the first of so many by `shift` moves all others: all together took a minute.
  const records = 200_000;
  for (let index = 0; index < records; index++) flush.correct('req_dead-', { ...RECORD, request: index });
  const startMs = performance.now();
  t.ok(flush.drain());
  t.ok(performance.now() - startMs < 5_000);
  await house.store.close();
});

void t.test('what was counted before a row could not be read is not counted again', async (t) => {
  const house = openShop(t.testdir());
  let damaged = true;
  const flush = flushOf(house, new ListLog(), {
    ...watch(house.store),
    findUsage: (key) => {
      if (damaged && key.account === SECOND) throw new Error('damaged');
      return house.store.findUsage(key);
    },
  });
  const queue = (account: number, charged: bigint): void =>
    flush.correct('req_dead-', {
      ...RECORD,
      account: asAccountIndex(account),
      key: asKeyIndex(account),
      charged: asPicoUnits(charged),
      outcome: 'served',
    });
  queue(0, 1n);
  queue(1, 2n);
  queue(0, 4n);
  t.notOk(flush.drain());
  t.notOk(flush.drain());
  damaged = false;
  t.ok(flush.run());
  t.equal(house.store.findSpending(FIRST)?.spent, 5n);
  t.equal(house.store.findSpending(SECOND)?.spent, 2n);
  usageOf(house.store);
  await house.store.close();
});

void t.test('a hold is not spent', async (t) => {
  const house = openShop(t.testdir());
  const flush = flushOf(house, new ListLog());
  for (let round = 0; round < 3; round++) {
    t.equal(admitTo(house.ledger, asCallSlot(round), SECOND, 1_000, asPicoUnits(1n)), 'admitted');
    t.equal(flush.run(), true);
    t.match(house.store.findSpending(SECOND), { spent: 0n, dayCalls: round + 1 });
  }
  await house.store.close();
});

void t.test('a charge is on disk with the use of its key, however many keys were used', async (t) => {
  const house = openHouse(t.testdir());
  const { registry, store, clock, ledger } = house;
  registry.accounts.create({ name: 'a', planId: 'free', credit: asPicoUnits(1_000_000n) });
  const { index } = registry.keys.create({ account: 'a', name: 'k', limits: { callsPerDay: 9 } }).record;
  /** As many keys as a drain takes were used, and this one was not among those that it took. */
  class BusyKeyUses extends KeyUses {
    override drain(max: number): number {
      return max;
    }
  }
  const keyUses = new BusyKeyUses(house, clock);
  ledger.keys.takeDay(index, 9);
  serve(house, 0, 5n, { key: index });
  t.ok(flushOf(house, new ListLog(), store, { keyUses }).commit());
  t.match(store.findSpending(asAccountIndex(0)), { spent: 5n });
  t.match(store.keys.findUse(index), { dayCalls: 1 });
  await store.close();
});

void t.test(
  "a correction has the request id of its call, whatever the listener's successor begins with",
  (t) => {
    const house = openShop(t.testdir());
    t.teardown(() => house.store.close());
    const lines: string[] = [];
    const uncovered: { prefix: string; record: JournalRecord }[] = [];
    let prefix = 'req_a-';
    const flush = flushOf(house, new ListLog(), house.store, {
      requestPrefixOf: () => prefix,
      usageLog: {
        add: (prefix, { request, outcome }) => void lines.push(`${prefix}${request} ${outcome}`),
        write: () => undefined,
      },
      uncoveredCharges: {
        add: (prefix, record) => void uncovered.push({ prefix, record: { ...record } }),
      },
    });
    serve(house, 0, 10n, { request: 7, uncovered: asPicoUnits(5n) });
    flush.drain();
    prefix = 'req_b-';
    serve(house, 1, 10n, { request: 7, key: asKeyIndex(1) });
    flush.drain();
    const [left] = uncovered;
    flush.correct(left!.prefix, { ...left!.record, outcome: 'collected', uncovered: asPicoUnits(-5n) });
    flush.drain();
    t.same(lines, ['req_a-7 served', 'req_b-7 served', 'req_a-7 collected']);
    t.end();
  },
);
