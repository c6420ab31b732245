/**
 * All quotas of all scopes through the ledger, against a model: trees of groups at random, calls of several
 * threads, days and months that pass.
 */
import t from 'tap';
import { Calendar } from '#src/core/calendar.js';
import { NO_QUOTAS, QUOTA_FIELDS, QUOTA_KINDS, type QuotaLimits } from '#src/core/quotas.js';
import {
  asAccountIndex,
  asCallSlot,
  asGroupIndex,
  asKeyIndex,
  asModelScopeIndex,
  asPicoUnits,
} from '#src/core/units.js';
import {
  createLedgerBuffers,
  EXTENDED_QUOTAS,
  openLedgerViews,
  quotaNumberOf,
  type Scope,
  SCRATCH_AREAS,
  SCRATCH_USED,
} from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import type { QuotaRecords } from '#src/ledger/quota-records.js';
import { FakeClock, interruptAt, stateOf } from '../../fixtures/ledger-world.js';
import { newSeed, randomBelow } from '../../support/random.js';

const ACCOUNTS = 4;
const GROUPS = 6;
const SLOTS = 12;
const DAY_MS = 86_400_000;
const NANO = 1_000n;

function createWorld(threads = 1, hasModule = true): { clock: FakeClock; ledgers: Ledger[] } {
  const clock = new FakeClock();
  const buffers = createLedgerBuffers({
    accountsMax: ACCOUNTS,
    callsInFlightMax: SLOTS,
    keysMax: 4,
    groupsMax: GROUPS,
  });
  if (!hasModule) openLedgerViews(buffers).quotas.used[SCRATCH_USED] = SCRATCH_AREAS;
  const ledgers = Array.from({ length: threads }, () => new Ledger(buffers, clock));
  for (let account = 0; account < ACCOUNTS; account++) {
    ledgers[0]!.openAccount(asAccountIndex(account), stateOf({ credited: asPicoUnits(10n ** 15n) }));
  }
  return { clock, ledgers };
}

const planOf = (quotas: Partial<QuotaLimits>) => ({
  callsPerDay: 1_000_000,
  callsInFlightMax: 1_000,
  quotas: { ...NO_QUOTAS, ...quotas },
});
const account = asAccountIndex(0);
const NONE = { hold: asPicoUnits(0n), tokens: 0 };

void t.test('five calls at once against 100 tokens a minute', (t) => {
  const { ledgers } = createWorld(5);
  const scopes = { account, plan: planOf({ tokensPerMinute: 100 }), key: undefined };
  const refusals = ledgers.map((ledger, n) => ledger.admit(asCallSlot(n), scopes, { ...NONE, tokens: 30 }));
  t.equal(refusals.filter((rejection) => rejection === undefined).length, 3);
  t.match(refusals[4], {
    kind: 'account',
    quota: 'tokens_per_minute',
    limit: 100n,
    left: 10n,
    canNeverFit: false,
  });
  ledgers[0]!.settle(asCallSlot(0), asPicoUnits(0n), 10);
  t.equal(ledgers[1]!.admit(asCallSlot(5), scopes, { ...NONE, tokens: 30 }), undefined);
  t.end();
});

void t.test('tokens that are no amount are refused before anything is taken or given back', (t) => {
  const { ledgers } = createWorld();
  const [ledger] = ledgers;
  const scopes = { account, plan: planOf({ tokensPerMinute: 100 }), key: undefined };
  const slot = asCallSlot(0);
  const useOf = () => ledger!.useOf({ kind: 'account', index: account }, scopes.plan.quotas);
  for (const tokens of [-1, NaN]) {
    t.throws(() => ledger!.admit(slot, scopes, { ...NONE, tokens }), /not negative/);
    t.equal(ledger!.inFlightOf(account), 0);
    t.equal(ledger!.admit(slot, scopes, { ...NONE, tokens: 60 }), undefined);
    t.throws(() => ledger!.settle(slot, asPicoUnits(0n), tokens), /not negative/);
    t.match(useOf(), [{ used: 0n, held: 60n }]);
    t.ok(ledger!.release(slot));
    t.match(useOf(), [{ used: 0n, held: 0n }]);
  }
  t.end();
});

