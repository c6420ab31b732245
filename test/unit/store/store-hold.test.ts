/** Who may change the store, and when a hold is void. */
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { hostname } from 'node:os';
import t, { type Test } from 'tap';
import { CONTAINER, NO_CONTAINERS } from '../../support/containers.js';
import { identityOf, isRunning } from '#src/store/process-identity.js';
import { giveHoldBack, takeHold, type RowAccess } from '#src/store/store-hold.js';
import { Store } from '#src/store/store.js';

function rowOf(first: unknown, hasReaders = false): RowAccess & { value: unknown } {
  const row = {
    path: 'x',
    value: first,
    hasReaders: () => hasReaders,
    get: () => row.value,
    put: (holder: unknown) => {
      row.value = holder;
    },
    remove: () => {
      row.value = undefined;
    },
  };
  return row;
}

void t.test('a process is known by more than its number', (t) => {
  const own = identityOf(process.pid)!;
  t.match(own, new RegExp(`^${process.pid} \\d+ [0-9a-f-]{36}$`));
  t.equal(isRunning(own), true);
  const [pid, ticks, boot] = own.split(' ');
  t.equal(isRunning(`${pid} ${Number(ticks) + 1} ${boot}`), false, 'the number was used again');
  t.equal(isRunning(`${pid} ${ticks} 00000000-0000-0000-0000-000000000000`), false, 'another boot');
  t.equal(identityOf(2 ** 22 + 1), undefined, 'no such process');
  t.equal(isRunning('rubbish'), false);
  t.end();
});

void t.test('a hold is refused while its process runs, and void after', (t) => {
  const parent = identityOf(process.ppid)!;
  const row = rowOf({ kind: 'gateway', identity: parent });
  t.throws(() => takeHold(row, { kind: 'command' }), {
    code: 'store_held',
    kind: 'gateway',
    pid: process.ppid,
    path: 'x',
  });
  giveHoldBack(row);
  t.same(row.value, { kind: 'gateway', identity: parent }, 'another’s is left alone');

  for (const first of [undefined, 'rubbish', { kind: 'gateway', identity: '1 2 3' }]) {
    const free = rowOf(first);
    t.equal(takeHold(free, { kind: 'command' }), true);
    t.equal(takeHold(free, { kind: 'gateway' }), true);
    t.match(free.value, { kind: 'gateway', identity: identityOf(process.pid) });
    giveHoldBack(free);
    t.equal(free.value, undefined);
  }
  t.end();
});

void t.test('gateways of one group have it together', (t) => {
  const parent = identityOf(process.ppid)!;
  const own = identityOf(process.pid)!;
  const held = { kind: 'gateway', identity: parent, group: 'a', members: [parent, '1 2 3'] };
  const row = rowOf(held);
  for (const other of [{ kind: 'gateway', group: 'b' }, { kind: 'gateway' }, { kind: 'command' }] as const) {
    t.throws(() => takeHold(row, other), { code: 'store_held', kind: 'gateway', pid: process.ppid });
  }
  t.same(row.value, held);
  t.equal(takeHold(row, { kind: 'gateway', group: 'a' }), false, 'not alone');
  t.same(row.value, { ...held, identity: own, members: [own, parent] }, 'without one that has died');
  giveHoldBack(row);
  t.same(row.value, { ...held, members: [parent] });

  const left = rowOf({ ...held, identity: '1 2 3', members: ['1 2 3'] });
  t.equal(takeHold(left, { kind: 'gateway', group: 'b' }), true, 'all of the former group have died');
  giveHoldBack(left);
  t.equal(left.value, undefined);

  const single = rowOf({ kind: 'gateway', identity: parent });
  t.throws(
    () => takeHold(single, { kind: 'gateway', group: 'a' }),
    { code: 'store_held' },
    'it shares with none',
  );
  t.end();
});

