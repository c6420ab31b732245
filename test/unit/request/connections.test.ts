/** New connections of a real µWS app: how many of their requests are read in one turn of the event loop. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { Connections } from '#src/request/connections.js';
import type { ConnectBurst } from '../../fixtures/connect-burst.worker.js';
import { freePort } from '../../support/redis-server.js';

const COUNT = 200;
const LEAVERS = 50;
/** Those that a turn accepts and reads, and those that its predecessor has resumed. */
const REQUESTS_A_TURN_MAX = 16;
const BURST_MS_MAX = 30_000;

void t.test('new connections are read by turns, and who leaves before its turn harms nobody', async (t) => {
  let inTurn = 0;
  let most = 0;
  let open = 0;
  const connections = new Connections((app) => {
    app.filter((_, change) => {
      open += Number(change);
    });
    app.post('/', (res) => {
      if (inTurn === 0) setImmediate(() => (inTurn = 0));
      most = Math.max(most, ++inTurn);
      res.onAborted(() => undefined);
      res.onData((_, isLast) => {
        if (isLast) res.cork(() => res.end('ok'));
      });
    });
  });
  t.teardown(() => connections.close(() => undefined));
  const port = await freePort();
  t.equal(connections.listen('127.0.0.1', port, undefined), true);

  const sent = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  const worker = new Worker(new URL('../../fixtures/connect-burst.worker.js', import.meta.url), {
    workerData: { port, count: COUNT, leavers: LEAVERS, sent } satisfies ConnectBurst,
  });
  const answers = once(worker, 'message') as Promise<[string[]]>;
  await once(worker, 'online');
  // The kernel accepts them meanwhile, so that one turn finds them all.
  Atomics.wait(sent, 0, 0, BURST_MS_MAX);
  const [statuses] = await answers;
  t.strictSame(
    statuses,
    Array.from({ length: COUNT - LEAVERS }, () => 'HTTP/1.1 200'),
  );
  t.ok(most <= REQUESTS_A_TURN_MAX, `at most ${most} requests in a turn`);
  await worker.terminate();
  while (open > 0) await new Promise(setImmediate);
  t.pass('no connection is left');
});