void t.test('a call that can never fit is told so, whatever else is used up', (t) => {
  const { ledgers } = createWorld();
  const [ledger] = ledgers;
  const group = asGroupIndex(1);
  ledger!.groups.open(group, { callsInFlight: 1, tokensPerMonth: 50 });
  ledger!.setGroup(account, group);
  const scopes = { account, plan: planOf({}), key: undefined };
  t.equal(ledger!.admit(asCallSlot(0), scopes, { ...NONE, tokens: 50 }), undefined);
  t.match(ledger!.admit(asCallSlot(1), scopes, { ...NONE, tokens: 51 }), {
    kind: 'group',
    index: 1,
    quota: 'tokens_per_month',
    canNeverFit: true,
  });
  t.match(ledger!.admit(asCallSlot(1), scopes, NONE), { quota: 'calls_in_flight', canNeverFit: false });
  t.end();
});

void t.test('a free call takes of calls in flight and the model’s minute alone', (t) => {
  const { ledgers } = createWorld();
  const [ledger] = ledgers;
  const plan = { ...planOf({ callsPerMonth: 1 }), callsPerDay: 1, callsInFlightMax: 2 };
  const limits = { ...NO_QUOTAS, requestsPerMinute: 4 };
  const scopes = { account, plan, key: undefined, model: { modelIndex: 0, limits } };
  const free = { ...NONE, isFree: true } as const;
  const before = ledger!.balance.balance(account);
  for (const end of ['settle', 'release'] as const) {
    t.equal(ledger!.admit(asCallSlot(0), scopes, free), undefined);
    t.equal(ledger!.admit(asCallSlot(1), scopes, free), undefined);
    t.match(ledger!.admit(asCallSlot(2), scopes, free), { quota: 'calls_in_flight' });
    for (const slot of [0, 1])
      if (end === 'settle') ledger!.settle(asCallSlot(slot), asPicoUnits(0n), 0);
      else ledger!.release(asCallSlot(slot));
  }
  t.match(ledger!.admit(asCallSlot(0), scopes, free), { kind: 'model', quota: 'requests_per_minute' });
  t.same(ledger!.balance.balance(account), before);
  // The one call of the day and the month is still there, and is counted once.
  const other = { ...scopes, model: undefined };
  t.equal(ledger!.admit(asCallSlot(0), other, NONE), undefined);
  t.match(ledger!.admit(asCallSlot(1), other, NONE), { quota: 'calls_per_day' });
  t.end();
});

void t.test('a free call says what is left of the calls of today', (t) => {
  const { clock, ledgers } = createWorld();
  const [ledger] = ledgers;
  const scopes = { account, plan: { ...planOf({}), callsPerDay: 5 }, key: undefined };
  const leftAfter = (isFree: boolean): number => {
    t.equal(ledger!.admit(asCallSlot(0), scopes, { ...NONE, ...(isFree && { isFree }) }), undefined);
    const { perDay } = ledger!.quotasLeft(account, undefined);
    ledger!.settle(asCallSlot(0), asPicoUnits(0n), 0);
    return perDay;
  };
  // So many that the day's number modulo 2,048 passes through both halves.
  for (let days = 0; days < 3_000; days += 500) {
    t.same([leftAfter(true), leftAfter(false), leftAfter(true)], [5, 4, 4], `after ${days} days`);
    clock.wall += 500 * DAY_MS;
  }
  t.end();
});

void t.test(
  'a free call takes of the calls in flight of its key, its groups and the rule for its model',
  (t) => {
    const { ledgers } = createWorld();
    const [ledger] = ledgers;
    const key = asKeyIndex(0);
    const group = asGroupIndex(0);
    const plan = { ...planOf({ callsPerMonth: 1 }), callsPerDay: 1, callsInFlightMax: 9 };
    const rule = { modelIndex: 0, limits: { ...NO_QUOTAS, callsInFlight: 3, tokensPerDay: 1 } };
    const free = { ...NONE, isFree: true } as const;
    ledger!.keys.open(key, { callsInFlight: 1, tokensPerDay: 1 });
    ledger!.groups.open(group, { callsInFlight: 2, callsPerMonth: 1 });
    ledger!.setGroup(account, group);
    const admit = (slot: number, of: typeof key | undefined, model: typeof rule | undefined) =>
      ledger!.admit(asCallSlot(slot), { account, plan, key: of, model }, free);
    for (const end of ['settle', 'release'] as const) {
      t.equal(admit(0, key, undefined), undefined);
      t.match(admit(1, key, undefined), { kind: 'key', quota: 'calls_in_flight' });
      t.equal(admit(1, undefined, rule), undefined);
      t.match(admit(2, undefined, rule), { kind: 'group', quota: 'calls_in_flight' });
      for (const slot of [0, 1])
        if (end === 'settle') ledger!.settle(asCallSlot(slot), asPicoUnits(0n), 0);
        else ledger!.release(asCallSlot(slot));
    }
    ledger!.groups.setLimits(group, {});
    for (const slot of [0, 1, 2]) t.equal(admit(slot, undefined, rule), undefined);
    t.match(admit(3, undefined, rule), { quota: 'calls_in_flight' });
    t.end();
  },
);

