/** The HTTP client against a scripted upstream. */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { Worker } from 'node:worker_threads';
import t, { type Test } from 'tap';
import { type Clock, SystemClock } from '#src/core/clock.js';
import type { MonotonicMs } from '#src/core/units.js';
import type { HeaderLookup, HeaderName, HttpCall, HttpFault, HttpHandler } from '#src/http1/http-client.js';
import type { UpstreamTarget } from '#src/upstream/target.js';
import { Http1Client } from '#src/http1/client.js';
import { closedOrigin, startUpstream, targetOf, type Script } from '../../fixtures/upstream-server.js';

class Recorder implements HttpHandler {
  status = 0;
  header: HeaderLookup = () => undefined;
  bytes = 0;
  text = '';
  fault: HttpFault | undefined;
  endings = 0;
  onChunk: () => void = () => undefined;
  readonly over: Promise<void>;
  #resolve: () => void = () => undefined;

  constructor() {
    this.over = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  onStart(status: number, header: HeaderLookup): void {
    this.status = status;
    this.header = header;
  }

  onData(chunk: Uint8Array): void {
    this.bytes += chunk.length;
    if (chunk.length < 1_000) this.text += Buffer.from(chunk).toString('utf8');
    this.onChunk();
  }

  onEnd(): void {
    this.endings++;
    this.#resolve();
  }

  onError(fault: HttpFault): void {
    this.endings++;
    this.fault = fault;
    this.#resolve();
  }
}

interface World {
  readonly client: Http1Client;
  readonly upstream: Awaited<ReturnType<typeof startUpstream>>;
  readonly call: (changes?: Partial<UpstreamTarget>) => { recorder: Recorder; call: HttpCall };
}

class CountingClock extends SystemClock {
  readings = 0;

