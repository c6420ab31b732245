/** A node that could not join comes back to the authority by itself, so that its first request is not refused for that. */
import t from 'tap';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { MemoryAuthority } from '#src/sharing/memory-authority.js';
import { EventTime, GOOD_NETWORK, LeaseNode, randomOf } from '../../support/lease-world.js';

const ACCOUNT = asAccountIndex(0);
const SUBJECT = 'acct_late';
const LIMITS = { requestsPerMinute: 60, callsPerDay: 1_000, callsInFlight: 10 };

void t.test('a start without the authority', async (t) => {
  const time = new EventTime();
  const shared = new MemoryAuthority(time.clock);
  shared.setCredited(SUBJECT, asPicoUnits(10n ** 12n));
  const node = new LeaseNode(
    time,
    shared,
    { host: 'host', slot: 0, incarnation: 'one' },
    { accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => LIMITS },
    randomOf(7),
    { ...GOOD_NETWORK, lost: 1 },
  );
  void node.keeper.start();
  await time.run(10_000);
  t.match(node.keeper.state, { lost: { reason: String }, exchanges: { sum: 0 } });
  node.authority.network = GOOD_NETWORK;
  // The pause between two tries is 3 s at the most.
  await time.run(5_000);
  t.match(node.keeper.state, { lost: undefined, subjects: 0 });
  t.equal(
    node.keeper.state.exchanges.counts.reduce((sum, count) => sum + count),
    1,
  );

  const before = node.authority.exchanges;
  await time.run(60_000);
  t.equal(node.authority.exchanges, before, 'an idle node says nothing');
  let end: string | undefined;
  void node.call(ACCOUNT, asPicoUnits(1_000n)).then((call) => (end = call.end));
  await time.run(100);
  t.equal(end, 'served');
});

void t.test(
  'money that lies idle comes back at once where it is recalled, but for what a call holds',
  async (t) => {
    const time = new EventTime();
    const shared = new MemoryAuthority(time.clock);
    shared.setCredited(SUBJECT, asPicoUnits(10n ** 12n));
    const node = new LeaseNode(
      time,
      shared,
      { host: 'host', slot: 0, incarnation: 'one' },
      { accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => LIMITS },
      randomOf(7),
    );
    const outstanding = (): bigint => shared.look([SUBJECT])[0]!.moneyOutstanding;
    void node.keeper.start();
    node.keeper.recallMoney(ACCOUNT);
    void node.call(ACCOUNT, asPicoUnits(1_000n));
    await time.run(1_000);
    t.ok(outstanding() > 1_000n, 'plenty is left, so it is kept for long');
    node.keeper.recallMoney(ACCOUNT);
    await time.run(10);
    t.equal(outstanding(), 1_000n);
  },
);
