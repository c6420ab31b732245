/**
 * A process of a host is killed, and no other takes its slot: so it is with one that was to replace another,
 * or was being replaced. What it held comes back all the same.
 */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import type { Coordinator, StockGrant } from '#src/sharing/coordinator.js';
import { identity } from '../../support/authority-conformance.js';
import { NO_REDIS, startRedis } from '../../support/redis-server.js';
import { TestHost, ValkeyWorld } from '../../support/valkey-world.js';

const SCOPE = 'acct_1';
const NONE = { limit: 0n, period: 0, used: 0n, unused: 0n };
/** As `connect` of ValkeyWorld has it. */
const ENDED_AFTER_MS = 1_800_000;

async function money(node: Coordinator, amount: bigint, unused = 0n): Promise<StockGrant> {
  const balance = { ...NONE, unused, least: amount, most: amount };
  const { replies } = await node.exchange([{ scope: SCOPE, stocks: { balance } }]);
  return replies[0]!.stocks!.balance!;
}

void t.test(
  'the money of a killed process is free once it can have no call any more',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    const world = new ValkeyWorld(() => server.url);
    t.teardown(() => world.close());
    await world.credit(SCOPE, asPicoUnits(100n));
    const [host, otherHost] = [new TestHost(), new TestHost()];
    const killed = await world.connect(identity('a', 2), host);
    const alive = await world.connect(identity('a', 0), host);
    const other = await world.connect(identity('b'), otherHost);
    for (const node of [killed, alive, other]) await node.join();
    for (const node of [alive, other, killed]) await node.exchange([]);
    t.match(await money(killed, 60n), { granted: 60n });
    t.match(await money(other, 10n), { granted: 10n });
    // It was charged, and is in the store of the host.
    host.spend(SCOPE, 25n);

    world.nowMs += ENDED_AFTER_MS - 1_000;
    t.match(await money(alive, 20n), { granted: 0n, remaining: 5n }, 'it may have a call yet');
    await money(other, 0n, 10n);
    world.nowMs += 2_000;
    t.match(await money(other, 50n, 10n), { granted: 0n }, 'another host does not know what it has charged');
    t.match(await money(alive, 66n), { granted: 0n, remaining: 65n }, 'less what it has charged');
    t.match(await money(alive, 65n), { granted: 65n, remaining: 0n });
    t.match(await money(other, 1n, 10n), { granted: 0n }, 'and what others hold, though they were silent');

    const next = await world.connect(identity('a', 2), host);
    await next.join();
    await next.exchange([]);
    t.match(await money(alive, 1n, 65n), { granted: 0n, remaining: 0n }, 'it is not freed a second time');
  },
);