void t.test('a limit that is taken away lets those through who have read that it was there', (t) => {
  const { ledgers } = createWorld();
  const [ledger] = ledgers;
  const key = asKeyIndex(0);
  ledger!.keys.open(key, { tokensPerDay: 100 });
  const quota = quotaNumberOf('tokens_per_day');
  const { quotas } = ledger as unknown as { readonly quotas: Pick<QuotaRecords, 'limitOf'> };
  t.equal(quotas.limitOf(0, quota), 100);
  ledger!.keys.setLimits(key, {});
  t.equal(ledger!.keys.limitsOf(key).tokensPerDay, undefined);
  t.equal(quotas.limitOf(0, quota), 100, 'by which a thread goes that has read the former mask');
  t.end();
});

void t.test('a scope whose quotas cannot be counted refuses, until its limits are taken away', (t) => {
  const clock = new FakeClock();
  const buffers = createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 2, keysMax: 2, groupsMax: 1 });
  const ledger = new Ledger({ ...buffers, quotasMax: 1 }, clock);
  ledger.openAccount(account, stateOf({ credited: asPicoUnits(10n ** 15n) }));
  const [counted, other] = [asKeyIndex(0), asKeyIndex(1)];
  const admit = (key: typeof counted) =>
    ledger.admit(asCallSlot(0), { account, plan: planOf({}), key }, NONE);
  ledger.keys.open(counted, { tokensPerDay: 100 });
  t.ok(ledger.keys.hasRoom(counted, { tokensPerDay: 50 }));
  t.ok(ledger.keys.hasRoom(other, { callsPerDay: 50 }));
  t.notOk(ledger.keys.hasRoom(other, { tokensPerDay: 50 }));
  ledger.keys.open(other, { tokensPerDay: 50 });
  t.match(admit(other), { quota: 'scopes' });
  t.equal(admit(counted), undefined);
  t.ok(ledger.release(asCallSlot(0)));
  ledger.keys.setLimits(other, {});
  t.equal(admit(other), undefined);
  ledger.release(asCallSlot(0));
  ledger.groups.open(asGroupIndex(0), { tokensPerDay: 50 });
  ledger.setGroup(account, asGroupIndex(0));
  t.match(admit(counted), { quota: 'scopes' });
  t.end();
});

void t.test('a rule for a model holds for each account apart, its minute too', (t) => {
  const { ledgers, clock } = createWorld();
  const [ledger] = ledgers;
  const model = { modelIndex: 7, limits: { ...NO_QUOTAS, requestsPerMinute: 2, callsPerDay: 3 } };
  const admit = (slot: number, of: number) =>
    ledger!.admit(
      asCallSlot(slot),
      { account: asAccountIndex(of), plan: planOf({}), key: undefined, model },
      NONE,
    );
  t.equal(admit(0, 0), undefined);
  t.equal(admit(1, 0), undefined);
  t.match(admit(2, 0), { kind: 'model', index: 7, quota: 'requests_per_minute' });
  t.equal(admit(2, 1), undefined, 'the other account');
  clock.pass(62_000);
  t.equal(admit(3, 0), undefined);
  t.match(admit(4, 0), { kind: 'model', quota: 'calls_per_day', limit: 3n });
  t.ok(ledger!.release(asCallSlot(3)));
  t.equal(admit(4, 0), undefined);
  t.end();
});

