/** A bug before a call has a session fails that call alone; which client calls which target. */
import t from 'tap';
import type { StartSession, UpstreamSession } from '#src/channel/messages.js';
import type { Usage } from '#src/core/token-counts.js';
import { ErrorLog } from '#src/upstream/error-log.js';
import { CRASHED } from '#src/upstream/error-mapping.js';
import { clientOf, guarded, type SessionShared } from '#src/upstream/session-shared.js';
import { ECHO_ORIGIN } from '#src/upstream/target.js';
import { ManualClock } from '../../fixtures/manual-clock.js';
import { FakeDownstream, FakeLog, targetOf } from '../../fixtures/upstream-server.js';

type Request = Parameters<StartSession>[0];

function guardedStart(start: StartSession) {
  const log = new FakeLog();
  const downstream = new FakeDownstream();
  const guardedOne = guarded(new ErrorLog(log, new ManualClock()), start);
  return { log, downstream, run: () => guardedOne({} as Request, downstream) };
}

void t.test('a start that throws fails its call once, and is logged', (t) => {
  const { log, downstream, run } = guardedStart(() => {
    throw new Error('no route');
  });
  const session = run();
  t.equal(downstream.error, CRASHED);
  t.equal(downstream.endings, 1);
  t.match(log.lines, [{ level: 'error', fields: { cause: /no route/ } }]);
  // The channel may still have frames for it.
  session.onCredit();
  session.onCancel();
  session.onStop();
  session.crash(new Error('x'));
  t.equal(downstream.endings, 1);
  t.equal(log.lines.length, 1);
  t.end();
});

void t.test('a start that throws after it has ended its call ends it once, and is logged', (t) => {
  const log = new FakeLog();
  for (const end of ['end', 'fail'] as const) {
    const downstream = new FakeDownstream();
    const start = guarded(new ErrorLog(log, new ManualClock()), () => {
      if (end === 'end') downstream.end(new Uint8Array(0), {} as Usage);
      else downstream.fail({ code: 'overloaded', message: 'no room' });
      throw new Error(`after ${end}`);
    });
    start({} as Request, downstream);
    t.equal(downstream.endings, 1, end);
    t.not(downstream.error, CRASHED);
  }
  t.match(log.lines, [{ fields: { cause: /after end/ } }, { fields: { cause: /after fail/ } }]);
  t.end();
});

void t.test('a start that does not throw is the session itself', (t) => {
  const started = { onCredit: () => undefined } as UpstreamSession;
  const { log, downstream, run } = guardedStart(() => started);
  t.equal(run(), started);
  t.equal(downstream.endings, 0);
  t.same(log.lines, []);
  t.end();
});

void t.test('a provider comes before the echo, and the echo before HTTP', (t) => {
  const shared = { http: 'http', echo: 'echo', providers: 'providers' } as unknown as SessionShared;
  const provider = {} as NonNullable<ReturnType<typeof targetOf>['provider']>;
  const clientFor = (...of: Parameters<typeof targetOf>): unknown => clientOf(shared, targetOf(...of));
  t.equal(clientFor('http://a'), 'http');
  t.equal(clientFor(ECHO_ORIGIN), 'echo');
  t.equal(clientFor(ECHO_ORIGIN, { provider }), 'providers');
  t.equal(clientFor('http://a', { provider }), 'providers');
  t.end();
});
