/** The live stream: what it begins with, what follows, whom it is refused, when it ends. */
import { once } from 'node:events';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import t from 'tap';
import type { HttpResponse } from 'uWebSockets.js';
import { LiveFeed, type LiveWatcher } from '#src/admin/live-feed.js';
import { type EndedSpan, History, type StatusStats } from '#src/telemetry/history.js';
import { checkError } from '../../support/error-answer.js';
import { TOKEN, startAdminHouse, type AdminHouse } from './support.js';

const START = 1_700_000_000;

function figures(calls: number): StatusStats {
  const none = { bounds: [], counts: [0] };
  return {
    outcomes: { ok: calls },
    tokens: { prompt: 0, cached: 0, completion: 0 },
    cost: '0.00',
    duration_ms: none,
    first_token_ms: none,
    calls_in_flight: 0,
    refusals: {},
    models: [],
  };
}

interface Stream {
  readonly incoming: IncomingMessage;
  /** Resolves with the next event: its name and its data. */
  next(): Promise<[string, unknown]>;
}

async function open(
  house: AdminHouse,
  query: string,
  headers: Readonly<Record<string, string>>,
): Promise<Stream> {
  const outgoing = httpRequest({
    port: house.port,
    host: '127.0.0.1',
    path: `/admin/v1/live${query}`,
    agent: false,
    headers,
  });
  outgoing.end();
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  incoming.setEncoding('utf8');
  let text = '';
  return {
    incoming,
    next: async () => {
      while (!text.includes('\n\n')) text += String((await once(incoming, 'data'))[0]);
      const at = text.indexOf('\n\n');
      const [, name = '', data = ''] = /^event: (\w+)\ndata: (.*)$/.exec(text.slice(0, at)) ?? [];
      text = text.slice(at + 2);
      return [name, JSON.parse(data)];
    },
  };
}

const BEARER = { authorization: `Bearer ${TOKEN}` };

