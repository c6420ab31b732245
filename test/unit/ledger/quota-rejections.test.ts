/**
 * Which quota a call that the coordinator refused is told. How the refusals come about, with each quota of
 * each scope: test/unit/request/refusals.test.ts. What a rejection says of its quota: quotas.test.ts.
 */
import t from 'tap';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asAccountIndex, asCallSlot, asGroupIndex, asKeyIndex, asPicoUnits } from '#src/core/units.js';
import { CoordinatorClock } from '#src/ledger/coordinator-clock.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { Leases } from '#src/ledger/leases.js';
import type { QuotaRejection, RefusedQuota } from '#src/ledger/quota-rejections.js';
import { FakeClock, stateOf } from '../../fixtures/ledger-world.js';

const ACCOUNT = asAccountIndex(0);
const KEY = asKeyIndex(1);
/** The account is in LOWER, which is in UPPER; OTHER is no scope of the call. */
const LOWER = asGroupIndex(0);
const UPPER = asGroupIndex(1);
const OTHER = asGroupIndex(2);
const NEEDS = { hold: asPicoUnits(5_000n), tokens: 10 };

/** A process that shares limits; it was granted call slots of the account, and nothing else. */
function openWorld() {
  const capacity = { accountsMax: 1, callsInFlightMax: 2, keysMax: 2, groupsMax: 3, shared: true };
  const buffers = createLedgerBuffers(capacity);
  const clock = new CoordinatorClock(new FakeClock(), buffers.coordinatorAheadMs!);
  const ledger = new Ledger(buffers, clock);
  ledger.openAccount(ACCOUNT, stateOf());
  ledger.keys.open(KEY, { callsPerDay: 9, tokensPerDay: 100 });
  ledger.groups.open(UPPER, { tokensPerDay: 100 });
  ledger.groups.open(LOWER, { tokensPerDay: 100, callsPerMonth: 9 }, { parent: UPPER });
  ledger.setGroup(ACCOUNT, LOWER);
  new Leases(buffers, clock).stockOf({ kind: 'account', index: ACCOUNT }, 'calls_in_flight')!.add(0, 2n, 0n);
  const plan = { callsPerDay: 9, callsInFlightMax: 9, quotas: NO_QUOTAS };
  const scopes = { account: ACCOUNT, plan, key: KEY };
  const admit = () => ledger.admit(asCallSlot(0), scopes, NEEDS)!;
  const rejection = admit();
  const told = (refused: readonly RefusedQuota[] | undefined, of = rejection): QuotaRejection | undefined =>
    ledger.rejections.refusalOf(of, refused, scopes, NEEDS);
  return { ledger, admit, rejection, told };
}

const tokensOf = (kind: RefusedQuota['kind'], index: number): RefusedQuota => ({
  kind,
  index,
  quota: 'tokens_per_day',
});

void t.test('the rejection stays if nobody refused it, if it is refused, or if no lease can help', (t) => {
  const { rejection, told } = openWorld();
  t.match(rejection, { kind: 'key', quota: 'calls_per_day', mayAskForMore: true, canNeverFit: false });
  t.equal(told(undefined), rejection);
  t.equal(told([tokensOf('group', UPPER), rejection as RefusedQuota]), rejection);
  for (const hopeless of [
    { ...rejection, canNeverFit: true },
    { ...rejection, mayAskForMore: false },
  ])
    t.equal(told([tokensOf('group', UPPER)], hopeless), hopeless);
  t.end();
});

void t.test('of what was refused, the first in the order of admission is told', (t) => {
  const { told } = openWorld();
  const balance = { kind: 'account', index: ACCOUNT, quota: 'balance' } as const;
  const month = { kind: 'group', index: LOWER, quota: 'calls_per_month' } as const;
  const day = { kind: 'account', index: ACCOUNT, quota: 'calls_per_day' } as const;
  t.match(told([balance]), { kind: 'account', quota: 'balance', limit: NEEDS.hold });
  t.match(told([balance, month]), month);
  t.match(told([balance, month, tokensOf('group', UPPER)]), tokensOf('group', UPPER));
  t.match(told([tokensOf('group', UPPER), tokensOf('group', LOWER)]), tokensOf('group', LOWER));
  t.match(told([tokensOf('group', LOWER), tokensOf('key', KEY)]), tokensOf('key', KEY));
  t.match(told([tokensOf('key', KEY), day]), { ...day, limit: 9n });
  t.end();
});

void t.test('nothing is told of a quota that the call does not take of', (t) => {
  const { ledger, admit, told } = openWorld();
  t.equal(told([]), undefined);
  t.equal(told([tokensOf('group', OTHER)]), undefined);
  t.equal(told([tokensOf('account', ACCOUNT)]), undefined, 'its plan has no such limit');
  t.equal(told([{ kind: 'model', index: 0, quota: 'requests_per_minute' }]), undefined);
  ledger.groups.setLimits(UPPER, {});
  admit();
  t.equal(told([tokensOf('group', UPPER)]), undefined, 'the limit was removed since');
  t.end();
});
