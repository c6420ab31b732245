import t from 'tap';
import { ACCOUNTS_MAX, CALLS_IN_FLIGHT_MAX, KEYS_MAX } from '#src/core/limits.js';
import * as layout from '#src/ledger/layout.js';

void t.test('an account and a key take 256 bytes, a reservation 72, a dirty one of either one bit', (t) => {
  const buffers = layout.createLedgerBuffers({ accountsMax: 33, callsInFlightMax: 5, keysMax: 65 });
  t.equal(buffers.accounts.records.byteLength, 33 * 256);
  t.equal(buffers.reservations.byteLength, 5 * 72);
  t.equal(buffers.accounts.dirty.byteLength, 2 * 4);
  t.equal(buffers.keys.records.byteLength, 65 * 256);
  t.equal(buffers.keys.dirty.byteLength, 3 * 4);
  t.end();
});

void t.test('no two fields of an account, a key or a reservation share a byte', (t) => {
  const span = (word: number, bytes: number): number[] =>
    Array.from({ length: bytes }, (_, n) => word * bytes + n);
  const wide = [layout.WINDOW, layout.DAY, layout.CREDITED, layout.AVAILABLE, layout.SPENT, layout.UNCOVERED];
  const starts = Array.from({ length: layout.TICKS_KEPT }, (_, n) => layout.TICK_STARTS + n);
  const account = [
    ...wide.flatMap((word) => span(word, 8)),
    ...[layout.STATUS, ...starts].flatMap((word) => span(word, 4)),
  ];
  t.equal(new Set(account).size, account.length);
  t.equal(Math.max(...account) + 1, layout.COUNTED_WORDS64 * 8);
  const key = [
    ...[layout.WINDOW, layout.DAY].flatMap((word) => span(word, 8)),
    ...[layout.REQUESTS_PER_MINUTE, layout.CALLS_PER_DAY, layout.RECORD, layout.PARENT, ...starts].flatMap(
      (word) => span(word, 4),
    ),
  ];
  t.equal(new Set(key).size, key.length);
  const reservation = [
    ...[
      ...[layout.STATE, layout.ACCOUNT, layout.DAY_NUMBER, layout.SCOPE_COUNT],
      ...[layout.CALL_KEY, layout.CALL_MODEL, layout.CALL_GROUP, layout.CALENDAR_DAY, layout.CALENDAR_MONTH],
    ].flatMap((word) => span(word, 4)),
    ...[layout.HOLD, layout.TOKENS].flatMap((word) => span(word, 8)),
    ...Array.from({ length: 7 }, (_, n) => layout.TAKEN_MASKS * 4 + n),
  ];
  t.equal(new Set(reservation).size, reservation.length);
  t.ok(Math.max(...reservation) < layout.RESERVATION_WORDS32 * 4);
  t.end();
});

void t.test('the buffers are a plain record that keeps its memory when cloned', (t) => {
  const buffers = layout.createLedgerBuffers({ accountsMax: 2, callsInFlightMax: 1 });
  const cloned = structuredClone(buffers);
  layout.openLedgerViews(cloned).accounts.records64[3] = 7n;
  t.equal(layout.openLedgerViews(buffers).accounts.records64[3], 7n);
  t.equal(cloned.accountsMax, 2);
  t.end();
});

void t.test('capacities have bounds', (t) => {
  const create = (accountsMax: number, callsInFlightMax: number) => () =>
    layout.createLedgerBuffers({ accountsMax, callsInFlightMax });
  t.throws(create(0, 1), /accountsMax/);
  t.throws(create(ACCOUNTS_MAX + 1, 1), /accountsMax/);
  t.throws(create(1, 0), /callsInFlightMax/);
  t.throws(create(1, CALLS_IN_FLIGHT_MAX + 1), /callsInFlightMax/);
  t.doesNotThrow(create(ACCOUNTS_MAX, CALLS_IN_FLIGHT_MAX));
  const withKeys = (keysMax: number) => () =>
    layout.createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 1, keysMax });
  t.throws(withKeys(-1), /keysMax/);
  t.throws(withKeys(KEYS_MAX + 1), /keysMax/);
  t.doesNotThrow(withKeys(KEYS_MAX), '4 GiB of addresses, of which no page is touched');
  t.end();
});
