/** What a node has granted to itself stays on record until the server has replied to it. */
import t from 'tap';
import {
  EXCHANGE_ASKS_MAX,
  type LeaseAsk,
  type LeaseReply,
  type StockAsk,
} from '#src/sharing/coordinator.js';
import { UnreportedAsks } from '#src/sharing/replies-alone.js';

const DAY = 20_000;

function askOf(scope: string, stock: Partial<StockAsk>, name = 'calls_per_day' as const): LeaseAsk {
  const all = { limit: 100n, period: DAY, used: 0n, unused: 0n, least: 1n, most: 9n, ...stock };
  return { scope, stocks: { [name]: all } };
}

function grantOf(granted: bigint, period = DAY): LeaseReply {
  const stock = { granted, remaining: 0n, heldByOthers: true, period, freeInMs: 0 };
  return { stocks: { calls_per_day: stock } };
}

void t.test('an ask that is recorded while an earlier one is reported stays', (t) => {
  const asks = new UnreportedAsks();
  asks.record(askOf('a', { used: 1n, unused: 2n }), grantOf(3n));
  const page = asks.page();
  t.match(page, [{ scope: 'a', stocks: { calls_per_day: { used: 1n, unused: 5n, least: 0n, most: 0n } } }]);
  asks.record(askOf('a', { used: 4n, unused: 1n }), grantOf(2n));
  asks.reported(page);
  t.equal(asks.size, 1);
  const newest = asks.page();
  t.match(newest, [{ stocks: { calls_per_day: { used: 4n, unused: 3n } } }]);
  asks.reported(newest);
  t.equal(asks.size, 0);
  t.end();
});

void t.test('an ask of other stocks leaves those before on record', (t) => {
  const asks = new UnreportedAsks();
  asks.record(askOf('a', { unused: 2n }), grantOf(3n));
  asks.record({ scope: 'a' }, {});
  t.match(asks.page(), [{ stocks: { calls_per_day: { unused: 5n } } }]);
  t.end();
});

void t.test('a later period of which nothing was granted replaces no earlier one', (t) => {
  const asks = new UnreportedAsks();
  asks.record(askOf('a', { used: 5n }), grantOf(3n));
  asks.record(askOf('a', { period: DAY + 400 }), grantOf(0n));
  t.match(asks.page(), [{ stocks: { calls_per_day: { period: DAY, used: 5n, unused: 3n } } }]);
  asks.record(askOf('a', { period: DAY + 1 }), grantOf(1n));
  t.match(asks.page(), [{ stocks: { calls_per_day: { period: DAY + 1, used: 0n, unused: 1n } } }]);
  t.end();
});

void t.test('a page is no larger than an exchange', (t) => {
  const asks = new UnreportedAsks();
  for (let scope = 0; scope <= EXCHANGE_ASKS_MAX; scope++) asks.record(askOf(`a${scope}`, {}), grantOf(1n));
  t.equal(asks.page().length, EXCHANGE_ASKS_MAX);
  asks.reported(asks.page());
  t.same(
    asks.page().map(({ scope }) => scope),
    [`a${EXCHANGE_ASKS_MAX}`],
  );
  t.end();
});
