/** What the server of a listener does while it closes. Its routes: test/e2e, test/hostile. */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import type { CallTracer } from '#src/request/call-trace.js';
import type { IntakeContext } from '#src/request/context.js';
import { ListenerServer } from '#src/request/listener-server.js';

/** Two sweeps are at most so far apart: see onEachTick. */
const SWEEP_MS_MAX = 1_005;

void t.test(
  'pending commits are swept until the last call is settled, or it would wait for ever',
  async (t) => {
    let sweeps = 0;
    let settle: (() => void) | undefined;
    const listener = {
      clock: new SystemClock(),
      catalog: { models: [], plans: [] },
      sweeps: [],
      pendingCommits: { onSweep: () => (sweeps += 1) },
      channel: { stopLeftCalls: () => undefined },
      connections: { close: (onSettled: () => void) => (settle = onSettled) },
    } as unknown as IntakeContext;
    const server = new ListenerServer(listener, undefined, 'p', undefined as unknown as CallTracer);
    let isSettled = false;
    server.close(() => (isSettled = true));
    await sleep(2 * SWEEP_MS_MAX);
    t.ok(sweeps > 0);
    t.notOk(isSettled);
    settle!();
    t.ok(isSettled);
    const before = sweeps;
    await sleep(2 * SWEEP_MS_MAX);
    t.equal(sweeps, before, 'then they end');
  },
);
