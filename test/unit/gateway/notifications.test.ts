/** A damaged row keeps back no notice of another scope. */
import t from 'tap';
import { asAccountIndex, asKeyIndex, asPicoUnits } from '#src/core/units.js';
import type { Accounting } from '#src/gateway/accounting.js';
import { Notifications } from '#src/gateway/notifications.js';
import { ChangedScopes } from '#src/gateway/changed-scopes.js';
import type { LiveSettings } from '#src/gateway/reload.js';
import { StoreError } from '#src/store/store-file.js';
import { Store } from '#src/store/store.js';
import { FakeLog } from '../../fixtures/upstream-server.js';

const USED = [
  { quota: 'calls_per_day', used: 90n, held: 0n, limit: 100n, resetsMs: Date.now() + 1_000_000 },
] as const;

void t.test('a damaged row of an account, a key or a group', async (t) => {
  for (const damaged of ['none', 'account-1', 'key-1', 'group-1', 'group-0', 'unreadable']) {
    const store = new Store(t.testdir({}));
    const log = new FakeLog();
    const changed = new ChangedScopes(() => true);
    const found = <Statement>(id: string, statement: Statement): Statement => {
      if (id === damaged) throw new StoreError('damaged', `row ${id} is damaged`);
      if (damaged === 'unreadable') throw new StoreError('unreadable', 'the disk is gone');
      return statement;
    };
    const registry = {
      accounts: {
        find: (id: string) =>
          found(id, {
            record: { id, name: '', credited: asPicoUnits(0n) },
            group: { id: id === 'account-0' ? 'group-1' : 'group-0' },
            available: 0n,
            held: 0n,
            quotas: USED,
          }),
      },
      keys: {
        find: (id: string) =>
          found(id, { record: { id, name: '', accountId: 'account-0' }, accountName: '', quotas: USED }),
      },
      groups: {
        // Group 1 is in group 0.
        find: (id: string) =>
          found(id, {
            record: { id, name: '', parentId: id === 'group-1' ? 'group-0' : undefined },
            quotas: USED,
          }),
      },
    };
    const accounting = {
      base: {
        changed,
        idNames: {
          accountIdOf: (index: number) => `account-${index}`,
          keyIdOf: (index: number) => `key-${index}`,
        },
        ledger: { keys: { limitsOf: () => ({ callsPerDay: 100 }) } },
        store,
      },
      service: { read: (read: (from: unknown) => unknown) => Promise.resolve().then(() => read(registry)) },
      sharing: {},
    } as unknown as Accounting;
    const settings = { notify: { at: [80] }, metrics: { account_labels: false } };
    const notifications = new Notifications({
      live: { settings } as unknown as LiveSettings,
      accounting,
      log,
    });
    for (let flush = 0; flush < 2; flush++) {
      changed.add([0, 1].map(asAccountIndex), [0, 1].map(asKeyIndex));
      notifications.checkAndSend();
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const told = log.lines.flatMap(({ fields }) => (typeof fields.id === 'string' ? [fields.id] : []));
    const all = ['account-0', 'account-1', 'key-0', 'key-1', 'group-0', 'group-1'];
    const isUnreadable = damaged === 'unreadable';
    t.same(told.toSorted(), isUnreadable ? [] : all.filter((id) => id !== damaged).toSorted(), damaged);
    const errors = log.lines.filter(({ level }) => level === 'error');
    t.equal(errors.length, damaged === 'none' ? 0 : 1, `${damaged}: one line`);
    await store.close();
  }
});