void t.test('what the store keeps of a scope counts after a restart, and holds do not', (t) => {
  const { ledgers } = createWorld();
  const [ledger] = ledgers;
  const key = asKeyIndex(2);
  const limits = {
    tokensPerMonth: 100,
    spendPerDay: asPicoUnits(5_000n),
    callsPerMonth: 9,
    tokensPerMinute: 60,
  };
  ledger!.keys.open(key, limits);
  const scopes = { account, plan: planOf({}), key };
  const needs = { hold: asPicoUnits(2_500n), tokens: 30 };
  t.equal(ledger!.admit(asCallSlot(0), scopes, needs), undefined);
  t.match(ledger!.admit(asCallSlot(1), scopes, needs), { kind: 'key', quota: 'spend_per_day', left: 2_000n });
  ledger!.settle(asCallSlot(0), asPicoUnits(1_200n), 20);
  t.equal(ledger!.admit(asCallSlot(1), scopes, needs), undefined, 'held, and lost with the process');
  const settled = ledger!.settledOf({ kind: 'key', index: key });
  t.match(settled, { tokensPerMonth: 20, spendPerDay: 2, minuteTokens: 20 });
  const after = createWorld().ledgers[0]!;
  after.keys.open(key, limits);
  after.restoreSettled({ kind: 'key', index: key }, settled!, 0);
  t.match(
    after.useOf({ kind: 'key', index: key }).map(({ quota, used, held }) => [quota, used, held]),
    [
      ['tokens_per_minute', 20n, 0n],
      ['calls_per_month', 2n, 0n],
      ['tokens_per_month', 20n, 0n],
      ['spend_per_day', 2_000n, 0n],
    ],
  );
  t.end();
});

void t.test('use of a day long ago is over after a restart, and use of one far ahead counts today', (t) => {
  const { ledgers, clock } = createWorld();
  const [ledger] = ledgers;
  const calendar = new Calendar();
  const [day, month] = [calendar.dayAt(clock.wallMs()), calendar.monthAt(clock.wallMs())];
  const key = asKeyIndex(2);
  const spending = asPicoUnits(100_000n);
  const limits = {
    tokensPerDay: 100,
    callsPerMonth: 100,
    tokensPerMonth: 100,
    spendPerDay: spending,
    spendPerMonth: spending,
  };
  // The numbers of days and months are kept modulo 2,048.
  for (const apart of [0, 1, 2, 365, 1_023, 1_024, 1_500, 2_047, 2_048, 3_000, 27_000]) {
    for (const later of [apart, -apart]) {
      ledger!.keys.open(key, limits);
      ledger!.restoreSettled(
        { kind: 'key', index: key },
        {
          dayNumber: Math.max(0, day.number + later),
          monthNumber: Math.max(0, month.number + later),
          minuteTokens: 0,
          tokensPerDay: 60,
          callsPerMonth: 60,
          tokensPerMonth: 60,
          spendPerDay: 60,
          spendPerMonth: 60,
        },
        0,
      );
      const needs = { hold: asPicoUnits(1_000n), tokens: 1 };
      t.equal(ledger!.admit(asCallSlot(0), { account, plan: planOf({}), key }, needs), undefined);
      ledger!.settle(asCallSlot(0), needs.hold, needs.tokens);
      const used = later < 0 ? 1n : 61n;
      t.same(
        ledger!.useOf({ kind: 'key', index: key }).map((use) => use.used),
        [used, used, used, used * NANO, used * NANO],
        `${later} days and months from now`,
      );
    }
  }
  t.end();
});

void t.test('a call counts toward one day in all its scopes, though one is a day ahead', (t) => {
  const buffers = createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 4, keysMax: 2 });
  const [clock, aheadClock] = [new FakeClock(), new FakeClock()];
  aheadClock.pass(DAY_MS);
  const [ledger, ahead] = [new Ledger(buffers, clock), new Ledger(buffers, aheadClock)];
  ledger.openAccount(account, stateOf());
  for (const key of [0, 1]) ledger.keys.open(asKeyIndex(key), { tokensPerDay: 100, callsPerMonth: 9 });
  const scopesOf = (key: number) => ({
    account,
    plan: planOf({ tokensPerDay: 1_000 }),
    key: asKeyIndex(key),
  });
  const useOf = (key: number) =>
    ahead.useOf({ kind: 'key', index: asKeyIndex(key) }).map(({ used, held }) => [used, held]);
  t.equal(ahead.admit(asCallSlot(0), scopesOf(1), { ...NONE, tokens: 1 }), undefined);
  t.equal(ledger.admit(asCallSlot(1), scopesOf(0), { ...NONE, tokens: 60 }), undefined);
  t.same(useOf(0), [
    [0n, 60n],
    [1n, 0n],
  ]);
  ledger.settle(asCallSlot(1), asPicoUnits(0n), 50);
  t.match(ahead.admit(asCallSlot(2), scopesOf(0), { ...NONE, tokens: 51 }), {
    kind: 'key',
    quota: 'tokens_per_day',
    left: 50n,
  });
  t.equal(ahead.admit(asCallSlot(2), scopesOf(0), { ...NONE, tokens: 50 }), undefined);
  t.end();
});

