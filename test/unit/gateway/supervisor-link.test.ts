/** What a gateway waits for when it tells its supervisor something. */
import { mock } from 'node:test';
import t from 'tap';
import type { FromGateway } from '#src/gateway/messages.js';
import { SupervisorLink } from '#src/gateway/supervisor-link.js';

void t.test('the last snapshot: not done before it has left the process', async (t) => {
  let onLeft = (): void => undefined;
  const sent: FromGateway[] = [];
  const link = new SupervisorLink((message) => {
    sent.push(message);
    return new Promise((resolve) => (onLeft = resolve));
  });
  let isDone = false as boolean;
  const done = link.reportLast({ accounts: [] }).then(() => (isDone = true));
  await new Promise((resolve) => setImmediate(resolve));
  t.same(sent, [{ kind: 'reading', id: 0, reading: { accounts: [] } }]);
  t.equal(isDone, false);
  onLeft();
  await done;
  t.equal(isDone, true);
});

void t.test('the last snapshot: a supervisor that stands still is waited for within a bound', async (t) => {
  const link = new SupervisorLink(() => new Promise(() => undefined));
  // A timer of the test's own: the bound's does not keep a process alive.
  const late = setTimeout(() => t.fail('nothing ended the wait'), 20_000);
  await link.reportLast({ accounts: [] });
  clearTimeout(late);
  t.pass('the gateway goes on to its last flush');
});

void t.test('a reload that takes too long: it may still be applied', async (t) => {
  t.teardown(() => mock.timers.reset());
  mock.timers.enable({ apis: ['setTimeout'] });
  const link = new SupervisorLink(() => Promise.resolve());
  const outcome = link.reload({ dryRun: false, restart: false });
  mock.timers.tick(600_000);
  const { applied, problems } = await outcome;
  t.same(applied, []);
  t.match(problems, [/^the reload has not ended within 120000 ms, and may still be applied/]);
});
