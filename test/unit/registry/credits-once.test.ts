/** Credits with an idempotency key: once in the books, whoever asks again, and when. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import type { AccountStatement } from '#src/registry/account-statement.js';
import type { Credits } from '#src/registry/credits.js';
import { StoreOnly } from '#src/registry/registry-context.js';
import { Store } from '#src/store/store.js';
import { offlineRegistry, openHouse } from '../store/support.js';

const pico = asPicoUnits;
const textOf = ({ available, record }: AccountStatement): string => `${available} of ${record.credited}`;

function once(credits: Credits, amount: bigint, idempotencyKey: string, note = ''): string {
  return credits.addOnce({ account: 'acme', amount: pico(amount), note, idempotencyKey }, textOf);
}

void t.test('a repetition gets the first answer and changes nothing', async (t) => {
  const { registry, store, ledger } = openHouse(t.testdir());
  const { index } = registry.accounts.create({ name: 'acme', planId: 'free', credit: pico(0n) }).record;
  t.equal(once(registry.credits, 10n, 'one', 'note'), '10 of 10');
  t.equal(once(registry.credits, 5n, 'two'), '15 of 15');
  t.equal(once(registry.credits, 10n, 'one', 'note'), '10 of 10');
  t.equal(once(registry.credits, -15n, 'three'), '0 of 0', 'a debit of all that is there');
  t.equal(once(registry.credits, -15n, 'three'), '0 of 0', 'is repeated where nothing is left');
  t.equal(ledger.balance.available(index), 0n);
  t.same(
    store.listCredits(index, 0, 10).items.map(({ amount }) => amount),
    [10n, 5n, -15n],
  );
  for (const [amount, note] of [
    [11n, 'note'],
    [-10n, 'note'],
    [10n, 'other'],
    [10n, ''],
  ] as const) {
    t.throws(() => once(registry.credits, amount, 'one', note), {
      code: 'invalid_parameters',
      message: /^idempotency_key "one" was given before with another amount or note/,
    });
  }
  registry.accounts.create({ name: 'other', planId: 'free', credit: pico(0n) });
  const elsewhere = { account: 'other', amount: pico(3n), note: '', idempotencyKey: 'one' };
  t.equal(registry.credits.addOnce(elsewhere, textOf), '3 of 3', 'keys are of one account');
  await store.close();
});

void t.test('who was overtaken by the same debit gets its answer, though nothing is left', async (t) => {
  const { registry, store, clock } = openHouse(t.testdir());
  registry.accounts.create({ name: 'acme', planId: 'free', credit: pico(10n) });
  class Overtaken extends StoreOnly {
    override credit(): boolean {
      t.equal(once(offlineRegistry(store, clock).credits, -10n, 'k'), '0 of 0');
      return false;
    }
  }
  const { credits } = offlineRegistry(store, clock, new Overtaken(store));
  t.equal(once(credits, -10n, 'k'), '0 of 0');
  await store.close();
});

void t.test('what was refused is not remembered', async (t) => {
  const { registry, store } = openHouse(t.testdir());
  registry.accounts.create({ name: 'acme', planId: 'free', credit: pico(1n) });
  t.throws(() => once(registry.credits, -2n, 'k'), { code: 'invalid_parameters', message: /the balance of/ });
  registry.credits.add('acme', pico(5n), '');
  t.equal(once(registry.credits, -2n, 'k'), '4 of 4');
  for (const key of ['', 'a b', 'ü', 'x'.repeat(101), '\0', `sk-${'x'.repeat(43)}`]) {
    t.throws(() => once(registry.credits, 1n, key), {
      code: 'invalid_parameters',
      message: /^idempotency_key must/,
    });
  }
  t.throws(() => once(registry.credits, 0n, 'z'), { message: /^amount must not be zero$/ });
  t.equal(registry.accounts.find('acme').available, 4n);
  await store.close();
});

void t.test('a restart keeps the answer', async (t) => {
  const path = t.testdir();
  const { registry, store, clock } = openHouse(path);
  registry.accounts.create({ name: 'acme', planId: 'free', credit: pico(0n) });
  const first = once(registry.credits, 7n, 'k');
  await store.close();
  const reopened = new Store(path);
  const after = offlineRegistry(reopened, clock);
  t.equal(once(after.credits, 7n, 'k'), first);
  t.equal(after.accounts.find('acme').available, 7n);
  await reopened.close();
});

void t.test('two processes at once: one of them does it', async (t) => {
  for (const amount of [5n, -10n]) {
    const { store, clock, registry } = openHouse(t.testdir());
    registry.accounts.create({ name: 'acme', planId: 'free', credit: pico(10n) });
    const [first, second] = [offlineRegistry(store, clock), offlineRegistry(store, clock)];
    const commit = store.commit.bind(store);
    let answer = '';
    store.commit = (work) => {
      // The second's transaction comes before the first's, after the first has looked.
      store.commit = commit;
      answer = once(second.credits, amount, 'k');
      return commit(work);
    };
    t.equal(once(first.credits, amount, 'k'), answer, `${amount}`);
    t.equal(store.findAccountByName('acme')?.credited, 10n + amount);
    await store.close();
  }
});

void t.test('of a live account the money is given back where another process was first', async (t) => {
  for (const amount of [5n, -10n]) {
    const { store, clock, registry, ledger } = openHouse(t.testdir());
    const { index } = registry.accounts.create({ name: 'acme', planId: 'free', credit: pico(20n) }).record;
    const other = offlineRegistry(store, clock);
    const commit = store.commit.bind(store);
    store.commit = (work) => {
      store.commit = commit;
      once(other.credits, amount, 'k');
      return commit(work);
    };
    once(registry.credits, amount, 'k');
    t.equal(ledger.balance.available(index), 20n, 'the words have what this process did: nothing');
    await store.close();
  }
});
