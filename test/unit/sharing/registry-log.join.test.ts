/** What is logged while a host joins: its connection is still being made at the first try. */
import { setTimeout as pause } from 'node:timers/promises';
import t from 'tap';
import { RegistryLog } from '#src/sharing/registry-log.js';
import type { RegistryServer } from '#src/sharing/registry-server.js';
import { ValkeyError } from '#src/sharing/valkey-client.js';
import type { RegistryPosition } from '#src/store/registry-copy.js';
import { Store } from '#src/store/store.js';
import { temporaryFolder } from '../../support/gateway.js';
import { ListLog } from '../store/support.js';

const FIRST: RegistryPosition = { epoch: 'one', version: 0, lastId: '', history: [] };

for (const [failures, code, isLogged] of [
  [1, 'offline', false],
  [2, 'offline', true],
  [1, 'late', true],
] as const) {
  void t.test(`${failures} × ${code}: ${isLogged ? 'a warning' : 'no warning'}`, async (t) => {
    const store = new Store(temporaryFolder(t));
    const lines = new ListLog();
    store.shared.commitAgreed(() => store.copy.setPosition(FIRST));
    let pulls = 0;
    const server = {
      pull: () =>
        ++pulls > failures
          ? Promise.resolve({ position: FIRST, changes: [] })
          : Promise.reject(new ValkeyError(code, 'The client is offline')),
      wait: () => pause(5),
    };
    const log = new RegistryLog({
      ...{ store, host: 'a', log: lines, onApplied: () => undefined },
      server: server as unknown as RegistryServer,
    });
    await log.join();
    t.equal(log.state.kind, 'following');
    t.equal(lines.lines.filter((line) => line.startsWith('warn')).length, isLogged ? 1 : 0);
    await log.close();
    await store.close();
  });
}
