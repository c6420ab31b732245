/**
 * What an account has spent is read after what its leases have unused, so a charge that is flushed between
 * the two is counted twice for a moment and never not at all. A flush is placed before and after each read of
 * an exchange. So that the test shows that it would see the other order, it also plays that one, by a
 * coordinator that reads what was spent before the ask is made.
 */
import { randomUUID } from 'node:crypto';
import { mkdtempSync } from 'node:fs';
import t, { type Test } from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { Calendar } from '#src/core/calendar.js';
import { asAccountIndex, asCallSlot, asPicoUnits, asWallMs, type PicoUnits } from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Leases } from '#src/ledger/leases.js';
import { Ledger } from '#src/ledger/ledger.js';
import type { SpendingRecord } from '#src/registry/account-record.js';
import type { Coordinator, VersionedTotal } from '#src/sharing/coordinator.js';
import { openLeaseFile } from '#src/sharing/lease-file.js';
import { LeaseManager } from '#src/sharing/lease-manager.js';
import { SYSTEM_TIMERS } from '#src/sharing/lease-timers.js';
import { LmdbCoordinator } from '#src/sharing/lmdb-coordinator.js';
import type { MoneyWords } from '#src/ledger/leased-stocks.js';
import { Store } from '#src/store/store.js';
import { admitTo } from '../../fixtures/ledger-world.js';
import { identity } from '../../support/authority-conformance.js';
import { NO_REDIS, startRedis } from '../../support/redis-server.js';
import { TestHost, ValkeyWorld } from '../../support/valkey-world.js';
import { FakeLog } from '../../fixtures/upstream-server.js';
import { NOTHING_FLUSHED } from '../../fixtures/day-leases.js';

const ACCOUNT = asAccountIndex(0);
const SCOPE = 'acct_order';
const CREDITED = asPicoUnits(100n);
const CHARGED = asPicoUnits(40n);
const FREE = asPicoUnits(CREDITED - CHARGED);
const LIMITS = { callsPerDay: 1_000, callsInFlight: 8 };
/** More than there are in one exchange. */
const READS_MAX = 20;

const REFUSED = { refused: [{ kind: 'account', index: ACCOUNT, quota: 'balance' }] };

/** What was spent, as the store has it. `onRead` is called before and after each read. */
interface Side {
  readonly coordinator: Coordinator;
  readonly flush: (amount: PicoUnits) => void;
  /** The coordinator sees what was spent by now, until the next call of `release`. */
  readonly freeze: () => void;
  readonly release: () => void;
  readonly close: () => Promise<void>;
}
type Connect = (onRead: () => void) => Promise<Side>;

/** Plays one account with the flush at the moment `at`; how its calls of all and of more than all ended. */
async function play(connect: Connect, at: number, isSwapped: boolean) {
  let moments = -1;
  let isFlushed = false as boolean;
  const onRead = (): void => {
    if (moments < 0) return;
    if (moments++ !== at) return;
    isFlushed = true;
    side.flush(CHARGED);
  };
  const side = await connect(onRead);
  const clock = new SystemClock();
  const buffers = createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 8, shared: true });
  const leases = new Leases(buffers, clock);
  const ledger = new Ledger(buffers, clock, () => undefined);
  const real = leases.balanceOf(ACCOUNT, {
    ...NOTHING_FLUSHED,
    flushedOf: () => (isFlushed ? CHARGED : asPicoUnits(0n)),
  });
  const words: MoneyWords = {
    ...real,
    read: () => {
      if (isSwapped && moments >= 0) side.freeze();
      onRead();
      const held = real.read();
      onRead();
      return held;
    },
  };
  const manager = new LeaseManager({
    coordinator: side.coordinator,
    clock,
    timers: SYSTEM_TIMERS,
    random: () => 0.5,
    calendar: new Calendar(),
    addressOf: ({ kind, index }) => ({
      ...{ kind, index, scopeId: SCOPE, minute: leases.accounts },
      wordsOf: (name) => leases.stockOf({ kind: 'account', index: ACCOUNT }, name),
      money: words,
      limits: () => LIMITS,
    }),
    onCalendar: () => undefined,
    onContact: () => undefined,
  });
  await manager.start();
  const ask = (hold: PicoUnits) =>
    manager.wait([{ kind: 'account', index: ACCOUNT }], { kind: 'admission', hold });
  const slot = asCallSlot(0);
  if ((await ask(CHARGED)) !== 'try') throw new Error('the first call is granted what it holds');
  if (admitTo(ledger, slot, ACCOUNT, LIMITS.callsPerDay, CHARGED, LIMITS.callsInFlight) !== 'admitted')
    throw new Error('it is admitted');
  ledger.settle(slot, CHARGED, 0);
  moments = 0;
  const tooMuch = await ask(asPicoUnits(FREE + 1n));
  side.release();
  moments = -1;
  if (!isFlushed) {
    isFlushed = true;
    side.flush(CHARGED);
  }
  const all = tooMuch === 'try' ? undefined : await ask(FREE);
  await manager.close();
  await side.close();
  return { tooMuch, all };
}

