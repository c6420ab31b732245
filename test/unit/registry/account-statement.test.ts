import t from 'tap';
import { asAccountIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { dayNumberOf } from '#src/ledger/day.js';
import { flushedStatement, liveStatement, sharedStatement } from '#src/registry/account-statement.js';

const nowMs = asWallMs(Date.UTC(2025, 0, 31, 12));
const today = dayNumberOf(nowMs);
const record = {
  index: asAccountIndex(0),
  id: 'acct_x',
  name: 'acme',
  planId: 'free',
  active: true,
  createdMs: asWallMs(1),
  credited: asPicoUnits(100n),
};

void t.test('live: the ledger’s words, and the day’s calls only if they are of today', (t) => {
  const snapshot = {
    credited: asPicoUnits(100n),
    available: asPicoUnits(60n),
    held: asPicoUnits(30n),
    spent: asPicoUnits(10n),
    uncovered: asPicoUnits(2n),
    minuteUsed: 5,
    dayNumber: today,
    dayCalls: 7,
    callsInFlight: 4,
  };
  const wanted = {
    record,
    available: 60n,
    held: 30n,
    spent: 10n,
    uncovered: 2n,
    callsToday: 7,
    requestsThisMinute: 5,
    callsInFlight: 4,
  };
  t.same(liveStatement(record, snapshot, nowMs), wanted);
  const yesterday = { ...snapshot, dayNumber: today - 1 };
  t.same(liveStatement(record, yesterday, nowMs), { ...wanted, callsToday: 0 });
  t.end();
});

void t.test('flushed: nothing is held, and counters age', (t) => {
  const fresh = {
    record,
    available: 100n,
    held: 0n,
    spent: 0n,
    uncovered: 0n,
    callsToday: 0,
    requestsThisMinute: 0,
    callsInFlight: 0,
  };
  t.same(flushedStatement(record, undefined, nowMs), fresh);
  const spending = {
    spent: asPicoUnits(40n),
    uncovered: asPicoUnits(3n),
    dayNumber: today,
    dayCalls: 8,
    minuteUsed: 6,
    takenMs: asWallMs(nowMs - 59_999),
  };
  const used = { ...fresh, available: 60n, spent: 40n, uncovered: 3n, callsToday: 8, requestsThisMinute: 6 };
  t.same(flushedStatement(record, spending, nowMs), used);
  t.same(flushedStatement(record, { ...spending, takenMs: asWallMs(nowMs - 60_000) }, nowMs), {
    ...used,
    requestsThisMinute: 0,
  });
  t.same(flushedStatement(record, { ...spending, dayNumber: today - 1 }, nowMs), { ...used, callsToday: 0 });
  t.end();
});

void t.test('shared: what calls use; of what is leased no more than there is', (t) => {
  const flushed = flushedStatement(record, undefined, nowMs);
  t.equal(sharedStatement(flushed, undefined, nowMs), flushed, 'not known');
  const use = {
    heldHere: asPicoUnits(20n),
    spent: asPicoUnits(50n),
    minute: { period: 0, used: 5n, held: 0n, leased: 3n, leasedByOthers: 0n },
    dayNumber: today,
    dayCalls: 7,
    callsInFlightHere: 2,
    leased: { minute: 3, dayCalls: 4, callsInFlight: 8, money: asPicoUnits(29n) },
    quotas: new Map(),
  };
  const wanted = {
    available: 30n,
    held: 20n,
    spent: 50n,
    callsToday: 7,
    requestsThisMinute: 5,
    callsInFlight: 2,
  };
  t.same(sharedStatement(flushed, use, nowMs), { ...flushed, ...wanted, leased: use.leased });
  // A charge of 15 is counted as held and as spent for a moment, and those who lent it have not heard of it.
  const twice = { ...use, spent: asPicoUnits(85n), leased: { ...use.leased, money: asPicoUnits(44n) } };
  t.match(sharedStatement(flushed, twice, nowMs), {
    available: 0n,
    held: 15n,
    spent: 85n,
    leased: { callsInFlight: 8, money: 0n },
  });
  t.match(sharedStatement(flushed, { ...use, dayNumber: today - 1 }, nowMs), {
    callsToday: 0,
    leased: { minute: 3, dayCalls: 0 },
  });
  t.end();
});

void t.test('a host whose copy lacks a credit that was spent already shows nothing below 0', (t) => {
  const spent = asPicoUnits(130n);
  const row = {
    spent,
    uncovered: asPicoUnits(0n),
    dayNumber: today,
    dayCalls: 1,
    minuteUsed: 1,
    takenMs: nowMs,
  };
  const flushed = flushedStatement(record, row, nowMs);
  t.match(flushed, { available: 0n, held: 0n, spent: 130n });
  const use = {
    heldHere: asPicoUnits(20n),
    spent,
    minute: { period: 0, used: 5n, held: 0n, leased: 3n, leasedByOthers: 0n },
    dayNumber: today,
    dayCalls: 7,
    callsInFlightHere: 2,
    leased: { minute: 3, dayCalls: 4, callsInFlight: 8, money: asPicoUnits(29n) },
    quotas: new Map(),
  };
  t.match(sharedStatement(flushed, use, nowMs), {
    available: 0n,
    held: 0n,
    spent: 130n,
    leased: { money: 0n },
  });
  t.end();
});
