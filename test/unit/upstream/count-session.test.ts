/** Calls that ask for a count of tokens, when the gateway itself counts and cannot. */
import t from 'tap';
import type { DownstreamHandle, UpstreamSession } from '#src/channel/messages.js';
import { DOOR_INDEX } from '#src/core/door-names.js';
import { startCountSession } from '#src/upstream/count-session.js';
import { FakeDownstream, requestOf } from '../../fixtures/upstream-server.js';

type Deps = Parameters<typeof startCountSession>[0];

void t.test('an exception of the count fails the call, not who told that the upstreams cannot', async (t) => {
  const crashes: unknown[] = [];
  let routes = 0;
  const deps = {
    routes: {
      routeOf: () => {
        if (routes++ > 0) throw new Error('a bug');
        return {
          targets: [{ doors: { messages: '/v1/messages', count_tokens: '/v1/messages/count_tokens' } }],
        };
      },
    },
    errors: { writeCrash: (error: unknown) => crashes.push(error) },
    clock: { monotonicMs: () => 0, wallMs: () => 0 },
  } as unknown as Deps;
  const downstream = new FakeDownstream();
  let inner: DownstreamHandle | undefined;
  const session: UpstreamSession = {
    onCredit: () => undefined,
    onCancel: () => undefined,
    onStop: () => undefined,
    crash: () => undefined,
  };
  startCountSession(deps, requestOf({ door: DOOR_INDEX.count_tokens }), downstream, (_request, handle) => {
    inner = handle;
    return session;
  });
  t.doesNotThrow(() => inner!.fail({ code: 'provider_unavailable', message: 'none can count' }));
  await downstream.ended;
  t.equal(downstream.error?.code, 'internal_error');
  t.equal(downstream.endings, 1);
  t.match(crashes, [{ message: 'a bug' }]);
});
