import t from 'tap';
import { ACCOUNTS_MAX, CALLS_IN_FLIGHT_MAX, KEYS_MAX } from '#src/core/limits.js';
import * as layout from '#src/ledger/layout.js';
import * as reservation from '#src/ledger/reservation-layout.js';
import { SCOPES_MAX } from '#src/ledger/reservations.js';

void t.test('an account and a key take 256 bytes, a reservation 72, a dirty one of either one bit', (t) => {
  const buffers = layout.createLedgerBuffers({ accountsMax: 33, callsInFlightMax: 5, keysMax: 65 });
  t.equal(buffers.accounts.records.byteLength, 33 * 256);
  t.equal(buffers.reservations.byteLength, 5 * 72);
  t.equal(buffers.accounts.dirty.byteLength, 2 * 4);
  t.equal(buffers.keys.records.byteLength, 65 * 256);
  t.equal(buffers.keys.dirty.byteLength, 3 * 4);
  t.end();
});

/** The bytes that fields of so many bits take, with their first words counted in words of so many bits. */
const bytesOf = (bits: 32 | 64, ...fields: (number | readonly [first: number, words: number])[]): number[] =>
  fields.flatMap((field) => {
    const [first, words] = typeof field === 'number' ? [field, 1] : field;
    return Array.from({ length: (words * bits) / 8 }, (_, byte) => (first * bits) / 8 + byte);
  });

void t.test('no two fields of a record share a byte, and all are within it', (t) => {
  const starts = [layout.TICK_STARTS, layout.TICKS_KEPT] as const;
  const money = [layout.CREDITED, layout.AVAILABLE, layout.SPENT, layout.UNCOVERED];
  const limits = [layout.REQUESTS_PER_MINUTE, layout.CALLS_PER_DAY, layout.RECORD, layout.PARENT];
  const counted = bytesOf(64, layout.WINDOW, layout.DAY);
  const shared = [
    ...bytesOf(64, layout.MINUTE_FREE_MS, layout.MINUTE_REJECTED_UNTIL_MS),
    ...bytesOf(64, [layout.DAY_LEASE, layout.LEASE_WORDS]),
    ...bytesOf(32, layout.LOW_MINUTE, layout.MINUTE_REMAINING, layout.MINUTE_REJECTED_LIMIT),
  ];
  const sharedMoney = bytesOf(64, layout.LOW_MONEY, layout.MONEY_REMAINING, [
    layout.FLIGHT_LEASE,
    layout.LEASE_WORDS,
  ]);
  const quotas = layout.EXTENDED_QUOTAS.length;
  const quotaRecord = [
    ...bytesOf(64, [layout.LIMITS, quotas], [layout.STOCKS, quotas * layout.STOCK_WORDS]),
    ...bytesOf(32, layout.MASK, layout.LAST_STARTED_TICK),
  ];
  const account = [...counted, ...bytesOf(64, ...money), ...bytesOf(32, layout.STATUS)];
  const key = [...counted, ...bytesOf(32, ...limits)];
  const records: Record<string, readonly [bytes: number, fields: readonly number[]]> = {
    account: [256, [...account, ...bytesOf(32, starts)]],
    'shared account': [256, [...account, ...shared, ...sharedMoney]],
    key: [256, [...key, ...bytesOf(32, starts)]],
    'shared key': [256, [...key, ...shared]],
    'extra bytes of an account': [
      layout.EXTRA_WORDS64 * 8,
      [...bytesOf(64, layout.flightAt(0)), ...bytesOf(32, layout.groupAt(0), layout.accountRecordAt(0))],
    ],
    'quota record': [
      layout.QUOTA_BYTES,
      [...quotaRecord, ...bytesOf(64, [layout.TOKEN_TICK_STARTS, layout.TOKEN_TICKS_KEPT])],
    ],
    'shared quota record': [
      layout.QUOTA_BYTES,
      [...quotaRecord, ...bytesOf(64, [layout.LEASES, quotas * layout.LEASE_WORDS])],
    ],
    reservation: [
      reservation.RESERVATION_BYTES,
      [
        ...bytesOf(32, reservation.STATE, reservation.ACCOUNT, reservation.DAY_NUMBER),
        ...bytesOf(32, reservation.SCOPE_COUNT, reservation.CALL_KEY, reservation.CALL_MODEL),
        ...bytesOf(32, reservation.CALL_GROUP, reservation.CALENDAR_DAY, reservation.CALENDAR_MONTH),
        ...bytesOf(64, reservation.HOLD, reservation.TOKENS),
        ...Array.from({ length: SCOPES_MAX }, (_, scope) => reservation.TAKEN_MASKS * 4 + scope),
      ],
    ],
  };
  for (const [name, [bytes, fields]] of Object.entries(records)) {
    t.equal(new Set(fields).size, fields.length, name);
    t.ok(Math.max(...fields) < bytes, name);
  }
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