void t.test('a process that cannot be seen has it while it reads the file', (t) => {
  const sinceMs = Date.parse('2026-01-31T12:00:00Z');
  const held = { kind: 'gateway', identity: '7 2 3', group: 'a', members: ['7 2 3'], host: 'box', sinceMs };
  for (const other of [{ kind: 'gateway', group: 'b' }, { kind: 'gateway' }, { kind: 'command' }] as const) {
    const row = rowOf(held, true);
    t.throws(() => takeHold(row, other), {
      code: 'store_held',
      pid: 7,
      container: 'box',
      message:
        'A gateway in another container (process 7 of box, since 2026-01-31T12:00:00.000Z) works on x.',
    });
    t.same(row.value, held);
  }
  t.equal(takeHold(rowOf(held, true), { kind: 'gateway', group: 'a' }), true, 'its own group it would see');
  t.throws(() => takeHold(rowOf({ kind: 'command', identity: '7 2 3' }, true), { kind: 'gateway' }), {
    container: 'unknown',
    message: 'A command in another container (process 7 of unknown) works on x.',
  });
  t.equal(takeHold(rowOf(undefined, true), { kind: 'gateway' }), true, 'a reader that gave it back');

  const row = rowOf(undefined);
  const beforeMs = Date.now();
  takeHold(row, { kind: 'gateway', group: 'b' });
  const taken = row.value as { host: string; sinceMs: number };
  t.equal(taken.host, hostname());
  t.ok(taken.sinceMs >= beforeMs && taken.sinceMs <= Date.now());
  t.end();
});

/** The fixture in a container of its own, with process number 1. It holds the store when this resolves. */
async function holderInContainer(t: Test, path: string): Promise<{ kill: () => Promise<void> }> {
  const [file = '', ...launcher] = CONTAINER;
  const entry = new URL('../../fixtures/store-holder.js', import.meta.url).pathname;
  const child = spawn(file, [...launcher, process.execPath, entry, path], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL');
    // The channel closes when the process in the container ends, a moment after its launcher.
    if (child.connected) await once(child, 'disconnect');
  };
  t.teardown(kill);
  await Promise.race([
    once(child, 'message'),
    once(child, 'disconnect').then(() => Promise.reject(new Error('it ended'))),
  ]);
  return { kill };
}

void t.test('between PID namespaces, and after one was killed', NO_CONTAINERS, async (t) => {
  const path = t.testdir();
  for (const round of ['first', 'second']) {
    const holder = await holderInContainer(t, path);
    for (let look = 0; look < 3; look++) {
      t.throws(
        () => Store.hold(path, { kind: 'command' }),
        { code: 'store_held', kind: 'gateway', pid: 1, container: hostname() },
        `${round}, look ${look}`,
      );
    }
    await t.rejects(
      holderInContainer(t, path),
      { message: 'it ended' },
      'of the same number in another namespace',
    );
    await holder.kill();
    const store = Store.hold(path, { kind: 'command' });
    await store.close();
  }
});

void t.test('between processes, and after one was killed', async (t) => {
  const path = t.testdir();
  const child = fork(new URL('../../fixtures/store-holder.js', import.meta.url), [path]);
  t.teardown(() => child.kill('SIGKILL'));
  await once(child, 'message');
  t.throws(() => Store.hold(path, { kind: 'command' }), {
    code: 'store_held',
    message: `A gateway (process ${child.pid}) works on ${path}.`,
  });
  child.kill('SIGKILL');
  await once(child, 'exit');
  const first = Store.hold(path, { kind: 'command' });
  await first.close();
  const second = Store.hold(path, { kind: 'gateway' });
  await second.close();
});

void t.test('a hold that cannot be read is named, with what to do', (t) => {
  const path = t.testdir({ 'hold.lmdb': 'no LMDB file' });
  t.throws(() => Store.hold(path, { kind: 'command' }), {
    code: 'foreign',
    message: `${path}/hold.lmdb cannot be read. It holds no data: end what works on this folder, and remove the file.`,
  });
  t.end();
});

void t.test('between processes of a group, the first of which is alone', async (t) => {
  const path = t.testdir();
  const child = fork(new URL('../../fixtures/store-holder.js', import.meta.url), [path, 'a']);
  t.teardown(() => child.kill('SIGKILL'));
  await once(child, 'message');
  let alone = 0;
  const onAlone = (): void => void (alone += 1);
  const beside = Store.hold(path, { kind: 'gateway', group: 'a' }, onAlone);
  t.throws(() => Store.hold(path, { kind: 'gateway', group: 'b' }, onAlone), { code: 'store_held' });
  t.equal(alone, 0);
  await beside.close();
  t.throws(
    () => Store.hold(path, { kind: 'command' }),
    { code: 'store_held', pid: child.pid! },
    'the other goes on',
  );
  child.kill('SIGKILL');
  await once(child, 'exit');
  const next = Store.hold(path, { kind: 'gateway', group: 'b' }, onAlone);
  t.equal(alone, 1);
  await next.close();
});
