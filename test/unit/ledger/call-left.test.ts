/**
 * What a call is told to have left is what views say right after its admission: of each quota that it took of
 * and of no other, whatever calls came before, and whether the module took its quotas at once or not.
 */
import t from 'tap';
import { nameIndexOf, NUMBERS_PER_QUOTA, scopeIndexOf } from '#src/core/quotas-left.js';
import { NO_QUOTAS, QUOTA_KINDS, QUOTA_NAMES, QUOTA_SCOPES } from '#src/core/quotas.js';
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
  openLedgerViews,
  type Scope,
  SCRATCH_AREAS,
  SCRATCH_USED,
} from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { FakeClock, stateOf } from '../../fixtures/ledger-world.js';
import { newSeed, randomBelow } from '../../support/random.js';

const SLOTS = 6;
const KEYS = [undefined, asKeyIndex(0), asKeyIndex(1)];
const PLANS = [
  NO_QUOTAS,
  { ...NO_QUOTAS, tokensPerMinute: 900, spendPerDay: asPicoUnits(10n ** 15n) },
  { ...NO_QUOTAS, tokensPerDay: 20_000, callsPerMonth: 3_000 },
];
const RULES = [
  undefined,
  { ...NO_QUOTAS, requestsPerMinute: 40 },
  { ...NO_QUOTAS, tokensPerMinute: 300, callsPerDay: 900 },
];

function openWorld(hasModule: boolean) {
  const clock = new FakeClock();
  const capacity = { accountsMax: 2, callsInFlightMax: SLOTS, keysMax: 2, groupsMax: 2 };
  const buffers = createLedgerBuffers(capacity);
  if (!hasModule) openLedgerViews(buffers).quotas.used[SCRATCH_USED] = SCRATCH_AREAS;
  const ledger = new Ledger(buffers, clock);
  for (const account of [0, 1])
    ledger.openAccount(asAccountIndex(account), stateOf({ credited: asPicoUnits(10n ** 17n) }));
  ledger.keys.open(asKeyIndex(0), { callsPerDay: 400, tokensPerMinute: 600 });
  ledger.keys.open(asKeyIndex(1), { callsInFlight: 4, tokensPerMonth: 90_000 });
  ledger.groups.open(asGroupIndex(1), { spendPerMonth: asPicoUnits(10n ** 16n), callsPerDay: 700 });
  ledger.groups.open(asGroupIndex(0), { tokensPerMinute: 1_500 }, { parent: asGroupIndex(1) });
  ledger.setGroup(asAccountIndex(1), asGroupIndex(0));
  return { clock, ledger };
}

for (const hasModule of [true, false])
  void t.test(hasModule ? 'with the module' : 'quota by quota', (t) => {
    const below = randomBelow(newSeed());
    const { clock, ledger } = openWorld(hasModule);
    const open: boolean[] = [];
    let checked = 0;
    for (let step = 0; step < 3_000; step++) {
      clock.pass(below(50) === 0 ? below(40) * 3_600_000 : below(2_000));
      const slot = below(SLOTS);
      if (open[slot] === true) {
        open[slot] = false;
        ledger.settle(asCallSlot(slot), asPicoUnits(BigInt(below(10 ** 9))), below(90));
        continue;
      }
      const account = asAccountIndex(below(2));
      const key = KEYS[below(KEYS.length)];
      const quotas = PLANS[below(PLANS.length)]!;
      const limits = RULES[below(RULES.length)];
      const model = limits && { modelIndex: 5, limits };
      const plan = { callsPerDay: 2_000, callsInFlightMax: SLOTS - 1, quotas };
      const needs = {
        hold: asPicoUnits(BigInt(below(10 ** 9))),
        tokens: below(90),
        ...(below(8) === 0 ? { isFree: true as const } : {}),
      };
      if (ledger.admit(asCallSlot(slot), { account, plan, key, model }, needs) !== undefined) continue;
      open[slot] = true;
      const left = ledger.quotasLeft(account, undefined);
      t.match(left, {
        inFlight: plan.callsInFlightMax - ledger.inFlightOf(account),
        balance: Number(ledger.balance.balance(account)),
      });
      /** By scope and name, what views say. */
      const expected = new Map<string, number>();
      const add = (scope: Scope, name: string, amount: number): void =>
        void expected.set(`${scope.kind} ${scope.index} ${name}`, amount);
      const addUses = (scope: Scope, uses: ReturnType<Ledger['useOf']>): void => {
        for (const { quota, limit, used, held } of uses) {
          if (needs.isFree === true && quota !== 'calls_in_flight') continue;
          const isMoney = QUOTA_KINDS[quota].unit === 'money';
          add(scope, quota, Number((limit - used - held) / (isMoney ? 1_000n : 1n)));
        }
      };
      const scopes: Scope[] = key === undefined ? [] : [{ kind: 'key', index: key }];
      for (let group = ledger.groupOf(account); group !== undefined; group = ledger.groups.parentOf(group))
        scopes.push({ kind: 'group', index: group });
      for (const scope of scopes) addUses(scope, ledger.useOf(scope));
      addUses({ kind: 'account', index: account }, ledger.useOf({ kind: 'account', index: account }, quotas));
      for (const { kind, index } of scopes) {
        const limited = kind === 'key' ? ledger.keys : ledger.groups;
        const callsPerDay = limited.callsPerDayOf(index as never);
        if (callsPerDay !== undefined && needs.isFree !== true)
          add(
            { kind, index } as Scope,
            'calls_per_day',
            callsPerDay - limited.countsOf(index as never).dayCalls,
          );
      }
      if (limits !== undefined) {
        const index = asModelScopeIndex(ledger.modelScopes.slotOf(account, 5)!);
        const { requestsPerMinute, callsPerDay } = limits;
        addUses({ kind: 'model', index }, ledger.useOf({ kind: 'model', index }, limits));
        if (callsPerDay !== undefined && needs.isFree !== true)
          add(
            { kind: 'model', index },
            'calls_per_day',
            callsPerDay - ledger.models.countsOf(index).dayCalls,
          );
        const used = ledger.models.minute.usedOf(index);
        // Of this quota alone the record has no slot.
        const scope = { kind: 'model', index: asModelScopeIndex(0) } as const;
        if (requestsPerMinute !== undefined) add(scope, 'requests_per_minute', requestsPerMinute - used);
      }
      const actual = new Map<string, number>();
      for (let at = 0; at < (left.others?.length ?? 0); at += NUMBERS_PER_QUOTA) {
        const [code, index, amount] = left.others!.slice(at, at + NUMBERS_PER_QUOTA);
        const [kind, name] = [QUOTA_SCOPES[scopeIndexOf(code!)]!, QUOTA_NAMES[nameIndexOf(code!)]!];
        actual.set(`${kind} ${index} ${name}`, amount!);
      }
      const sorted = (map: Map<string, number>) => [...map].sort(([one], [other]) => (one < other ? -1 : 1));
      if (!t.same(sorted(actual), sorted(expected), `step ${step}`)) break;
      if (needs.isFree !== true)
        t.same(
          ledger.tokenMinuteLeft()?.remaining,
          ledger.tokenMinuteOf(account, quotas, key)?.remaining,
          'the headers before and after',
        );
      checked += expected.size;
    }
    t.ok(checked > 1_000, `${checked} numbers`);
    t.end();
  });
