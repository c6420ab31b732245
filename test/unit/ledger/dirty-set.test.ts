import t from 'tap';
import { asAccountIndex } from '#src/core/units.js';
import { DirtySet } from '#src/ledger/dirty-set.js';
import { createLedgerBuffers, openLedgerViews } from '#src/ledger/layout.js';
import { interruptAt } from '../../fixtures/ledger-world.js';

const ACCOUNTS = 130;

function createDirtySet(accountsMax = ACCOUNTS): {
  dirty: DirtySet;
  other: DirtySet;
  drained: (max?: number) => number[];
} {
  const views = openLedgerViews(createLedgerBuffers({ accountsMax, callsInFlightMax: 1 }));
  const dirty = new DirtySet(views.accounts);
  const drained = (max = accountsMax): number[] => {
    const accounts: number[] = [];
    t.equal(
      dirty.drain((account) => accounts.push(account), max),
      accounts.length,
    );
    return accounts.sort((a, b) => a - b);
  };
  return { dirty, other: new DirtySet(views.accounts), drained };
}

void t.test('each marked account is visited once', (t) => {
  const { dirty, drained } = createDirtySet();
  t.same(drained(), []);
  const marked = [0, 1, 30, 31, 32, 63, 64, 129];
  for (const account of [...marked, ...marked]) dirty.mark(asAccountIndex(account));
  t.same(drained(), marked);
  t.same(drained(), []);
  for (let account = 0; account < ACCOUNTS; account++) dirty.mark(asAccountIndex(account));
  t.equal(drained().length, ACCOUNTS);
  t.end();
});

void t.test('a bounded drain leaves the rest, and comes round to all of it', (t) => {
  const { dirty, drained } = createDirtySet();
  for (let account = 0; account < ACCOUNTS; account++) dirty.mark(asAccountIndex(account));
  const seen = new Set<number>();
  for (let drain = 0; drain < 5; drain++) {
    for (const account of drained(33)) seen.add(account);
    dirty.mark(asAccountIndex(0));
  }
  t.equal(seen.size, ACCOUNTS, 'an account that is always dirty does not starve the others');
  t.same(drained(), [0]);
  t.throws(() => drained(31), /at least 32/);
  t.end();
});

void t.test('pages that are clean are passed over, and no account with them', (t) => {
  // Two pages and a part of one: a page has a bit for 32,768 accounts.
  const accountsMax = 70_000;
  const { dirty, drained } = createDirtySet(accountsMax);
  const edges = [0, 32_767, 32_768, 65_535, 65_536, 69_999];
  for (const edge of edges) {
    dirty.mark(asAccountIndex(edge));
    t.same(drained(), [edge]);
  }
  for (const edge of edges) dirty.mark(asAccountIndex(edge));
  t.same(drained(), edges);
  for (let account = 32_700; account < 32_900; account++) dirty.mark(asAccountIndex(account));
  const seen = new Set<number>();
  for (let drain = 0; drain < 7; drain++) {
    for (const account of drained(33)) seen.add(account);
    dirty.mark(asAccountIndex(40_000));
  }
  t.equal(seen.size, 201, 'a drain that stopped within a page goes on there');
  t.same(drained(), [40_000]);
  t.same(drained(), []);
  t.end();
});

void t.test(
  'a change that races with a drain, at any step of either, is seen by this drain or the next',
  (t) => {
    const account = asAccountIndex(33);
    for (const wasMarked of [false, true]) {
      for (const writerIsStopped of [false, true]) {
        for (let step = 0, reached = true; reached; step++) {
          const { dirty, other } = createDirtySet();
          let value = 0;
          let stored = 0;
          const write = (): void => {
            value = 1;
            other.mark(account);
          };
          const drain = (): void => {
            dirty.drain(() => (stored = value), ACCOUNTS);
          };
          if (wasMarked) other.mark(account);
          const [stopped, intruder] = writerIsStopped ? [write, drain] : [drain, write];
          reached = interruptAt(step, stopped, intruder);
          if (!reached) intruder();
          drain();
          t.equal(stored, 1);
        }
      }
    }
    t.end();
  },
);

void t.test('a visit that throws loses no account, neither its own nor a later one', (t) => {
  const marked = [0, 5, 31, 40, 129];
  for (const failing of marked) {
    const { dirty, drained } = createDirtySet();
    for (const account of marked) dirty.mark(asAccountIndex(account));
    const visited: number[] = [];
    const visit = (account: number): void => {
      if (account === failing) throw new Error('no room');
      visited.push(account);
    };
    t.throws(() => dirty.drain(visit, ACCOUNTS), /no room/);
    t.same([...visited, ...drained()], marked, `account ${failing} fails`);
  }
  t.end();
});
