/** Statements of shared accounts, and money that is taken out of them while others spend it. */
import t, { type Test } from 'tap';
import { Calendar } from '#src/core/calendar.js';
import { asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { AccountDirectory } from '#src/registry/account-directory.js';
import type { KeyRecord } from '#src/registry/key-record.js';
import type { KnownUses } from '#src/registry/account-statement.js';
import { SharedUses } from '#src/registry/shared-uses.js';
import { Registry } from '#src/registry/registry.js';
import { type Coordinator, CoordinatorLost } from '#src/sharing/coordinator.js';
import { type CallsUse, useOf } from '#src/sharing/sharing-stats.js';
import { DebitService, type Debit } from '#src/sharing/debits.js';
import { MemoryCoordinator } from '../../support/memory-coordinator.js';
import { SharedRegistry, commitHere, type CommitChange } from '#src/sharing/shared-registry.js';
import type { WrittenRow } from '#src/store/row-recorder.js';
import { Store } from '#src/store/store.js';
import { CATALOG, StoppedClock, TESTER } from '../store/support.js';
import { exchangePlain, type PlainAsk } from '../../support/plain-asks.js';

interface SharedHouse {
  readonly store: Store;
  readonly desk: SharedRegistry;
  readonly follows: { count: number };
  /** Another process, which serves calls. */
  readonly other: Coordinator;
  /** The service's own ends. */
  readonly ends: readonly Coordinator[];
  /** What calls of this host use. */
  readonly calls: CallsUse[];
  /** How often a change was run. */
  runs: number;
  /** Runs before the next commit for which money was taken. */
  meanwhile: (() => void) | undefined;
  /** Accounts whose money this process was to give back. */
  readonly recalled: Set<string>;
}

async function openSharedHouse(t: Test): Promise<SharedHouse> {
  const store = new Store(t.testdir());
  const clock = new StoppedClock();
  const authority = new MemoryCoordinator(clock);
  const connect = (slot: number): Coordinator =>
    authority.connect({ host: 'h', slot, incarnation: String(slot) });
  const [looking, debiting, other] = [connect(0), connect(1), connect(2)];
  const uses = new SharedUses(store, new AccountDirectory());
  const registry = new Registry({
    store,
    catalog: CATALOG,
    clock,
    accountsMax: 10,
    groupsMax: 10,
    keysMax: 10,
    live: uses,
  });
  const follows = { count: 0 };
  const here = commitHere(store, () => follows.count++);
  // As the coordinator of one host, which reads the store.
  const commit: CommitChange = async (work, check) => {
    const made = await here(() => {
      house.runs++;
      return work();
    }, check);
    for (const { id, credited } of store.accounts()) authority.setCredited(id, credited);
    return made;
  };
  const recalled = new Set<string>();
  class MeanwhileDebits extends DebitService {
    override during<Result>(debits: readonly Debit[], work: () => Promise<Result>): Promise<Result> {
      if (debits.length === 0) return work();
      return super.during(debits, () => {
        house.meanwhile?.();
        house.meanwhile = undefined;
        return work();
      });
    }
  }
  const debits = new MeanwhileDebits(debiting, (accountId) => recalled.add(accountId));
  const calls: CallsUse[] = [];
  const desk = new SharedRegistry({
    store,
    registry,
    uses,
    coordinator: looking,
    debits,
    commit,
    confirm: () => Promise.resolve(0),
    flushAll: () => Promise.resolve(),
    callsUses: () => Promise.resolve(calls),
    onChange: () => undefined,
  });
  const house: SharedHouse = {
    store,
    desk,
    follows,
    other,
    ends: [looking, debiting],
    calls,
    runs: 0,
    meanwhile: undefined,
    recalled,
  };
  await Promise.all([looking, other].map((end) => end.join()));
  t.teardown(() => store.close());
  return house;
}

const units = (amount: number): ReturnType<typeof asPicoUnits> => asPicoUnits(BigInt(amount));

function moneyAsk(subject: string, outstanding: number, most: number): PlainAsk {
  const limits = { requestsPerMinute: 60, callsPerDay: 100, callsInFlight: 4 };
  return {
    scope: subject,
    limits,
    minute: { least: 1, most: 3, forMs: 1_000, returned: [] },
    money: { outstanding: units(outstanding), least: units(most), most: units(most) },
  };
}

void t.test('a statement shows what all processes use', async (t) => {
  const { desk, other, follows, calls } = await openSharedHouse(t);
  const { record } = await desk.change(TESTER, ({ accounts }) =>
    accounts.create({ name: 'acme', planId: 'free', credit: units(100) }),
  );
  t.equal(follows.count, 1, 'in force here at once');
  await exchangePlain(other, [moneyAsk(record.id, 0, 30)]);
  const leased = { minute: 3, callsInFlight: 0, money: 30n };
  const atRest = await desk.read(({ accounts }) => accounts.find('acme'));
  t.match(atRest, { available: 100n, held: 0n, spent: 0n, requestsThisMinute: 0, callsInFlight: 0, leased });
  const use = (slots: bigint, money: bigint, scope = record.id): CallsUse => {
    const stock = (granted: bigint) => ({ period: 0, granted, used: 0n, available: 0n });
    const minute = { unused: 1, heardNumber: 1 };
    return { scope, slot: 0, minute, stocks: { calls_in_flight: stock(slots), balance: stock(money) } };
  };
  calls.push(use(2n, 20n), use(1n, 7n, 'acct_other'), { ...use(1n, 4n), slot: 2 });
  const seen = await desk.read(({ accounts }) => accounts.find('acme'));
  t.match(seen, { available: 76n, held: 24n, spent: 0n, callsInFlight: 3, requestsThisMinute: 2 });
  t.match(seen.leased, { money: 6n, minute: 1 });
  const listed = await desk.read(({ accounts }) => accounts.list(0, 10).items);
  t.same(listed, [seen]);
  const moved = await desk.change(TESTER, ({ accounts }) => accounts.setPlan('acme', 'paid'));
  t.match(moved, { available: 76n, held: 24n, callsInFlight: 3, record: { planId: 'paid' } });
  await t.rejects(
    desk.change(TESTER, ({ accounts }) =>
      accounts.create({ name: 'acme', planId: 'free', credit: units(0) }),
    ),
    { code: 'invalid_parameters', message: /^name must be unique/ },
  );
  t.equal(follows.count, 2);
});

void t.test('processes are asked before the coordinator, and after their flush', async (t) => {
  const order: string[] = [];
  const asked = <Reply>(name: string, reply: Reply): Promise<Reply> => {
    order.push(name);
    return Promise.resolve(reply);
  };
  const unused = (): never => t.fail('a read changes nothing') as never;
  const registry = new SharedRegistry({
    store: { shared: {} as Store['shared'] },
    registry: {} as Registry,
    uses: {
      show: (knownUses: ReadonlyMap<string, unknown>, work: () => unknown) => ({
        result: work(),
        missed: new Set(order.length === 0 && knownUses.size === 0 ? ['acct_1'] : []),
      }),
    } as unknown as SharedUses,
    coordinator: { view: () => asked('coordinator', []) },
    debits: {} as DebitService,
    commit: unused,
    confirm: unused,
    onChange: unused,
    flushAll: () => asked('flush', undefined),
    callsUses: () => asked('processes', []),
  });
  await registry.read(() => undefined);
  t.same(order, ['flush', 'processes', 'coordinator']);
});

void t.test('an error after the commit is not told as a change that was not made', async (t) => {
  let runs = 0;
  const registry = new SharedRegistry({
    store: { shared: { feed: { newest: () => 1 } } as unknown as Store['shared'] },
    registry: {
      runAs: (_cause: unknown, work: () => unknown) => ({ result: work(), change: undefined }),
    } as unknown as Registry,
    uses: {
      show: (_uses: unknown, work: () => unknown) => ({ result: work(), missed: new Set() }),
    } as unknown as SharedUses,
    coordinator: { view: () => Promise.resolve([]) },
    debits: { during: (_debits: unknown, change: () => unknown) => change() } as unknown as DebitService,
    commit: (work, check) => {
      const result = work();
      check([{ table: 'keys', key: 'key_1', value: {}, former: undefined }] as unknown as WrittenRow[]);
      return Promise.resolve(result);
    },
    confirm: () => Promise.reject(new CoordinatorLost('deadline', 'no reply')),
    onChange: () => undefined,
    flushAll: () => Promise.resolve(),
    callsUses: () => Promise.resolve([]),
  });
  await t.rejects(
    registry.change(TESTER, () => runs++),
    CoordinatorLost,
  );
  t.equal(runs, 1);
});

void t.test('work that would go on without the uses is a bug', (t) => {
  const store = new Store(t.testdir());
  const uses = new SharedUses(store, new AccountDirectory());
  const show = <Result>(work: () => Result) => uses.show(new Map(), work);
  t.throws(() => show(() => show(() => 1)), /does not call `show`/);
  t.throws(() => show(() => Promise.resolve(1)), /is done when it returns/);
  t.equal(show(() => 1).result, 1, 'neither leaves anything behind');
  return store.close();
});

void t.test('a debit takes what nobody else holds, and no more', async (t) => {
  const { desk, other, store, recalled } = await openSharedHouse(t);
  const { record } = await desk.change(TESTER, ({ accounts }) =>
    accounts.create({ name: 'acme', planId: 'free', credit: units(100) }),
  );
  const { id } = record;
  await exchangePlain(other, [moneyAsk(id, 0, 30)]);
  // Who was granted money may hold it for a call by the time of the debit: nothing of it is taken, whatever
  // is told of calls.
  t.match(await desk.read(({ accounts }) => accounts.find('acme')), {
    available: 100n,
    leased: { money: 30n },
  });
  await t.rejects(
    desk.change(TESTER, ({ credits }) => credits.add('acme', units(-71), 'too much')),
    {
      code: 'invalid_parameters',
      message:
        /^amount must not take more than the balance of 0\.00000000007: .* within 24 s; try again then$/,
    },
  );
  t.same([...recalled], [id], 'this process was to give back what lies idle');
  await t.rejects(
    desk.change(TESTER, ({ credits }) => credits.add('acme', units(-101), 'more than there is')),
    { code: 'invalid_parameters', message: 'amount must not take more than the balance of 0.0000000001' },
  );
  t.equal(store.findAccount(id)!.credited, 100n);
  const { answers } = await exchangePlain(other, [moneyAsk(id, 30, 0)]);
  t.equal(answers[0]!.money!.remaining, 70n, 'and nothing is kept of what was not taken');

  const debited = await desk.change(TESTER, ({ credits }) => credits.add('acme', units(-60), 'back'));
  t.match(debited, { available: 40n, held: 0n, leased: { money: 30n }, record: { credited: 40n } });
  const after = await exchangePlain(other, [moneyAsk(id, 30, 11)]);
  t.match(after.answers[0]!.money, { granted: 0n, remaining: 10n });

  // Idle leases come back while the debit waits for them.
  const waiting = desk.change(TESTER, ({ credits }) => credits.add('acme', units(-40), 'all'));
  await new Promise((resolve) => setTimeout(resolve, 50));
  await exchangePlain(other, [moneyAsk(id, 0, 0)]);
  t.match(await waiting, { available: 0n, held: 0n, record: { credited: 0n } });
});

void t.test('while a debit is committed nobody else is lent the money', async (t) => {
  const house = await openSharedHouse(t);
  const { desk, other } = house;
  const { record } = await desk.change(TESTER, ({ accounts }) =>
    accounts.create({ name: 'acme', planId: 'free', credit: units(100) }),
  );
  let lent: Promise<bigint> | undefined;
  house.meanwhile = () => {
    lent = exchangePlain(other, [moneyAsk(record.id, 0, 41)]).then(
      ({ answers }) => answers[0]!.money!.granted,
    );
  };
  await desk.change(TESTER, ({ credits }) => credits.add('acme', units(-60), ''));
  t.equal(await lent, 0n);
});

void t.test('what was asked twice is done once, also where nothing is left to take', async (t) => {
  const { desk, store } = await openSharedHouse(t);
  await desk.change(TESTER, ({ accounts }) =>
    accounts.create({ name: 'acme', planId: 'free', credit: units(100) }),
  );
  const request = { account: 'acme', amount: units(-100), note: '', idempotencyKey: 'one' };
  const debit = () =>
    desk.change(TESTER, ({ credits }) => credits.addOnce(request, ({ available }) => `${available}`));
  t.same(await Promise.all([debit(), debit()]), ['0', '0']);
  t.equal(await debit(), '0');
  t.equal(store.findAccountByName('acme')!.credited, 0n);
});

void t.test('another process changes what the draft had seen', async (t) => {
  const house = await openSharedHouse(t);
  const { desk, store } = house;
  await desk.change(TESTER, ({ accounts }) =>
    accounts.create({ name: 'acme', planId: 'free', credit: units(100) }),
  );
  const add = (amount: number) =>
    desk.change(TESTER, ({ credits }) =>
      credits.addOnce(
        { account: 'acme', amount: units(amount), note: '', idempotencyKey: 'once' },
        ({ record }) => `${record.credited}`,
      ),
    );
  house.meanwhile = () => {
    const { id } = store.findAccountByName('acme')!;
    store.commit(() =>
      store.putCreditRequest(store.findAccount(id)!.index, 'once', {
        amount: units(-10),
        note: '',
        response: 'first',
      }),
    );
  };
  t.equal(await add(-10), 'first', 'the answer of who was quicker');
  t.equal(store.findAccountByName('acme')!.credited, 100n);
});

void t.test('an authority that is lost keeps debits back, and nothing else', async (t) => {
  const { desk, ends, store } = await openSharedHouse(t);
  await desk.change(TESTER, ({ accounts }) =>
    accounts.create({ name: 'acme', planId: 'free', credit: units(100) }),
  );
  for (const end of ends) await end.close();
  t.match(await desk.read(({ accounts }) => accounts.find('acme')), { available: 100n });
  await desk.change(TESTER, ({ credits }) => credits.add('acme', units(5), ''));
  await t.rejects(
    desk.change(TESTER, ({ credits }) => credits.add('acme', units(-5), '')),
    { code: 'overloaded', message: /^Nothing was changed: the coordinator/ },
  );
  t.equal(store.findAccountByName('acme')!.credited, 105n);
});

void t.test('a rotated key has what all processes were lent of the one before', async (t) => {
  const { store, desk, other } = await openSharedHouse(t);
  const old = await desk.change(TESTER, ({ accounts, keys }) => {
    accounts.create({ name: 'acme', planId: 'free', credit: units(0) });
    return keys.create({
      account: 'acme',
      name: 'laptop',
      limits: { requestsPerMinute: 10, callsPerDay: 20 },
    }).record;
  });
  const { answers } = await exchangePlain(other, [
    {
      scope: old.id,
      limits: { requestsPerMinute: 10, callsPerDay: 20, callsInFlight: 0 },
      minute: { least: 3, most: 3, forMs: 1_000, returned: [] },
      day: { dayNumber: 0, used: 0, unused: 0, least: 5, most: 5 },
    },
  ]);
  const { dayNumber } = answers[0]!.day!;
  const inherited = { minuteUsed: 3, dayNumber, dayCalls: 5 };
  const { record } = await desk.change(TESTER, ({ keys }) => keys.rotate('laptop', 0));
  t.match(store.keys.find(record.id), { limits: { requestsPerMinute: 10, callsPerDay: 20 }, inherited });
  t.match(store.keys.findUse(record.index), { ...inherited, lastUsedSeconds: undefined });
  // Nobody has asked for the second one yet, so nobody but its record knows.
  const { record: third } = await desk.change(TESTER, ({ keys }) => keys.rotate('laptop', 0));
  t.match(store.keys.find(third.id), { inherited });
});

void t.test('a key that is rotated twice has the month that the first has used', async (t) => {
  const { store, desk, other, ends } = await openSharedHouse(t);
  const limits = { requestsPerMinute: 10, callsPerMonth: 900 };
  const old = await desk.change(TESTER, ({ accounts, keys }) => {
    accounts.create({ name: 'acme', planId: 'free', credit: units(0) });
    return keys.create({ account: 'acme', name: 'laptop', limits }).record;
  });
  const monthNumber = new Calendar().monthAt(new StoppedClock().wallMs()).number;
  const month = { limit: 900n, period: monthNumber, used: 0n, unused: 0n, least: 900n, most: 900n };
  await exchangePlain(other, [{ scope: old.id, more: { calls_per_month: month } }]);
  const rotated = async (): Promise<KeyRecord> => {
    const { record } = await desk.change(TESTER, ({ keys }) => keys.rotate('laptop', 0));
    return store.keys.find(record.id)!;
  };
  const inherited = { quotas: { monthNumber, callsPerMonth: 900 } };
  t.match(await rotated(), { inherited });
  const third = await rotated();
  t.match(third, { inherited }, 'nobody has asked for the second one');
  // What was flushed of the third one travels to no other host; its record does.
  const elsewhere = new SharedUses(store, new AccountDirectory());
  const slot = asKeyIndex(9);
  const minute = { weighing: 0, unexpired: 0 };
  const unasked = useOf({ scope: third.id, minute, stocks: {}, processes: [], spent: asPicoUnits(0n) });
  const countsIn = (known: KnownUses): unknown =>
    elsewhere.show(known, () => elsewhere.useForSuccessor({ ...third, index: slot }, asWallMs(0))).result;
  t.match(countsIn(new Map([[third.id, unasked]])), inherited, 'the coordinator does not know it');
  t.same(countsIn(new Map()), third.inherited, 'the coordinator is lost, and the store has nothing');
  for (const end of ends) await end.close();
  t.match(await rotated(), { inherited }, 'the coordinator is lost');
});

void t.test('a change that shows no use and takes no money runs once', async (t) => {
  const house = await openSharedHouse(t);
  const { desk, follows } = house;
  await desk.change(TESTER, ({ accounts, keys }) => {
    accounts.create({ name: 'acme', planId: 'free', credit: units(9) });
    return keys.create({ account: 'acme', name: 'laptop' });
  });
  await desk.change(TESTER, ({ keys }) => keys.setActive('laptop', false));
  t.same([house.runs, follows.count], [2, 2]);
  await desk.change(TESTER, ({ accounts }) => accounts.setPlan('acme', 'paid'));
  t.same([house.runs, follows.count], [4, 3], 'a statement wants its use asked for');
  await desk.change(TESTER, ({ credits }) => credits.add('acme', units(-4), 'back'));
  t.same([house.runs, follows.count], [6, 4], 'and so does a debit its money');
});

void t.test('a rotated key without limits inherits nothing', async (t) => {
  const { store, desk } = await openSharedHouse(t);
  await desk.change(TESTER, ({ accounts, keys }) => {
    accounts.create({ name: 'acme', planId: 'free', credit: units(0) });
    return keys.create({ account: 'acme', name: 'laptop' });
  });
  const { record } = await desk.change(TESTER, ({ keys }) => keys.rotate('laptop', 0));
  t.equal(store.keys.find(record.id)!.inherited, undefined);
  t.equal(store.keys.findUse(record.index), undefined);
});