void t.test('a call that midnight parts gives no call back to a day that did not count it', (t) => {
  const buffers = createLedgerBuffers({ accountsMax: 1, callsInFlightMax: 4, keysMax: 1 });
  const [clock, aheadClock] = [new FakeClock(), new FakeClock()];
  aheadClock.pass(DAY_MS);
  const [ledger, ahead] = [new Ledger(buffers, clock), new Ledger(buffers, aheadClock)];
  ledger.openAccount(account, stateOf());
  const key = asKeyIndex(0);
  ledger.keys.open(key, { callsPerDay: 2 });
  t.equal(ahead.admit(asCallSlot(0), { account, plan: planOf({}), key: undefined }, NONE), undefined);
  const scopes = { account, plan: planOf({}), key };
  t.equal(ledger.admit(asCallSlot(1), scopes, NONE), undefined, 'the day before for the key');
  for (const slot of [2, 3]) t.equal(ahead.admit(asCallSlot(slot), scopes, NONE), undefined);
  t.ok(ledger.release(asCallSlot(1)));
  t.match(ahead.admit(asCallSlot(1), scopes, NONE), { kind: 'key', quota: 'calls_per_day' });
  t.end();
});

for (const [what, limits, hasModule] of [
  ['days and months', { callsPerDay: 7, callsPerMonth: 8 }, true],
  ['days and months, quota by quota', { callsPerDay: 7, callsPerMonth: 8 }, false],
  ['months alone', { callsPerMonth: 8 }, true],
] as const)
  void t.test(`at whatever step of a call a flush comes, the next has what it has missed: ${what}`, (t) => {
    const key = asKeyIndex(0);
    const group = asGroupIndex(0);
    const rule = { modelIndex: 0, limits: { ...NO_QUOTAS, ...limits, requestsPerMinute: 2 } };
    const scopes = { account, plan: planOf({ callsPerMonth: 9 }), key, model: rule };
    const [first, slot] = [asCallSlot(0), asCallSlot(1)];
    const needs = { hold: asPicoUnits(2n * NANO), tokens: 1 };
    const admitOne = (ledger: Ledger) => t.equal(ledger.admit(slot, scopes, needs), undefined);
    const rejected = (hold: bigint, quota: string) => (ledger: Ledger) =>
      t.match(ledger.admit(slot, scopes, { ...needs, hold: asPicoUnits(hold) }), { quota });
    const reversed = (ledger: Ledger): void => {
      const taken = ledger.takenOf(slot);
      ledger.reverse(taken, { ...ledger.settle(slot, asPicoUnits(NANO), 1)! }, 1);
    };
    const nothing = (): void => undefined;
    const acts: Record<string, [before: (ledger: Ledger) => unknown, act: (ledger: Ledger) => unknown]> = {
      'is admitted': [nothing, admitOne],
      'is rejected by the balance': [
        ({ balance }) => balance.hold(account, asPicoUnits(balance.available(account) - NANO)),
        rejected(2n * NANO, 'balance'),
      ],
      'is rejected by its group': [nothing, rejected(60n * NANO, 'spend_per_month')],
      'is rejected by the minute of its model': [
        (ledger) => {
          admitOne(ledger);
          ledger.release(slot);
        },
        rejected(NANO, 'requests_per_minute'),
      ],
      'is settled': [admitOne, (ledger) => ledger.settle(slot, asPicoUnits(NANO), 1)],
      'is released': [admitOne, (ledger) => ledger.release(slot)],
      'is reversed': [admitOne, reversed],
    };
    for (const [name, [before, act]] of Object.entries(acts)) {
      let steps = 0;
      for (let reached = true; reached; steps++) {
        const [listener, main] = createWorld(2, hasModule).ledgers as [Ledger, Ledger];
        main.keys.open(key, limits);
        main.groups.open(group, { ...limits, spendPerMonth: asPicoUnits(50n * NANO) });
        main.setGroup(account, group);
        // An earlier call, so that the flush finds each scope dirty.
        t.equal(listener.admit(first, scopes, needs), undefined);
        listener.settle(first, asPicoUnits(NANO), 1);
        before(listener);
        const model = asModelScopeIndex(main.modelScopes.slotOf(account, 0)!);
        const stored = new Map<string, unknown>();
        const store = (scope: Scope): void => void stored.set(scope.kind, usedOf(main, scope));
        const flush = (): void => {
          main.dirty.drain((index) => index === account && store({ kind: 'account', index }), 32);
          main.keys.dirty.drain((index) => store({ kind: 'key', index }), 32);
          main.groups.dirty.drain((index) => store({ kind: 'group', index }), 32);
          main.models.dirty.drain((index) => store({ kind: 'model', index }), 32);
        };
        flush();
        main.dirty.mark(account);
        main.keys.dirty.mark(key);
        main.groups.dirty.mark(group);
        main.models.dirty.mark(model);
        reached = interruptAt(steps, () => act(listener), flush);
        flush();
        for (const scope of [
          { kind: 'account', index: account },
          { kind: 'key', index: key },
          { kind: 'group', index: group },
          { kind: 'model', index: model },
        ] as const)
          t.same(stored.get(scope.kind), usedOf(main, scope), `${scope.kind}: a call ${name}, step ${steps}`);
      }
      t.ok(steps > 5, `${name}: ${steps} steps`);
    }
    t.end();
  });