void t.test('history first, then what comes', async (t) => {
  const house = await startAdminHouse(t);
  house.record(figures(0), START);
  house.record(figures(4), START + 2);
  const stream = await open(house, '', BEARER);
  t.match(stream.incoming.headers, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  const first = { start: START, in_flight: 0, outcomes: { ok: 4 } };
  t.same(await stream.next(), ['history', { range: '5m', seconds: 2, spans: [first] }]);
  house.record(figures(9), START + 3);
  t.match(await stream.next(), ['now', { outcomes: { ok: 9 } }]);
  house.record(figures(10), START + 4);
  t.match(await stream.next(), ['now', { outcomes: { ok: 10 } }]);
  t.same(await stream.next(), ['span', { start: START + 2, in_flight: 0, outcomes: { ok: 6 } }]);
  const hour = await open(house, '?range=1h', BEARER);
  t.same(await hour.next(), ['history', { range: '1h', seconds: 10, spans: [] }]);
  stream.incoming.destroy();
  hour.incoming.destroy();
});

void t.test(
  'a history that a socket does not take at once comes whole, without further writes',
  async (t) => {
    const house = await startAdminHouse(t);
    // 150 spans of 20 models whose ids have 4 KB each: 12 MB, more than the kernel's buffers take.
    const ids = Array.from({ length: 20 }, (_, index) => String(index).padEnd(4_096, 'x'));
    for (let read = 0; read <= 150; read += 1) {
      const models = ids.map((id) => ({ ...figures(read), id }));
      house.record({ ...figures(read), models }, START + 2 * read);
    }
    const stream = await open(house, '', BEARER);
    const [name, data] = await stream.next();
    t.equal(name, 'history');
    t.equal((data as { spans: unknown[] }).spans.length, 150);
    stream.incoming.destroy();
  },
);

/** A response whose socket takes only as many writes as `takes` says. */
class SlowResponse {
  readonly written: string[] = [];
  takes = 0;
  isClosed = false;
  #onAborted = (): void => undefined;
  onAborted(handler: () => void): void {
    this.#onAborted = handler;
  }
  onWritable(handler: () => boolean): void {
    // A third of the kernel's buffer is free; what µWS keeps is still longer.
    this.free = handler;
  }
  free: () => boolean = () => true;
  cork(act: () => void): void {
    act();
  }
  readonly writeHeader = (): void => undefined;
  readonly pause = (): void => undefined;
  readonly resume = (): void => undefined;
  write(text: string): boolean {
    this.written.push(text);
    this.takes -= 1;
    return this.takes >= 0;
  }
  close(): void {
    this.isClosed = true;
    this.#onAborted();
  }
}

void t.test(
  'a slow reader gets spans, and no status until it has what was written; then it is closed',
  async (t) => {
    const watchers = new Set<LiveWatcher>();
    const feed = new LiveFeed({
      history: new History(),
      watch: (watcher) => {
        watchers.add(watcher);
        return () => watchers.delete(watcher);
      },
    });
    const response = new SlowResponse();
    await feed.subscribe(response as unknown as HttpResponse, '', 'ann', () => true);
    const ended: EndedSpan[] = [{ ring: '5m', span: { start: START, in_flight: 0 } }];
    const kindsAfter = (spans: readonly EndedSpan[]): string => {
      response.free();
      const before = response.written.length;
      for (const watcher of watchers) watcher({ much: 'x' }, spans);
      return response.written
        .slice(before)
        .join('')
        .replaceAll(/(?:event: (\w+)\n.*|: keep-alive)\n\n/g, (_, kind) => `${kind ?? 'comment'} `);
    };
    t.equal(kindsAfter([]), 'comment ');
    t.equal(kindsAfter(ended), 'span ');
    response.takes = 2;
    t.equal(kindsAfter([]), 'comment ', 'it has taken all');
    t.equal(kindsAfter(ended), 'now span ');
    let reads = 0;
    for (; !response.isClosed && reads < 100; reads += 1) kindsAfter(ended);
    t.equal(
      response.written.filter((text) => text.includes('event: now')).length,
      2,
      'no status more than the failed one',
    );
    t.equal(reads, 30);
    t.equal(watchers.size, 0);
  },
);

void t.test('who may not, and a range that there is not', async (t) => {
  const house = await startAdminHouse(t);
  const path = '/admin/v1/live';
  checkError(t, await house.send('GET', path, undefined, { headers: {} }), 'missing_api_key', 'nobody');
  const answer = await house.send('GET', `${path}?range=1y`);
  t.match(checkError(t, answer, 'invalid_parameters', 'range'), '5m, 1h, 6h, 24h');
});

void t.test('it ends with its session', async (t) => {
  const house = await startAdminHouse(t);
  const own = { 'x-tollgate-console': '1' };
  const opened = await house.send('POST', '/admin/session', { token: TOKEN }, { headers: own });
  const cookie = /^[^;]+/.exec(opened.headers['set-cookie']?.[0] ?? '')?.[0] ?? '';
  const stream = await open(house, '', { cookie });
  await stream.next();
  house.record(figures(1), START);
  t.match(await stream.next(), ['now', {}]);
  await house.send('DELETE', '/admin/session', undefined, { headers: { cookie, ...own } });
  const ended = once(stream.incoming, 'end');
  stream.incoming.resume();
  house.record(figures(2), START + 1);
  await t.resolves(ended);
});

void t.test('subscribers are bounded, and those that have left make room', async (t) => {
  const house = await startAdminHouse(t);
  const streams: Stream[] = [];
  for (let count = 0; count < 64; count++) streams.push(await open(house, '', BEARER));
  const refused = await house.send('GET', '/admin/v1/live');
  checkError(t, refused, 'overloaded', 'the 65th');
  const other = await house.send('POST', '/admin/v1/operators', { name: 'ann', role: 'viewer' });
  const { token } = other.json() as { token: string };
  const ann = { authorization: `Bearer ${token}` };
  const hers = await open(house, '', ann);
  t.match(await hers.next(), ['history', {}], 'they keep out no other operator');
  checkError(
    t,
    await house.send('GET', '/admin/v1/live', undefined, { headers: ann }),
    'overloaded',
    'twice',
  );
  hers.incoming.destroy();
  const [first] = streams;
  first!.incoming.destroy();
  for (;;) {
    const again = await open(house, '', BEARER);
    streams.push(again);
    if (again.incoming.statusCode === 200) break;
  }
  t.equal(house.watchers(), 1, 'one reading for all');
  for (const { incoming } of streams) incoming.destroy();
  while (house.watchers() > 0) await house.send('GET', '/healthz');
  t.pass('nobody is watched for when all have left');
});

void t.test(
  'when another gateway has the interface: streams end, and nobody is left on this one',
  async (t) => {
    const house = await startAdminHouse(t);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    t.teardown(() => agent.destroy());
    const send = (method: string, path: string) => house.send(method, path, undefined, { agent });
    const streams = [await open(house, '', BEARER), await open(house, '?range=1h', BEARER)];
    t.notMatch((await send('GET', '/admin/v1/status')).headers, { connection: 'close' });
    const closed = streams.map(({ incoming }) => {
      incoming.on('error', () => undefined).resume();
      return new Promise((resolve) => incoming.once('close', resolve));
    });
    house.stop();
    house.stop();
    await Promise.all(closed);
    t.equal(house.watchers(), 0);
    const refused = await send('GET', '/admin/v1/live');
    t.equal(refused.headers.connection, 'close');
    t.match(checkError(t, refused, 'overloaded', 'a new stream'), 'connect again');
    await t.rejects(send('GET', '/healthz'), { code: 'ECONNREFUSED' }, 'it has closed the connection');
  },
);

void t.test('each response of a kept connection is then its last', async (t) => {
  const paths = ['/healthz', '/metrics', '/', '/admin/v1/status', '/admin/v1/nothing', '/admin/session'];
  for (const path of paths) {
    const house = await startAdminHouse(t);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    t.teardown(() => agent.destroy());
    const before = await house.send('GET', path, undefined, { agent });
    house.stop();
    const { status, body, headers } = await house.send('GET', path, undefined, { agent });
    t.match({ status, body }, { status: before.status, body: before.body }, path);
    t.equal(headers.connection, 'close', path);
  }
});
