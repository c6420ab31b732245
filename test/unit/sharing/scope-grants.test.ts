import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { ScopeGrants } from '#src/sharing/scope-grants.js';
import { MemoryCoordinator } from '../../support/memory-coordinator.js';
import { ManualClock } from '../../fixtures/manual-clock.js';
import { authorityConformance, identity } from '../../support/authority-conformance.js';

authorityConformance(t, 'memory', () => {
  const clock = new ManualClock();
  const authority = new MemoryCoordinator(clock);
  const credited = new Map<string, bigint>();
  return Promise.resolve({
    connect: (node) => Promise.resolve(authority.connect(node)),
    credit: (subject, amount) => {
      const total = (credited.get(subject) ?? 0n) + amount;
      credited.set(subject, total);
      authority.setCredited(subject, asPicoUnits(total));
      return Promise.resolve();
    },
    spend: (_host, subject, amount) => {
      authority.addSpent(subject, amount);
      return Promise.resolve();
    },
    clock,
    close: () => Promise.resolve(),
  });
});

void t.test('an exchange that is not newer than the last is refused and changes nothing', (t) => {
  const authority = new MemoryCoordinator(new ManualClock());
  const node = identity('a');
  authority.join(node);
  const ask = {
    scope: 'acct_1',
    minute: { limit: 10, least: 1, most: 1, forMs: 0, returned: [] },
  };
  authority.exchange(node, 2, [ask]);
  for (const sequence of [1, 2]) {
    t.throws(() => authority.exchange(node, sequence, [ask]), { code: 'authority_lost', reason: 'failing' });
  }
  t.equal(authority.view(['acct_1'])[0]!.minute.weighing, 1);
  t.equal(authority.exchange(node, 3, [ask]).replies[0]!.minute!.granted, 1);
  t.end();
});

void t.test('money is granted of what is credited and not spent now', (t) => {
  let spent = asPicoUnits(10n);
  const grants = new ScopeGrants(() => ({ credited: asPicoUnits(10n), spent }));
  const balance = { limit: 0n, period: 0, used: 0n, unused: 0n, least: 1n, most: 100n };
  const ask = { scope: 'acct_1', stocks: { balance } };
  t.match(grants.reply('a:0', ask, 0, () => 0).stocks, { balance: { granted: 0n, remaining: 0n } });
  spent = asPicoUnits(7n);
  t.match(grants.reply('a:0', ask, 0, () => 0).stocks, { balance: { granted: 1n, remaining: 2n } });
  t.equal(grants.view('acct_1', [], 0).spent, 7n);
  t.end();
});
