/** Operators: made, found by their tokens, changed; and what of them is on disk. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import t from 'tap';
import { Store } from '#src/store/store.js';
import { offlineRegistry, openHouse } from '../store/support.js';
import type { Registry } from '#src/registry/registry.js';

const digestOf = (token: string): string => createHash('sha256').update(token).digest('hex');
const identity = ({ operators }: Registry, token: string) => operators.identityOf(digestOf(token));

void t.test('an operator from its creation to its end', async (t) => {
  const path = t.testdir();
  const house = openHouse(path);
  const { operators } = house.registry;
  const ann = operators.create({ name: 'ann', role: 'support' });
  t.match(ann.token, /^tgop_[\w-]{43}$/);
  t.match(ann.record, { id: /^op_[0-9a-z]{16}$/, active: true, digest: digestOf(ann.token) });
  t.same([ann.expired, ann.lastUsedSeconds], [false, undefined]);
  t.same(identity(house.registry, ann.token), { who: 'ann', role: 'support' });
  t.equal(operators.find('ann').lastUsedSeconds, Math.floor(house.clock.wallMs() / 1_000));
  t.equal(identity(house.registry, `${ann.token.slice(0, -1)}!`), undefined);

  operators.setRole('ann', 'finance');
  t.same(identity(house.registry, ann.token), { who: 'ann', role: 'finance' });
  operators.setActive(ann.record.id, false);
  t.equal(identity(house.registry, ann.token), undefined);
  operators.setActive('ann', true);
  const rotated = operators.rotate('ann', {});
  t.not(rotated.token, ann.token);
  t.same([rotated.record.id, rotated.record.role], [ann.record.id, 'finance']);
  t.equal(identity(house.registry, ann.token), undefined, 'the former token');
  t.equal(operators.list().length, 1);
  operators.create({ name: 'Bob', role: 'viewer' });
  await house.store.close();

  const store = new Store(path);
  const after = offlineRegistry(store, house.clock);
  t.equal(after.operators.find('ann').lastUsedSeconds, Math.floor(house.clock.wallMs() / 1_000));
  t.same(identity(after, rotated.token), { who: 'ann', role: 'finance' });
  t.same(
    after.operators.list().map(({ record }) => record.name),
    ['Bob', 'ann'],
  );
  t.equal(after.operators.delete('ann').id, ann.record.id);
  t.equal(identity(after, rotated.token), undefined);
  t.throws(() => after.operators.find('ann'), { code: 'not_found' });
  const bytes = readFileSync(store.path, 'latin1');
  t.ok(bytes.includes('Bob'), 'the file is the one that was written');
  t.notOk(bytes.includes(rotated.token.slice(5)) || bytes.includes('tgop_'), 'no token is on disk');
  await store.close();
});

void t.test('expiry', async (t) => {
  const house = openHouse(t.testdir());
  const { operators } = house.registry;
  const { token } = operators.create({ name: 'ann', role: 'admin', expiresInSeconds: 60 });
  house.clock.nowMs += 59_000;
  t.ok(identity(house.registry, token), 'to the last second');
  house.clock.nowMs += 2_000;
  t.equal(identity(house.registry, token), undefined);
  t.equal(operators.find('ann').expired, true);
  t.throws(() => operators.rotate('ann', {}), { code: 'invalid_parameters', message: /say when/ });
  const renewed = operators.rotate('ann', { expiresInSeconds: 60 });
  t.same(identity(house.registry, renewed.token), { who: 'ann', role: 'admin' });
  const nowSeconds = Math.floor(house.clock.wallMs() / 1_000);
  for (const expiry of [{ expiresSeconds: nowSeconds }, { expiresSeconds: 1, expiresInSeconds: 1 }]) {
    t.throws(() => operators.create({ name: 'b', role: 'admin', ...expiry }), { code: 'invalid_parameters' });
  }
  await house.store.close();
});

void t.test('names, references and the bound', async (t) => {
  const house = openHouse(t.testdir());
  const { operators } = house.registry;
  const { token, record } = operators.create({ name: 'ann@example.com', role: 'viewer' });
  for (const name of [
    '',
    'bootstrap',
    'command',
    'signal',
    'start',
    'watch',
    'oidc:ann',
    '=1+1',
    '-a',
    'a b',
    'ä',
    'x'.repeat(65),
  ]) {
    t.throws(() => operators.create({ name, role: 'viewer' }), { code: 'invalid_parameters' }, name);
  }
  t.throws(() => operators.create({ name: token, role: 'viewer' }), { code: 'invalid_parameters' });
  t.throws(() => operators.create({ name: record.id, role: 'viewer' }), { code: 'invalid_parameters' });
  t.throws(() => operators.create({ name: 'ann@example.com', role: 'viewer' }), { message: /unique/ });
  let message = '';
  try {
    operators.find(token);
  } catch (error) {
    message = String(error);
  }
  t.match(message, 'nor a token');
  t.notOk(message.includes(token), 'it is not repeated');

  house.store.commit(() => {
    for (let count = 1; count < 1_000; count++) {
      const digest = digestOf(`${count}`);
      house.store.operators.put({ ...record, id: `op_${count}`, name: `n${count}`, digest });
    }
  });
  t.throws(() => operators.create({ name: 'b', role: 'viewer' }), { message: /1000 operators/ });
  operators.delete('n7');
  t.ok(operators.create({ name: 'b', role: 'viewer' }));
  await house.store.close();
});

void t.test('last uses of processes that take turns: none writes an older one over another', async (t) => {
  const house = openHouse(t.testdir());
  const others = offlineRegistry(house.store, house.clock);
  const ann = house.registry.operators.create({ name: 'ann', role: 'viewer' });
  const bob = house.registry.operators.create({ name: 'bob', role: 'viewer' });
  const now = (): number => Math.floor(house.clock.wallMs() / 1_000);
  const PERIOD_MS = 600_000;
  t.ok(identity(house.registry, ann.token));
  const annFirst = now();
  house.clock.nowMs += PERIOD_MS;
  t.ok(identity(others, ann.token), 'the admin interface is with another process');
  const annLater = now();
  t.equal(house.registry.operators.find('ann').lastUsedSeconds, annLater, 'and the first one knows');
  house.clock.nowMs += PERIOD_MS;
  t.ok(identity(house.registry, bob.token), 'it is back');
  t.not(annFirst, annLater);
  for (const { operators } of [house.registry, others]) {
    t.equal(operators.find('ann').lastUsedSeconds, annLater);
    t.equal(operators.find('bob').lastUsedSeconds, now());
    t.same(
      operators.list().map(({ lastUsedSeconds }) => lastUsedSeconds),
      [annLater, now()],
    );
  }
  await house.store.close();
});