async function check(t: Test, connect: Connect): Promise<void> {
  let overspent = 0;
  for (let at = 0; at < READS_MAX; at++) {
    t.same(await play(connect, at, false), { tooMuch: REFUSED, all: 'try' }, `flushed at moment ${at}`);
    if ((await play(connect, at, true)).tooMuch === 'try') overspent += 1;
  }
  t.ok(overspent > 0, 'read the other way round, more is granted than there is');
}

void t.test('processes of one host', async (t) => {
  const folder = t.testdir();
  const connect: Connect = (onRead) => {
    const path = mkdtempSync(`${folder}/data-`);
    const store = new Store(path);
    const file = openLeaseFile(path);
    const index = store.freeAccountIndex();
    const record = { index, id: SCOPE, name: SCOPE, planId: 'free', active: true, createdMs: asWallMs(1) };
    store.commit(() => store.putAccount({ ...record, credited: CREDITED }));
    let frozen: { readonly spending: SpendingRecord | undefined } | undefined;
    const seen = {
      ...{ keys: store.keys, groups: store.groups, quotaUses: store.quotaUses },
      findAccount: store.findAccount.bind(store),
      refresh: () => {
        onRead();
        store.refresh();
      },
      findSpending: () => {
        const spending = frozen === undefined ? store.findSpending(index) : frozen.spending;
        onRead();
        return spending;
      },
    };
    const node = { ...identity('this'), incarnation: randomUUID() };
    return Promise.resolve({
      coordinator: new LmdbCoordinator({
        node,
        file,
        store: seen,
        clock: new SystemClock(),
        calendar: new Calendar(),
        log: new FakeLog(),
      }),
      flush: (amount) => {
        const rest = {
          uncovered: asPicoUnits(0n),
          dayNumber: 0,
          dayCalls: 0,
          minuteUsed: 0,
          takenMs: asWallMs(0),
        };
        const spendings = new Map([[index, { ...rest, spent: amount }]]);
        store.commit(() => store.putAccounting({ spendings, usages: [] }));
      },
      freeze: () => (frozen ??= { spending: store.findSpending(index) }),
      release: () => (frozen = undefined),
      close: async () => {
        await file.environment.close();
        await store.close();
      },
    });
  };
  await check(t, connect);
});

void t.test('hosts', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const connect: Connect = async (onRead) => {
    await server.command('FLUSHALL');
    const world = new ValkeyWorld(() => server.url);
    const host = new TestHost();
    let frozen: { readonly spent: VersionedTotal | undefined } | undefined;
    const spentOf = (scope: string): VersionedTotal | undefined => {
      onRead();
      const spent = frozen === undefined ? host.books.spentOf(scope) : frozen.spent;
      onRead();
      return spent;
    };
    const creditedOf = () => ({ totalPicoUnits: CREDITED, version: 1 });
    const coordinator = await world.connect(identity('host'), host, {
      accounting: { ...host.books, spentOf, creditedOf },
    });
    return {
      coordinator,
      flush: (amount) => host.spend(SCOPE, amount),
      freeze: () => (frozen ??= { spent: host.books.spentOf(SCOPE) }),
      release: () => (frozen = undefined),
      close: () => {
        world.close();
        return Promise.resolve();
      },
    };
  };
  await check(t, connect);
});
