/**
 * Money and places for calls that were granted: the law holds of what a process was granted, whoever takes
 * and gives back meanwhile.
 */
import t from 'tap';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asCallSlot, asKeyIndex, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Leases } from '#src/ledger/leases.js';
import { Ledger } from '#src/ledger/ledger.js';
import { dayNumberOf } from '#src/ledger/day.js';
import {
  admitTo,
  ACCOUNT,
  FakeClock,
  SLOT,
  interruptAt,
  stateOf,
  takenOfDay,
} from '../../fixtures/ledger-world.js';
import { addDay, addSlots, dayHeld, NOTHING_FLUSHED, slotsOf } from '../../fixtures/day-leases.js';

const KEY = asKeyIndex(3);
const MANY = 1_000;
const pico = asPicoUnits;

function createWorld() {
  const clock = new FakeClock();
  const buffers = createLedgerBuffers({ accountsMax: 2, callsInFlightMax: 4, keysMax: 4, shared: true });
  const low = { accounts: 0, keys: 0 };
  const ledger = new Ledger(buffers, clock, (kind) => {
    if (kind === 'account') low.accounts += 1;
    if (kind === 'key') low.keys += 1;
  });
  ledger.openAccount(ACCOUNT, stateOf());
  const leases = new Leases(buffers, clock);
  const today = dayNumberOf(clock.wallMs());
  return { clock, ledger, leases, low, today };
}

/** With calls of the day and places granted, so that money alone decides. */
function moneyWorld() {
  const world = createWorld();
  addDay(world.leases.accounts, ACCOUNT, world.today, MANY, 0);
  addSlots(world.leases, ACCOUNT, 4);
  const admit = (hold: bigint, slot = SLOT) => admitTo(world.ledger, slot, ACCOUNT, MANY, pico(hold));
  return { ...world, admit };
}

void t.test('what the store knows of an account is not what it may spend', (t) => {
  const { ledger, leases, admit } = moneyWorld();
  t.equal(ledger.balance.available(ACCOUNT), 0n, 'opened with a credit, and nothing is lent');
  t.equal(admit(1n), 'insufficient_quota');
  leases.addMoney(ACCOUNT, pico(100n), pico(0n));
  leases.balanceOf(ACCOUNT, NOTHING_FLUSHED).publish(900n, 0);
  t.equal(ledger.balance.balance(ACCOUNT), 1_000n, 'messages tell what the account has');
  t.equal(admit(101n), 'insufficient_quota', 'a hold takes what is here');
  t.equal(admit(100n), 'admitted');
  t.end();
});

void t.test('lent = available + held + spent, and what is given back is lent no more', (t) => {
  const { ledger, leases, admit } = moneyWorld();
  leases.addMoney(ACCOUNT, pico(100n), pico(0n));
  admit(60n);
  leases.balanceOf(ACCOUNT, NOTHING_FLUSHED).publish(900n, 0);
  t.equal(ledger.balance.balance(ACCOUNT), 940n);
  t.equal(leases.takeBackMoney(ACCOUNT, pico(1_000n)), 40n, 'what is held stays');
  t.equal(ledger.balance.balance(ACCOUNT), 940n, "what is given back is the account's all the same");
  t.match(ledger.snapshot(ACCOUNT), { credited: 60n, available: 0n, held: 60n, spent: 0n });
  ledger.settle(SLOT, pico(25n));
  t.match(ledger.snapshot(ACCOUNT), { credited: 60n, available: 35n, held: 0n, spent: 25n });
  t.equal(leases.takeBackMoney(ACCOUNT, pico(30n)), 30n);
  t.equal(ledger.snapshot(ACCOUNT).credited, 30n);
  t.end();
});

void t.test('a charge that is taken back is not spent again here', (t) => {
  const { ledger, leases, admit, today } = moneyWorld();
  leases.addMoney(ACCOUNT, pico(100n), pico(0n));
  admit(60n);
  const settlement = { ...ledger.settle(SLOT, pico(50n))! };
  t.same(settlement, { charged: 50n, uncovered: 0n });
  ledger.reverse(takenOfDay(ACCOUNT, today), settlement);
  t.match(
    ledger.snapshot(ACCOUNT),
    { available: 50n, held: 50n, spent: 0n },
    'held until the store has it no more',
  );
  leases.removeReversed(ACCOUNT, pico(50n));
  t.match(ledger.snapshot(ACCOUNT), { credited: 50n, available: 50n, held: 0n });
  t.end();
});

void t.test('who leaves little is the only one to say so', (t) => {
  const { leases, low, admit } = moneyWorld();
  leases.addMoney(ACCOUNT, pico(100n), pico(50n));
  admit(50n);
  t.equal(low.accounts, 0);
  admit(1n, asCallSlot(1));
  t.equal(low.accounts, 1);
  admit(1n, asCallSlot(2));
  t.equal(low.accounts, 1);
  t.end();
});

