/** What one scope leases, with a real ledger and coordinator: a scope in use keeps what its calls need. */
import t from 'tap';
import { NO_QUOTAS, type QuotaLimits } from '#src/core/quotas.js';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { MemoryCoordinator } from '../../support/memory-coordinator.js';
import { EventTime, GOOD_NETWORK, LeaseNode } from '../../support/lease-world.js';
import { randomOf } from '../../support/random.js';

const ACCOUNT = asAccountIndex(0);
const PLAYED_MS = 120_000;
const UNLIMITED = { requestsPerMinute: 0, callsPerDay: 1_000_000, callsInFlight: 100_000 };

/** A call each `gapMs`, of `callMs`. Returns how many of the calls waited for the coordinator. */
async function countWaits(
  { account, group }: { account?: Partial<typeof UNLIMITED>; group?: Partial<QuotaLimits> },
  gapMs: number,
  callMs: number,
): Promise<number> {
  const time = new EventTime();
  const shared = new MemoryCoordinator(time.clock);
  shared.setCredited('acct', asPicoUnits(10n ** 15n));
  const limits = { ...UNLIMITED, ...account };
  const subjects = {
    accountsMax: 1,
    subjectOf: () => 'acct',
    limitsOf: () => limits,
    groups: group === undefined ? [] : [{ id: 'grp', limits: { ...NO_QUOTAS, ...group } }],
  };
  const identity = { host: 'host', slot: 0, incarnation: 'one' };
  const node = new LeaseNode(time, shared, identity, subjects, randomOf(7), GOOD_NETWORK);
  void node.keeper.start();
  await time.run(1_000);
  const endMs = time.nowMs + PLAYED_MS;
  let waits = 0;
  while (time.nowMs < endMs) {
    const sinceMs = time.nowMs;
    void node.call(ACCOUNT, asPicoUnits(1_000n)).then(({ end, slot }) => {
      if (time.nowMs > sinceMs) waits += 1;
      if (end !== 'served') t.fail(`a call ended as ${end}`);
      else
        time.after(callMs, () => {
          node.endCall(ACCOUNT, slot!, asPicoUnits(900n));
          node.flush();
        });
    });
    // A call that finds all it needs goes on before the clock does.
    await new Promise(setImmediate);
    await time.run(gapMs);
  }
  return waits;
}

const SHAPES = [
  { name: 'an account with a minute', account: { requestsPerMinute: 60_000 } },
  { name: 'an account without a minute', account: {} },
  {
    name: 'a group with slots alone',
    account: { requestsPerMinute: 60_000 },
    group: { callsInFlight: 1_000 },
  },
  {
    name: 'a group with a month alone',
    account: { requestsPerMinute: 60_000 },
    group: { callsPerMonth: 1_000_000 },
  },
] as const;

for (const { name, ...limited } of SHAPES)
  void t.test(`calls of ${name} do not wait while the scope is in use`, async (t) => {
    for (const [gapMs, callMs] of [
      [100, 50],
      [100, 500],
      [1_000, 300],
      [1_000, 3_000],
    ] as const) {
      const waits = await countWaits(limited, gapMs, callMs);
      t.ok(waits <= 2, `${waits} waited, of calls of ${callMs} ms each ${gapMs} ms`);
    }
  });
