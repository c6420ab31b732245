/** What operators are shown: the status of the coordinator, since when, and that of the hosts' registry. */
import t from 'tap';
import { CoordinatorContact } from '#src/sharing/coordinator-contact.js';
import { CoordinatorLost } from '#src/sharing/coordinator.js';
import { sharingSnapshot, type SharingContext } from '#src/sharing/sharing-stats.js';

const HOSTS = {
  leaseCoordinator: { isAlone: false, silentMs: 120_000 },
  registry: { kind: 'following' },
} as const;

function partsOf(contact: CoordinatorContact, hosts: SharingContext['hosts'], nowMs: number): SharingContext {
  return { manager: { ...contact.state, scopes: 2, waits: 3 }, hosts, nowMs };
}

void t.test('from connected over lost and quarantine to connected', (t) => {
  const contact = new CoordinatorContact(() => 0);
  contact.recordReply(1_000, 1_004);
  t.match(sharingSnapshot(partsOf(contact, undefined, 2_000)), {
    with: 'processes',
    state: 'connected',
    reason: undefined,
    lostMs: 0,
    failures: 0,
    leased: 2,
    waits: 3,
    registry: undefined,
  });
  contact.recordFailure(new CoordinatorLost('unreachable', 'no route'), 3_000);
  contact.recordFailure(new CoordinatorLost('quarantine', 'it has lost its data'), 4_000);
  t.match(sharingSnapshot(partsOf(contact, HOSTS, 5_000)), {
    with: 'hosts',
    state: 'quarantine',
    reason: /^it has lost its data/,
    lostMs: 2_000,
    failures: 2,
    registry: { state: 'following', reason: undefined },
  });
  const leaseCoordinator = { isAlone: true, silentMs: 120_000 };
  const registry = { kind: 'lost', reason: 'offline' } as const;
  t.match(sharingSnapshot(partsOf(contact, { leaseCoordinator, registry }, 5_000)), {
    state: 'alone',
    lostMs: 120_000,
    registry: { state: 'lost', reason: 'offline' },
  });
  contact.recordReply(6_000, 6_900);
  const { state, exchanges } = sharingSnapshot(partsOf(contact, HOSTS, 7_000));
  t.equal(state, 'connected');
  t.match(exchanges, { sum: 904 });
  t.equal(exchanges.counts[exchanges.bounds.indexOf(5)], 1);
  t.equal(exchanges.counts[exchanges.bounds.indexOf(1_000)], 1);
  t.end();
});