void t.test('held or taken back: each pico-unit goes to one', (t) => {
  for (let step = 0; ; step++) {
    const { ledger, leases, admit } = moneyWorld();
    leases.addMoney(ACCOUNT, pico(100n), pico(0n));
    let back = 0n;
    const reached = interruptAt(
      step,
      () => admit(80n),
      () => (back = leases.takeBackMoney(ACCOUNT, pico(70n))),
    );
    if (!reached) break;
    const { credited, available, held, spent } = ledger.snapshot(ACCOUNT);
    t.equal(credited, 100n - back, `step ${step}`);
    t.equal(available + held + spent, credited);
    t.ok(available >= 0n && (held === 0n || held === 80n));
  }
  t.end();
});

void t.test('places for calls: those that are taken are not taken back', (t) => {
  const { ledger, leases, low, today } = createWorld();
  addDay(leases.accounts, ACCOUNT, today, MANY, 0);
  const admit = (slot: number) => admitTo(ledger, asCallSlot(slot), ACCOUNT, MANY, pico(0n));
  t.equal(admit(0), 'too_many_in_flight');
  const slots = slotsOf(leases, ACCOUNT);
  const inUse = () => ledger.snapshot(ACCOUNT).callsInFlight;
  slots.add(0, 3n, 1n);
  t.equal(admit(0), 'admitted');
  t.equal(low.accounts, 0);
  t.equal(admit(1), 'admitted');
  t.equal(low.accounts, 1);
  t.equal(slots.takeBack(3n), 1n);
  t.equal(slots.read().granted, 2n);
  t.equal(admit(2), 'too_many_in_flight');
  ledger.settle(SLOT, pico(0n));
  t.equal(inUse(), 1);
  t.same(
    slots.read(),
    { period: 0, granted: 2n, used: 0n, available: 1n },
    'what is free again is still lent',
  );
  t.equal(slots.takeBack(1n), 1n);
  t.equal(slots.read().granted, 1n);
  t.end();
});

void t.test('a key with limits of its own has leases of its own', (t) => {
  const { ledger, leases, low, today, clock } = createWorld();
  ledger.keys.open(KEY, { requestsPerMinute: 5, callsPerDay: 7 });
  addDay(leases.accounts, ACCOUNT, today, MANY, 0);
  addSlots(leases, ACCOUNT, 4);
  const keyDay = { key: KEY, callsPerDay: 7 };
  const admit = () => admitTo(ledger, SLOT, ACCOUNT, MANY, pico(0n), MANY, keyDay);
  t.equal(admit(), 'key_daily_limit_exceeded', 'whatever its limit: nothing of it is lent');
  t.match(dayHeld(leases.accounts, ACCOUNT), { used: 0 }, 'and nothing is taken of the account');
  addDay(leases.keys, KEY, today, 2, 1);
  t.equal(admit(), 'admitted');
  t.match(dayHeld(leases.keys, KEY), { used: 1, unused: 1 });
  ledger.release(SLOT);
  t.match(dayHeld(leases.keys, KEY), { used: 0, unused: 2 }, 'what failed is given back');
  t.equal(low.keys, 1);

  t.match(ledger.keys.minute.take(KEY, 5), { admitted: false, mayAskForMore: true });
  leases.keys.addMinute(KEY, clock.monotonic + 1_000, 2, 0, clock.monotonic);
  t.match(ledger.keys.minute.take(KEY, 5), { admitted: true, remaining: 1 });
  t.equal(leases.accounts.minuteUnused(ACCOUNT), 0, 'the minute of the account is apart');
  t.match(
    ledger.keys.limitsOf(KEY),
    { requestsPerMinute: 5, callsPerDay: 7 },
    'leases leave the limits alone',
  );
  t.end();
});

void t.test('a key that is opened again holds nothing of the slot before', (t) => {
  const { ledger, leases, today, clock } = createWorld();
  ledger.keys.open(KEY, { requestsPerMinute: 5, callsPerDay: 7 });
  addDay(leases.keys, KEY, today, 3, 0);
  leases.keys.addMinute(KEY, clock.monotonic + 1_000, 2, 0, clock.monotonic);
  ledger.keys.open(KEY, { requestsPerMinute: 1, callsPerDay: undefined });
  t.match(dayHeld(leases.keys, KEY), { used: 0, unused: 0 });
  t.equal(leases.keys.minuteUnused(KEY), 0);
  t.match(ledger.keys.limitsOf(KEY), { requestsPerMinute: 1, callsPerDay: undefined });
  t.end();
});

void t.test('tokens of the minute that are left: here, and at the coordinator', (t) => {
  const { ledger, leases } = createWorld();
  ledger.keys.open(KEY, { tokensPerMinute: 500 });
  const left = () => ledger.tokenMinuteOf(ACCOUNT, NO_QUOTAS, KEY);
  t.match(left(), { limit: 500, remaining: 500 }, 'nobody was asked');
  const lease = leases.stockOf({ kind: 'key', index: KEY }, 'tokens_per_minute')!;
  lease.add(0, 100n, 0n);
  lease.publish(300n, 0);
  t.match(left(), { limit: 500, remaining: 400 }, 'others have 100');
  lease.takeBack(100n);
  lease.publish(0n, 0);
  t.match(left(), { limit: 500, remaining: 0 });
  t.end();
});