/** What the flush stores of a scope's calls, tokens and money. */
function usedOf(ledger: Ledger, scope: Scope): unknown {
  const { kind, index } = scope;
  // The cast: the type checker cannot tell that `index` is of that kind.
  const counts = kind === 'account' ? ledger.day.read(index) : ledger[`${kind}s`].countsOf(index as never);
  return [counts, ledger.settledOf(scope)];
}

void t.test('trees of scopes at random: no quota of any is ever exceeded, and none is lost', (t) => {
  const seed = newSeed();
  for (let run = 0; run < 40; run++) {
    const random = randomBelow(seed + run);
    const { clock, ledgers } = createWorld(3);
    const someLimits = (): Partial<QuotaLimits> => {
      const limits: Record<string, number | bigint> = {};
      for (const name of [...EXTENDED_QUOTAS, 'calls_per_day'] as const) {
        if (random(3) > 0) continue;
        const { unit } = QUOTA_KINDS[name];
        limits[QUOTA_FIELDS[name]] =
          unit === 'money'
            ? BigInt(1 + random(900)) * NANO
            : unit === 'tokens'
              ? 1 + random(400)
              : 1 + random(8);
      }
      return limits;
    };
    const plan = planOf({ ...someLimits(), callsInFlight: undefined, callsPerDay: undefined });
    const keyLimits = someLimits();
    ledgers[0]!.keys.open(asKeyIndex(1), keyLimits);
    const parents: (number | undefined)[] = [];
    const groupLimits = Array.from({ length: GROUPS }, (_, group) => {
      const limits = someLimits();
      parents.push(group === 0 || random(3) === 0 ? undefined : random(group));
      const parent = parents[group];
      ledgers[0]!.groups.open(asGroupIndex(group), limits, {
        parent: parent === undefined ? undefined : asGroupIndex(parent),
      });
      return limits;
    });
    const groupOf = Array.from({ length: ACCOUNTS }, (_, index) => {
      const group = random(4) === 0 ? undefined : random(GROUPS);
      ledgers[0]!.setGroup(asAccountIndex(index), group === undefined ? undefined : asGroupIndex(group));
      return group;
    });
    const limitsOf = new Map<string, Partial<QuotaLimits>>([['key', keyLimits]]);
    for (let index = 0; index < ACCOUNTS; index++) limitsOf.set(`account ${index}`, plan.quotas);
    groupLimits.forEach((limits, group) => limitsOf.set(`group ${group}`, limits));
    const chainOf = (index: number, isLimited: boolean): string[] => {
      const chain = [...(isLimited ? ['key'] : []), `account ${index}`];
      let depth = 0;
      for (let at = groupOf[index]; at !== undefined && depth < 4; at = parents[at], depth++)
        chain.push(`group ${at}`);
      return chain;
    };
    /** By scope and quota, but for the minute: what is taken. */
    const taken = new Map<string, number>();
    interface Open {
      chain: string[];
      hold: number;
      tokens: number;
      period: number;
    }
    const open = new Map<number, Open>();
    let period = 0;
    const amountOf = (unit: string, { hold, tokens }: Pick<Open, 'hold' | 'tokens'>): number =>
      unit === 'money' ? hold : unit === 'tokens' ? tokens : 1;
    const each = (
      chain: string[],
      visit: (at: string, name: keyof typeof QUOTA_KINDS, limit: number) => void,
    ) => {
      for (const scope of chain) {
        for (const [name, field] of Object.entries(QUOTA_FIELDS)) {
          const limit = limitsOf.get(scope)![field];
          if (limit === undefined || name === 'requests_per_minute' || name === 'tokens_per_minute') continue;
          const units = typeof limit === 'bigint' ? Number(limit / NANO) : limit;
          visit(`${scope} ${name}`, name as keyof typeof QUOTA_KINDS, units);
        }
      }
    };
    for (let step = 0; step < 300; step++) {
      const ledger = ledgers[random(3)]!;
      const slot = random(SLOTS);
      const call = open.get(slot);
      if (random(40) === 0) {
        clock.pass(40 * DAY_MS);
        period += 1;
        for (const at of taken.keys()) if (!at.endsWith('in_flight')) taken.set(at, 0);
      } else if (call === undefined) {
        const index = random(ACCOUNTS);
        const isLimited = random(3) === 0;
        const needs = { hold: random(300), tokens: 1 + random(100) };
        const chain = chainOf(index, isLimited);
        const unfit: string[] = [];
        each(chain, (at, name, limit) => {
          const used = taken.get(at) ?? 0;
          if (used >= limit || used + amountOf(QUOTA_KINDS[name].unit, needs) > limit) unfit.push(at);
        });
        const scopes = { account: asAccountIndex(index), plan, key: isLimited ? asKeyIndex(1) : undefined };
        const hold = asPicoUnits(BigInt(needs.hold) * NANO);
        const rejection = ledger.admit(asCallSlot(slot), scopes, { hold, tokens: needs.tokens });
        if (rejection === undefined && unfit.length > 0)
          t.fail(`seed ${seed + run}, step ${step}: one too many`);
        if (
          rejection !== undefined &&
          rejection.quota !== 'tokens_per_minute' &&
          unfit.length === 0 &&
          !rejection.canNeverFit
        )
          t.fail(`seed ${seed + run}, step ${step}: refused by ${rejection.kind} ${rejection.quota}`);
        if (rejection !== undefined) continue;
        each(chain, (at, name) =>
          taken.set(at, (taken.get(at) ?? 0) + amountOf(QUOTA_KINDS[name].unit, needs)),
        );
        open.set(slot, { ...needs, chain, period });
      } else {
        open.delete(slot);
        const released = random(3) === 0;
        const used = { hold: random(call.hold + 1), tokens: random(call.tokens + 1) };
        if (released) ledger.release(asCallSlot(slot));
        else ledger.settle(asCallSlot(slot), asPicoUnits(BigInt(used.hold) * NANO), used.tokens);
        each(call.chain, (at, name) => {
          const { unit, per } = QUOTA_KINDS[name];
          if (per !== 'flight' && call.period !== period) return;
          const gives =
            released || per === 'flight' ? amountOf(unit, call) : amountOf(unit, call) - amountOf(unit, used);
          taken.set(at, (taken.get(at) ?? 0) - gives);
        });
      }
    }
    for (const slot of open.keys()) ledgers[0]!.release(asCallSlot(slot));
    for (let group = 0; group < GROUPS; group++) {
      const uses = ledgers[0]!.useOf({ kind: 'group', index: asGroupIndex(group) });
      if (uses.some(({ held }) => held !== 0n)) t.fail(`seed ${seed + run}: group ${group} holds something`);
    }
  }
  t.pass(`seed ${seed}`);
  t.end();
});
