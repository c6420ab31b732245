/**
 * The history on disk: it outlasts the store's process, stays as large as its rings, and no row can stop a
 * start.
 */
import t from 'tap';
import { Store } from '#src/store/store.js';
import type { AccountSpan } from '#src/telemetry/account-history.js';
import { HISTORY_RINGS, type HistorySpan } from '#src/telemetry/history.js';

const span = (start: number, calls: number): HistorySpan => ({
  start,
  in_flight: 1,
  outcomes: { ok: calls },
});

void t.test('the seconds of a ring name it on disk', (t) => {
  const rings = Object.values(HISTORY_RINGS);
  t.equal(new Set(rings.map(({ seconds }) => seconds)).size, rings.length);
  t.end();
});

void t.test('spans come back in their order', async (t) => {
  const folder = t.testdir();
  const store = new Store(folder);
  t.same(store.history.read('1h'), []);
  const { seconds, spans } = HISTORY_RINGS['1h'];
  const start = 1_700_000_000 - (1_700_000_000 % seconds);
  // Twice around the ring and some more.
  const count = 2 * spans + 7;
  const spans1h = Array.from({ length: count }, (_, index) => ({
    ring: '1h' as const,
    span: span(start + index * seconds, index),
  }));
  store.history.put(spans1h, []);
  store.history.put([{ ring: '6h', span: span(60, 1) }], []);
  await store.close();
  const again = new Store(folder);
  const read = again.history.read('1h');
  t.equal(read.length, spans, 'a ring’s length and no more');
  t.same(read[0], span(start + (count - spans) * seconds, count - spans));
  t.same(read.at(-1), span(start + (count - 1) * seconds, count - 1));
  t.same(again.history.read('6h'), [span(60, 1)], 'each ring by itself');
  t.same(again.history.read('24h'), []);
  await again.close();
});

void t.test('a row that is no span is passed over', async (t) => {
  const store = new Store(t.testdir());
  const hostile = [{ start: 10 }, { in_flight: 1 }, null, []] as unknown as HistorySpan[];
  for (const [index, row] of hostile.entries()) {
    const place = { start: index * 10, toJSON: () => row } as unknown as HistorySpan;
    store.history.put([{ ring: '1h', span: place }], []);
  }
  store.history.put([{ ring: '1h', span: span(100, 2) }], []);
  t.same(store.history.read('1h'), [span(100, 2)]);
  await store.close();
});

void t.test('accounts have rows of their own', async (t) => {
  const folder = t.testdir();
  const store = new Store(folder);
  const figures = { calls: 2, prompt: 3, cached: 0, completion: 4, costPicoUnits: 5 };
  const accounts = (start: number): AccountSpan => ({ start, accounts: { acct_1: figures } });
  store.history.put([{ ring: '1h', span: span(10, 1) }], []);
  for (const start of [20, 10, 3_620]) store.history.put([], [{ ring: '1h', span: accounts(start) }]);
  store.history.put([], [{ ring: '6h', span: accounts(60) }]);
  for (const hostile of [{ start: 30 }, { start: 40, accounts: { acct_1: { calls: 2 } } }]) {
    store.history.put([], [{ ring: '1h', span: hostile as unknown as AccountSpan }]);
  }
  await store.close();
  const again = new Store(folder);
  t.same(
    again.history.readAccounts('1h'),
    [accounts(10), accounts(3_620)],
    'in the place of one an hour older',
  );
  t.same(again.history.readAccounts('6h'), [accounts(60)]);
  t.same(again.history.read('1h'), [span(10, 1)]);
  await again.close();
});
