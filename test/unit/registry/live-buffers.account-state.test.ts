import t from 'tap';
import { asAccountIndex, asGroupIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { NO_PLAN_INDEX } from '#src/registry/catalog.js';
import { createGroupNames, GroupNames } from '#src/registry/group-names.js';
import { accountStateOf, findPlanIndex, reopenPlanless } from '#src/registry/live-buffers.js';
import { Store } from '#src/store/store.js';
import { CATALOG, StoppedClock } from '../store/support.js';

const record = {
  index: asAccountIndex(3),
  id: 'acct_x',
  name: 'acme',
  planId: 'paid',
  active: true,
  createdMs: asWallMs(1),
  credited: asPicoUnits(70n),
};
const spending = {
  spent: asPicoUnits(20n),
  uncovered: asPicoUnits(5n),
  dayNumber: 20_000,
  dayCalls: 9,
  minuteUsed: 4,
  takenMs: asWallMs(2),
};

void t.test('plans by id', (t) => {
  t.equal(findPlanIndex(CATALOG, 'free'), 0);
  t.equal(findPlanIndex(CATALOG, 'paid'), 1);
  t.equal(findPlanIndex(CATALOG, 'PAID'), undefined);
  t.end();
});

void t.test('a new account has spent nothing; a flushed one what was flushed', (t) => {
  const fresh = {
    credited: 70n,
    spent: 0n,
    uncovered: 0n,
    dayNumber: 0,
    dayCalls: 0,
    planIndex: 1,
    active: true,
  };
  t.same(accountStateOf(record, undefined, CATALOG, undefined), fresh);
  t.same(accountStateOf(record, spending, CATALOG, undefined), {
    ...fresh,
    spent: 20n,
    uncovered: 5n,
    dayNumber: 20_000,
    dayCalls: 9,
  });
  t.end();
});

void t.test('active only when it is, and its plan and its group are there', (t) => {
  for (const active of [true, false]) {
    for (const planId of ['free', 'gone']) {
      for (const groupId of [undefined, 'grp_x']) {
        for (const group of [undefined, asGroupIndex(0)]) {
          const state = accountStateOf({ ...record, active, planId, groupId }, undefined, CATALOG, group);
          const hasGroup = groupId === undefined || group !== undefined;
          const what = `${active} ${planId} ${groupId} ${group}`;
          t.equal(state.active, active && planId === 'free' && hasGroup, what);
        }
      }
    }
  }
  t.end();
});

void t.test('accounts of other hosts beyond the ledger hinder no plan from coming back', async (t) => {
  const store = new Store(t.testdir());
  const ledger = new Ledger(createLedgerBuffers({ accountsMax: 4, callsInFlightMax: 1 }), new StoppedClock());
  store.commit(() => {
    for (let slot = 0; slot < 9; slot++)
      store.putAccount({ ...record, index: asAccountIndex(slot), id: `acct_${slot}`, name: `a${slot}` });
  });
  for (let slot = 0; slot < 4; slot++)
    ledger.openAccount(asAccountIndex(slot), {
      ...accountStateOf(record, undefined, CATALOG, undefined),
      planIndex: slot < 3 ? NO_PLAN_INDEX : 0,
      active: false,
    });
  t.same(
    [...ledger.countPlans(store.freeAccountIndex())],
    [
      [NO_PLAN_INDEX, 3],
      [0, 1],
    ],
  );
  const live = { ledger, groupNames: new GroupNames(createGroupNames(1)) };
  t.equal(await reopenPlanless(store, live, () => CATALOG), 3);
  t.same(
    [...ledger.countPlans(store.freeAccountIndex())],
    [
      [1, 3],
      [0, 1],
    ],
  );
  await store.close();
});
