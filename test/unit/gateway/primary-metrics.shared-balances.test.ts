/** What the metrics show of balances that several processes or hosts use, and how often they ask. */
import t from 'tap';
import { sharedBalancesOf } from '#src/gateway/primary-metrics.js';
import type { Registry, RegistryService } from '#src/registry/registry.js';
import { ListLog } from '../store/support.js';

interface Account {
  readonly record: { readonly id: string; readonly name: string };
  readonly available: bigint;
  readonly spent: bigint;
  readonly callsToday: number;
  /** Present if the coordinator was asked. */
  readonly leased?: object;
}

/** `count` accounts: 10 units credited, of which this host has spent 4 and all hosts 9. */
function world(count: number) {
  let isLost = false;
  let reads = 0;
  let nowMs = 0;
  const accountOf = (n: number, isAsked: boolean): Account => ({
    record: { id: `acct_${n}`, name: `account ${n}` },
    available: isAsked ? 1_000_000_000_000n : 6_000_000_000_000n,
    spent: isAsked ? 9_000_000_000_000n : 4_000_000_000_000n,
    callsToday: 7,
    ...(isAsked ? { leased: {} } : {}),
  });
  const registryOf = (isAsked: boolean): Registry => {
    const list = (from: number, limit: number) => ({
      items: Array.from({ length: Math.min(limit, count - from) }, (_, at) => accountOf(from + at, isAsked)),
      next: from + limit < count ? from + limit : undefined,
    });
    return { catalog: { models: [] }, accounts: { list } } as unknown as Registry;
  };
  const service: Pick<RegistryService, 'read'> = {
    read: (work) => {
      reads += 1;
      return Promise.resolve(work(registryOf(!isLost)));
    },
  };
  return {
    balances: sharedBalancesOf({ service, monotonicMs: () => nowMs, log: new ListLog() }),
    reads: () => reads,
    pass: (ms: number) => void (nowMs += ms),
    lose: (lost: boolean) => void (isLost = lost),
  };
}

void t.test('the balances of the accounts with labels, asked for every ten seconds', async (t) => {
  const { balances, reads, pass } = world(1_700);
  await balances.refresh();
  t.equal(reads(), 0, 'another gateway tells');
  balances.turnOn();
  for (const ms of [0, 9_999]) {
    pass(ms);
    await Promise.all([balances.refresh(), balances.refresh()]);
  }
  t.equal(reads(), 2, 'two pages, once');
  t.equal(balances.value.size, 1_000);
  pass(1);
  await balances.refresh();
  t.equal(reads(), 4);
  balances.turnOff();
  t.equal(balances.value.size, 0);
});

void t.test('while the coordinator cannot be asked, balances stay as they were known', async (t) => {
  const { balances, pass, lose } = world(1);
  balances.turnOn();
  lose(true);
  await balances.refresh();
  t.equal(balances.value.size, 0, 'what this host has spent is not all');
  lose(false);
  pass(10_000);
  await balances.refresh();
  t.same([...balances.value], [['acct_0', 1_000_000_000_000n]]);
  lose(true);
  pass(10_000);
  await balances.refresh();
  t.equal(balances.value.get('acct_0'), 1_000_000_000_000n);
});

void t.test(
  'what is read while it is turned off is no value, and the next reading is due at once',
  async (t) => {
    const { balances, reads } = world(1);
    balances.turnOn();
    const reading = balances.refresh();
    balances.turnOff();
    await balances.refresh();
    t.equal(reads(), 1, 'nobody asks, nor waits, for what is off');
    await reading;
    t.equal(balances.value.size, 0);
    balances.turnOn();
    await balances.refresh();
    t.equal(balances.value.size, 1);
    balances.turnOff();
    balances.turnOn();
    await balances.refresh();
    t.equal(balances.value.size, 1, 'not after ten seconds');
  },
);
