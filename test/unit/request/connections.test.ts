/** New connections of a real µWS app: how many of their requests are read in one turn of the event loop. */
import { once } from 'node:events';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { Connections } from '#src/request/connections.js';
import type { ConnectBurst } from '../../fixtures/connect-burst.worker.js';
import { selfSigned } from '../../fixtures/upstream-certificate.js';
import { freePort } from '../../support/free-port.js';

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

const CERTIFICATE = selfSigned();
const SKIP = CERTIFICATE === undefined ? { skip: 'openssl is not installed' } : {};
/** Apps at a time, APPS_MAX of connections.ts. */
const APPS_MAX = 8;

void t.test('who is cut by a ninth certificate has not left by itself', SKIP, async (t) => {
  const { certificate, key } = CERTIFICATE!;
  const folder = t.testdir({ 'cert.pem': certificate, 'key.pem': key });
  const files = {
    certFile: join(folder, 'cert.pem'),
    keyFile: join(folder, 'key.pem'),
    passphrase: undefined,
  };
  const cutHere: boolean[] = [];
  let onCall = (): void => undefined;
  const connections = new Connections((app) => {
    app.get('/', (res) => {
      res.onAborted(() => cutHere.push(connections.isClosing));
      onCall();
    });
  });
  t.teardown(() => connections.close(() => undefined));
  const port = await freePort();
  t.equal(connections.listen('127.0.0.1', port, { ...files, digest: '0' }), true);
  /** A connection with a call that is not answered. */
  const call = async () => {
    const socket = connect({ port, host: '127.0.0.1', ca: certificate, servername: '' });
    const come = new Promise<void>((resolve) => (onCall = resolve));
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    await come;
    return socket;
  };
  const left = await call();
  left.destroy();
  while (cutHere.length === 0) await new Promise(setImmediate);
  t.strictSame(cutHere, [false], 'one that leaves');
  const cut = await call();
  const end = once(cut, 'close');
  for (let at = 1; at < APPS_MAX; at++) t.ok(connections.replaceTls({ ...files, digest: String(at) }));
  t.equal(cutHere.length, 1, 'eight have their connections');
  t.ok(connections.replaceTls({ ...files, digest: 'ninth' }));
  await end;
  t.strictSame(cutHere, [false, true]);
  t.equal(connections.isClosing, false, 'and the others go on');
});
