/** Workers that die at each start. All else of workers is in test/e2e/thread-failure.test.ts. */
import t from 'tap';
import { UpstreamWorkers } from '#src/gateway/upstream-workers.js';
import { createLeftCallTable } from '#src/upstream/left-calls.js';
import { createBudget } from '#src/upstream/worker-budget.js';
import { eventually } from '../../support/gateway.js';
import { ListLog } from '../store/support.js';

void t.test(
  'a worker that dies at each start is started ever more seldom, and not after close',
  async (t) => {
    const log = new ListLog();
    const workers = new UpstreamWorkers({
      workers: 1,
      inListeners: false,
      routes: [],
      // Cannot be sent to a thread, so that each start fails.
      calls: (() => undefined) as never,
      metrics: { buffers: {} as never, firstWorkerThread: 0 },
      upstreams: { buffers: {} as never, counters: { releaseWorker: () => undefined } as never },
      responses: createBudget(1, 1),
      leftCalls: createLeftCallTable(1, 1),
      counter: { serve: () => undefined } as never,
      credentials: { current: [], rejected: () => undefined },
      serveLeases: undefined,
      state: { traces: undefined },
      log,
    });
    let starts = 0;
    workers.start({ attachWorker: () => (starts += 1), detachWorker: () => undefined });
    await eventually('it has died three times', () => (log.fields.length >= 3 ? true : undefined));
    t.match(log.lines[0], /^error upstream worker died/);
    t.same(
      log.fields.map((fields) => (fields as { pause_ms: number }).pause_ms),
      [100, 200, 400],
    );
    const beganMs = performance.now();
    await workers.close();
    t.ok(performance.now() - beganMs < 350, 'the pause is not awaited');
    t.equal(starts, 3);
  },
);