  override monotonicMs(): MonotonicMs {
    this.readings++;
    return super.monotonicMs();
  }
}

async function world(t: Test, script: Script, clock: Clock = new SystemClock()): Promise<World> {
  const upstream = await startUpstream(script);
  const client = new Http1Client({ clock, version: '1.2.3' });
  t.teardown(async () => {
    await client.close();
    await upstream.close();
  });
  const targets = new Map<string, UpstreamTarget>();
  return {
    client,
    upstream,
    call(changes = {}) {
      const key = JSON.stringify(changes);
      const target = targets.get(key) ?? targetOf(upstream.origin, changes);
      targets.set(key, target);
      const recorder = new Recorder();
      return { recorder, call: client.start(target, '{"a":1}', 'req-9', recorder) };
    },
  };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

void t.test('what goes up and what comes down', async (t) => {
  const { upstream, call } = await world(t, (_request, response) => {
    response.writeHead(201, { 'X-Some': 'Value', 'content-type': 'application/json' });
    response.end('answer');
  });
  const { recorder } = call({ headers: { 'X-Extra': 'yes', 'User-Agent': 'mine' } });
  await recorder.over;
  t.equal(recorder.status, 201);
  t.equal(recorder.header('x-some' as HeaderName), 'Value');
  t.equal(recorder.header('x-none' as HeaderName), undefined);
  t.equal(recorder.text, 'answer');
  t.equal(recorder.endings, 1);
  const { headers, body, path } = upstream.requests[0]!;
  t.equal(path, '/v1/chat/completions');
  t.equal(body, '{"a":1}');
  t.match(headers, {
    'content-type': 'application/json',
    'accept-encoding': 'identity',
    authorization: 'Bearer sk-provider-secret',
    'x-request-id': 'req-9',
    'x-extra': 'yes',
    'user-agent': 'mine',
    'content-length': '7',
  });
  const plain = call({ key: undefined });
  await plain.recorder.over;
  t.equal(upstream.requests[1]?.headers.authorization, undefined);
  t.equal(upstream.requests[1]?.headers['user-agent'], 'tollgate/1.2.3');
});

void t.test('connections are kept, one call at a time on each', async (t) => {
  const { upstream, call } = await world(t, (_request, response) => response.end('x'));
  for (let count = 0; count < 5; count++) {
    await call().recorder.over;
    await turn();
  }
  t.equal(upstream.connections, 1);
  await Promise.all(Array.from({ length: 10 }, () => call().recorder.over));
  t.ok(upstream.connections > 5);
});

void t.test(
  'a call on a kept connection waits for one turn of the loop, and one at rest turns no loop',
  async (t) => {
    const { upstream, call } = await world(t, (_request, response) => response.end('x'));
    const pair = [call(), call()];
    for (const { recorder } of pair) {
      await recorder.over;
      t.notOk(process.getActiveResourcesInfo().includes('Immediate'));
    }
    await turn();
    const first = call();
    await turn();
    const second = call();
    t.notOk(first.call.sent, 'the loop has read nothing since it began');
    await turn();
    t.ok(first.call.sent);
    t.notOk(second.call.sent);
    await turn();
    t.ok(second.call.sent, 'whatever the first waited for');
    await Promise.all([first.recorder.over, second.recorder.over]);
    t.equal(upstream.connections, 2);
  },
);

void t.test('nobody listens', async (t) => {
  const { call } = await world(t, () => undefined);
  const { recorder } = call({ origin: await closedOrigin() });
  await recorder.over;
  t.equal(recorder.fault?.code, 'ECONNREFUSED');
  t.equal(recorder.fault?.repeatable, true);
});

void t.test('reset before a byte: repeatable on a connection that had served before alone', async (t) => {
  let calls = 0;
  const { call } = await world(t, (request, response) => {
    calls++;
    if (calls === 2) response.end('x');
    else request.socket.resetAndDestroy();
  });
  const fresh = call();
  await fresh.recorder.over;
  t.ok(fresh.recorder.fault);
  t.equal(fresh.recorder.fault?.repeatable, false);
  t.equal(fresh.call.sent, true);
  await call().recorder.over;
  await turn();
  const kept = call();
  await kept.recorder.over;
  t.equal(calls, 3);
  t.equal(kept.recorder.fault?.repeatable, true);
});

void t.test('reset in the middle of an answer', async (t) => {
  const { call } = await world(t, (request, response) => {
    response.write('half', () => request.socket.resetAndDestroy());
  });
  const { recorder } = call();
  await recorder.over;
  t.equal(recorder.status, 200);
  t.equal(recorder.fault?.repeatable, false);
  t.equal(recorder.endings, 1);
});

void t.test('the timeouts, each by its name', async (t) => {
  const closed: Promise<unknown>[] = [];
  const { call } = await world(t, (request, response) => {
    // A connection may end by a reset.
    const { socket } = request;
    socket.on('error', () => undefined);
    closed.push(new Promise((resolve) => socket.once('close', resolve)));
    if (request.url === '/half') response.write('half');
    if (request.url === '/drip') {
      const drip = setInterval(() => response.write('x'), 20);
      response.on('close', () => clearInterval(drip));
    }
  });
  for (const [changes, code] of [
    [{ firstByteTimeoutMs: 100 }, 'TIMEOUT_FIRST_BYTE'],
    [{ path: '/half', idleTimeoutMs: 100 }, 'TIMEOUT_IDLE'],
    [{ path: '/drip', totalTimeoutMs: 250 }, 'TIMEOUT_TOTAL'],
  ] as const) {
    const startMs = performance.now();
    const { recorder } = call(changes);
    await recorder.over;
    t.equal(recorder.fault?.code, code);
    t.equal(recorder.fault?.repeatable, false);
    t.equal(recorder.endings, 1);
    t.ok(performance.now() - startMs < 20_000, 'by its own timeout, and not by the others');
  }
  await Promise.all(closed);
  t.equal(closed.length, 3, 'the connections were closed');
});

void t.test(
  'nothing is looked at without calls and connections, little at kept ones, and the next call has its timeouts',
  async (t) => {
    const clock = new CountingClock();
    const { call } = await world(
      t,
      ({ url }, response) => {
        if (url === '/whole') response.setHeader('connection', 'close').end('x');
        if (url === '/kept') response.end('x');
      },
      clock,
    );
    await sleep(300);
    t.equal(clock.readings, 0, 'before the first call');
    await call({ path: '/whole' }).recorder.over;
    await sleep(1_500);
    clock.readings = 0;
    await sleep(300);
    t.equal(clock.readings, 0, 'after the last connection');
    await call({ path: '/kept' }).recorder.over;
    await sleep(2_500);
    clock.readings = 0;
    await sleep(2_000);
    t.ok(clock.readings >= 1 && clock.readings <= 6, `${clock.readings} readings at rest`);
    const last = call({ firstByteTimeoutMs: 60 });
    const begunMs = performance.now();
    await last.recorder.over;
    t.equal(last.recorder.fault?.code, 'TIMEOUT_FIRST_BYTE');
    t.ok(performance.now() - begunMs < 900, 'looked at as often as before');
  },
);

void t.test('a call that finds no connection in time has not been sent', async (t) => {
  const { call } = await world(t, () => undefined);
  // TEST-NET-1: no route, or a route to nobody.
  const { recorder, call: running } = call({ origin: 'http://192.0.2.1:9', connectTimeoutMs: 200 });
  await recorder.over;
  t.equal(running.sent, false);
  t.equal(recorder.fault?.repeatable, true);
});

void t.test('abort closes the socket at once, and nothing is heard after', async (t) => {
  const { upstream, call } = await world(t, (request, response) => {
    if (request.url !== '/silent') response.write('x');
  });
  for (const path of ['/silent', '/begun']) {
    const { recorder, call: running } = call({ path });
    const before = upstream.requests.length;
    while (upstream.requests.length === before || (path === '/begun' && recorder.bytes === 0)) await turn();
    const [socket] = upstream.sockets;
    const closed = once(socket!, 'close');
    const startMs = performance.now();
    running.abort();
    running.abort();
    await closed;
    // A millisecond or two; the shortest timeout that could close it instead takes 30 s.
    t.ok(performance.now() - startMs < 5_000, `${path}: ${(performance.now() - startMs).toFixed(1)} ms`);
    await turn();
    t.equal(recorder.endings, 0);
    t.equal(running.sent, true);
  }
});

void t.test('abort before a connection: nothing is sent', async (t) => {
  const { upstream, call } = await world(t, (_request, response) => response.end('x'));
  const aborted = call();
  aborted.call.abort();
  t.equal(aborted.call.sent, false);
  const other = call();
  await other.recorder.over;
  t.equal(other.recorder.text, 'x');
  t.equal(aborted.recorder.endings, 0);
  t.equal(upstream.requests.length, 1);
});

void t.test('pause stops the upstream at its socket, resume goes on', async (t) => {
  const total = 32 * 1024 * 1024;
  const piece = Buffer.alloc(64 * 1024, 'a');
  let written = 0;
  const { call } = await world(t, (_request, response) => {
    const write = (): void => {
      while (written < total) {
        written += piece.length;
        if (!response.write(piece)) {
          response.once('drain', write);
          return;
        }
      }
      response.end();
    };
    write();
  });
  const { recorder, call: running } = call({ idleTimeoutMs: 150 });
  recorder.onChunk = () => running.pause();
  while (recorder.bytes === 0) await turn();
  // The kernel's buffers fill up, then nothing moves: not here, not there, and no timeout strikes.
  let before = -1;
  while (before !== written) {
    before = written;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await new Promise((resolve) => setTimeout(resolve, 200));
  t.equal(written, before);
  t.ok(written < total, `${written} of ${total} bytes written`);
  t.ok(recorder.bytes <= 2 * 64 * 1024, `${recorder.bytes} bytes came through`);
  t.equal(recorder.endings, 0);
  recorder.onChunk = () => undefined;
  running.resume();
  await recorder.over;
  t.equal(recorder.bytes, total);
  t.equal(recorder.fault, undefined);
});

void t.test('a pause before the head is a bug that shows, and the call goes on', async (t) => {
  let respond: () => void = () => undefined;
  const { call } = await world(t, (_request, response) => (respond = () => response.end('body')));
  const { recorder, call: running } = call();
  t.throws(() => running.pause(), /after its head/, 'without a connection');
  running.resume();
  while (!running.sent) await turn();
  await sleep(20);
  t.throws(() => running.pause(), /after its head/, 'while the response is awaited');
  respond();
  await recorder.over;
  t.equal(recorder.text, 'body');
  running.pause();
  t.equal(recorder.endings, 1, 'after the end a pause does nothing');
});

void t.test('what is no HTTP, a cut body, a bad header of ours, close', async (t) => {
  const { client, call } = await world(t, (request, response) => {
    if (request.url === '/garbage') request.socket.end('hello\r\n\r\n');
    else if (request.url === '/cut') {
      response.writeHead(200, { 'content-length': '10' });
      response.write('half', () => request.socket.destroy());
    }
  });
  for (const changes of [{ path: '/garbage' }, { path: '/cut' }, { headers: { bad: 'a\nb' } }]) {
    const { recorder } = call(changes);
    t.equal(recorder.endings, 0, 'nothing is said before start has returned');
    await recorder.over;
    t.ok(recorder.fault, recorder.fault?.code ?? 'no fault');
    t.equal(recorder.endings, 1);
  }
  const hanging = call({ path: '/hang' });
  while (!hanging.call.sent) await turn();
  await client.close();
  await hanging.recorder.over;
  t.ok(hanging.recorder.fault);
});

void t.test('loads and works in a thread without code from strings', async (t) => {
  const upstream = await startUpstream((_request, response) => response.end('fine'));
  t.teardown(() => upstream.close());
  setFlagsFromString('--disallow-code-generation-from-strings');
  try {
    const worker = new Worker(new URL('../../fixtures/upstream-no-codegen.js', import.meta.url), {
      workerData: upstream.origin,
    });
    const [message] = (await once(worker, 'message')) as [unknown];
    t.strictSame(message, { codeFromStrings: false, outcome: '200fine' });
    await worker.terminate();
  } finally {
    setFlagsFromString('--no-disallow-code-generation-from-strings');
  }
});

void t.test('the cap of connections: more calls wait, and are told apart when none comes free', async (t) => {
  const { upstream, call } = await world(t, (request, response) => {
    if (request.url === '/hang') return;
    setTimeout(() => response.end('x'), 20);
  });
  const limits = { connectionsMax: 2, connectTimeoutMs: 300 };
  const recorders = Array.from({ length: 10 }, () => call(limits).recorder);
  await Promise.all(recorders.map(({ over }) => over));
  t.ok(recorders.every(({ text }) => text === 'x'));
  t.equal(upstream.connections, 2);
  const hanging = [call({ ...limits, path: '/hang' }), call({ ...limits, path: '/hang' })];
  const waiting = call(limits);
  await waiting.recorder.over;
  t.equal(waiting.recorder.fault?.code, 'TIMEOUT_QUEUE');
  t.equal(waiting.recorder.fault?.repeatable, true);
  for (const { call: running } of hanging) running.abort();
});
