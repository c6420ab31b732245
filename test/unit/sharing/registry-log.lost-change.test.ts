/** A change is appended while another process of its host moves the copy to a later epoch. */
import { setTimeout as pause } from 'node:timers/promises';
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { RegistryLog } from '#src/sharing/registry-log.js';
import type { RegistryServer } from '#src/sharing/registry-server.js';
import type { RegistryPosition } from '#src/store/registry-copy.js';
import { Store } from '#src/store/store.js';
import { temporaryFolder } from '../../support/gateway.js';
import { ListLog, offlineRegistry, StoppedClock, TESTER } from '../store/support.js';

const FIRST: RegistryPosition = { epoch: 'one', version: 0, lastId: '', history: [] };

for (const [name, version, isMade] of [
  ['began after the change: it is acknowledged', 1, true],
  ['began before the change, which is lost: it is not acknowledged', 0, false],
] as const) {
  void t.test(`an epoch ${name}`, async (t) => {
    const store = new Store(temporaryFolder(t));
    const registry = offlineRegistry(store, new StoppedClock());
    const state = { position: FIRST };
    const moveTo = (position: RegistryPosition): void => {
      state.position = position;
      store.shared.commitAgreed(() => store.copy.setPosition(position));
    };
    moveTo(FIRST);
    const server = {
      pull: () => Promise.resolve({ position: state.position, changes: [] }),
      wait: () => pause(5),
      append: () => {
        moveTo({ epoch: 'two', version, lastId: 'x', history: [['one', version]] });
        return Promise.resolve('done');
      },
    };
    const log = new RegistryLog({
      ...{ store, host: 'a', log: new ListLog(), onApplied: () => undefined },
      server: server as unknown as RegistryServer,
    });
    await log.join();
    const made = log.commit(
      () =>
        registry.runAs(TESTER, () =>
          registry.accounts.create({ name: 'a', planId: 'free', credit: asPicoUnits(0n) }),
        ).result,
      () => undefined,
    );
    if (isMade) await made;
    else await t.rejects(made, { code: 'conflict' });
    t.equal(log.state.kind, 'following');
    await log.close();
    await store.close();
  });
}
