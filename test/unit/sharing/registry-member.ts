/**
 * One of several processes that share a registry: `registry-member <data> <timer|asked>`. Does what its
 * parent sends, and says what its shared buffers know.
 */
import { SystemClock } from '#src/core/clock.js';
import { asAccountIndex, asKeyIndex, asPicoUnits } from '#src/core/units.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { AccountDirectory } from '#src/registry/account-directory.js';
import { ChangeApplier } from '#src/registry/change-applier.js';
import { createGroupNames, GroupNames } from '#src/registry/group-names.js';
import { KeyTable, createKeyTableBuffers } from '#src/registry/key-table.js';
import { SharedUses } from '#src/registry/shared-uses.js';
import { Registry } from '#src/registry/registry.js';
import { ChangeFollower } from '#src/sharing/change-follower.js';
import { SpentTotals } from '#src/store/spent-totals.js';
import { recover } from '#src/store/recovery.js';
import { Store } from '#src/store/store.js';
import { CATALOG, ListLog } from '../store/support.js';
import { ACCOUNTS_MAX, KEYS_MAX, type MemberAnswer, type MemberRequest } from './member-messages.js';

const [dataPath = '', pace] = process.argv.slice(2);
const clock = new SystemClock();
const log = new ListLog();
const store = new Store(dataPath);
const live = {
  ledger: new Ledger(
    createLedgerBuffers({
      accountsMax: ACCOUNTS_MAX,
      callsInFlightMax: 16,
      keysMax: KEYS_MAX,
      groupsMax: 10,
    }),
    clock,
  ),
  keyTable: new KeyTable(createKeyTableBuffers({ keysMax: KEYS_MAX })),
  groupNames: new GroupNames(createGroupNames(10)),
};
const directory = new AccountDirectory();
const bounds = { accountsMax: ACCOUNTS_MAX, keysMax: KEYS_MAX, groupsMax: 10 };
const appliedTo = store.shared.feed.newest();
recover({
  store,
  ...live,
  ...bounds,
  totals: new SpentTotals(ACCOUNTS_MAX),
  directory,
  catalog: CATALOG,
  clock,
  log,
});
const registry = new Registry({
  store,
  catalog: CATALOG,
  clock,
  ...bounds,
  live: new SharedUses(store, directory),
});
const applier = new ChangeApplier({ store, live, directory, catalog: () => CATALOG, ...bounds, log });
const follower = new ChangeFollower({ feed: store.shared.feed, applier, appliedTo, ...bounds, log });

function answer(request: MemberRequest): Omit<MemberAnswer, 'id'> {
  if (request.kind === 'change') {
    const made = store.shared.commit(() => change(request));
    follower.poll();
    return { made };
  }
  if (request.kind === 'look') follower.poll();
  if (request.kind === 'burn') {
    const before = process.cpuUsage();
    for (let looks = 0; looks < request.looks; looks++) follower.poll();
    const { user, system } = process.cpuUsage(before);
    return { microseconds: (user + system) / request.looks };
  }
  const digest = Buffer.from(request.kind === 'find' ? request.digest : '', 'hex');
  if (request.kind === 'find') {
    const key = live.keyTable.find(digest);
    return { key, state: key === undefined ? undefined : live.keyTable.stateOf(key) };
  }
  return {
    log: log.lines,
    accounts: Array.from({ length: store.freeAccountIndex() }, (_, slot) => ({
      plan: live.ledger.planIndexOf(asAccountIndex(slot)),
      active: live.ledger.isActive(asAccountIndex(slot)),
    })),
    keys: Array.from({ length: KEYS_MAX }, (_, slot) => asKeyIndex(slot)).flatMap((slot) =>
      live.keyTable.has(slot)
        ? [
            {
              slot,
              account: live.keyTable.accountOf(slot),
              state: live.keyTable.stateOf(slot),
              limited: live.keyTable.isLimited(slot),
              expired: live.keyTable.isExpired(slot, Math.floor(clock.wallMs() / 1_000)),
            },
          ]
        : [],
    ),
    found: registry.accounts.search({ text: 'a' }, 0, ACCOUNTS_MAX).items.map(({ record }) => record.name),
  };
}

function change({ what, of, name, planId }: MemberRequest & { kind: 'change' }): unknown {
  switch (what) {
    case 'account':
      return registry.accounts.create({ name, planId, credit: asPicoUnits(100n) }).record;
    case 'plan':
      return registry.accounts.setPlan(of, planId).record;
    case 'disable-account':
      return registry.accounts.setActive(of, false).record;
    case 'enable-account':
      return registry.accounts.setActive(of, true).record;
    case 'credit':
      return registry.credits.add(of, asPicoUnits(5n), name).record;
    case 'debit':
      return registry.credits.add(of, asPicoUnits(-3n), name).record;
    case 'bulk':
      return registry
        .createInBulk([
          {
            name,
            planId,
            credit: asPicoUnits(0n),
            keys: [{ name: 'k1' }, { name: 'k2', limits: { callsPerDay: 5 } }],
          },
        ])
        .flatMap(({ keys }) => keys.map(({ record }) => record));
    case 'key':
      return registry.keys.create({ account: of, name }).record;
    case 'disable-key':
      return registry.keys.setActive(of, false).record;
    case 'enable-key':
      return registry.keys.setActive(of, true).record;
    case 'rotate':
      return registry.keys.rotate(of, 0).record;
    case 'delete-key':
      return registry.keys.delete(of);
  }
}

process.on('message', (request: MemberRequest) => {
  let answered: Omit<MemberAnswer, 'id'>;
  try {
    answered = answer(request);
  } catch (error) {
    answered = { rejected: error instanceof Error ? error.message : String(error) };
  }
  process.send!({ id: request.id, ...answered }, () => undefined);
});
if (pace === 'timer') follower.start();
process.on('disconnect', () => {
  follower.stop();
  void store.close();
});
process.send!({ id: 0 });
