/** What a gateway waits for when it tells its supervisor something. */
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
