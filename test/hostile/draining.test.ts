/**
 * A gateway that leaves while clients stream on kept connections, one stream after the other: none is cut,
 * none is lost, and whoever was told that a connection ends has the next call begun elsewhere.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { startBed } from '../support/bed.js';
import { eventually, TEST_MODEL, testSettings, type Gateway } from '../support/gateway.js';
import { steered } from '../support/mock.js';
import { RawConnection } from '../support/raw-connection.js';
import { chunksOf, eventData, isWholeText, textOf } from '../support/sse.js';

const CONNECTIONS = 60;
/**
 * A stream takes 2.4 s. Two take longer than a drain may; one does not, by 1.6 s for a machine that has other
 * work.
 */
const CHUNKS = 6;
const CHUNK_MS = 400;
const DRAIN_MS = 4_000;
/** For two streams after each other. */
const LONE_DRAIN_MS = 30_000;
/** Of streams that do not end before the test, in a drain that waits for them. */
const ENDLESS_CHUNKS = 10_000;
const LONG_DRAIN_MS = 300_000;
/** Of callers of whole responses: without one they would take all that the machine has until a drain ends. */
const WHOLE_PAUSE_MS = 20;
/** Over an ocean and back. */
const FAR_MS = 200;

const requestOf = (key: string, stream: boolean, chunks = CHUNKS): string => {
  const steering = stream ? `chunks=${chunks}&chunk_ms=${CHUNK_MS}` : 'chunks=1';
  const body = JSON.stringify({
    model: TEST_MODEL,
    messages: [{ role: 'user', content: steered(steering) }],
    stream,
  });
  return (
    'POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n' +
    `authorization: Bearer ${key}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  );
};

interface Seen {
  /** Responses that came whole. */
  whole: number;
  /** Of them, those that ended their connection, and whose connection was then closed by the gateway. */
  told: number;
  closed: number;
  readonly faults: string[];
}

/**
 * Calls one after the other, `pauseMs` apart, on connections that are kept as long as the gateway keeps them,
 * until it is ended.
 */
function startCallers(t: Test, gateway: Gateway, key: string, count: number, stream: boolean, pauseMs = 0) {
  const seen: Seen = { whole: 0, told: 0, closed: 0, faults: [] };
  const text = requestOf(key, stream);
  let on = true as boolean;
  t.teardown(() => (on = false));
  const caller = async (): Promise<void> => {
    while (on) {
      // Who cannot connect has sent nothing: a lone gateway that has left refuses, and that is no loss.
      const connection = await RawConnection.open(gateway.port).catch(() => undefined);
      if (connection === undefined) {
        await sleep(20);
        continue;
      }
      await callOn(connection, text, stream, seen, () => on, pauseMs);
      connection.close();
    }
  };
  const callers = Array.from({ length: count }, caller);
  return async () => {
    on = false;
    await Promise.all(callers);
    return seen;
  };
}

async function callOn(
  connection: RawConnection,
  text: string,
  stream: boolean,
  seen: Seen,
  isOn: () => boolean,
  pauseMs: number,
): Promise<void> {
  for (let calls = 0; isOn(); calls += 1) {
    connection.send(text);
    let answer;
    try {
      answer = await connection.answer();
    } catch (error) {
      // A connection that the kernel made for a listener that was just closed: nothing was read of it.
      if (calls > 0 || connection.pending() !== '') seen.faults.push(`call ${calls}: ${String(error)}`);
      return;
    }
    const isWhole =
      !stream ||
      (eventData(answer.body).at(-1) === '[DONE]' && isWholeText(textOf(chunksOf(answer.body)), CHUNKS));
    if (answer.status !== 200 || !isWhole) seen.faults.push(`${answer.status} ${answer.body.slice(-200)}`);
    else seen.whole += 1;
    if (pauseMs > 0) await sleep(pauseMs);
    if (answer.headers.get('connection')?.toLowerCase() === 'close') {
      seen.told += 1;
      if (await Promise.race([connection.closed.then(() => true), sleep(5_000, false)])) seen.closed += 1;
      return;
    }
  }
}

const twoServe = (gateway: Gateway): Promise<true> =>
  eventually('two processes', async () => {
    const status = (await gateway.admin.send('GET', '/admin/v1/status')).json();
    const { processes } = status as { readonly processes: readonly { readonly ready: boolean }[] };
    return processes.filter(({ ready }) => ready).length === 2 ? true : undefined;
  });

void t.test('gateways are replaced one by one under streams on kept connections', async (t) => {
  const { gateway } = await startBed(t, { processes: 2, drain_timeout_ms: DRAIN_MS });
  const { key } = await gateway.admin.customer();
  await twoServe(gateway);
  const end = startCallers(t, gateway, key, CONNECTIONS, true);
  await sleep(CHUNK_MS);
  process.kill(gateway.child.pid, 'SIGUSR2');
  await eventually('the end of the replacement', () =>
    gateway.log().some((line) => line.includes('gateways are replaced')) ? true : undefined,
  );
  const seen = await end();
  t.comment(JSON.stringify({ ...seen, faults: seen.faults.length }));
  t.same(seen.faults.slice(0, 3), [], 'none was cut or lost');
  t.ok(seen.told >= CONNECTIONS / 2, `${seen.told} streams told that their connection ends`);
  t.equal(seen.closed, seen.told, 'and it did');
  t.notOk(gateway.log().some((line) => line.includes('calls were cut')));
  t.equal(await gateway.stop(), 0);
});

void t.test('a reload while gateways are replaced is in force on kept connections too', async (t) => {
  const { gateway, mock } = await startBed(t, { processes: 2, drain_timeout_ms: LONG_DRAIN_MS });
  const { key } = await gateway.admin.customer();
  await twoServe(gateway);
  const open = (): Promise<RawConnection> => RawConnection.open(gateway.port);
  const streams = await Promise.all(Array.from({ length: CONNECTIONS }, open));
  const kept = await Promise.all(Array.from({ length: CONNECTIONS }, open));
  for (const connection of streams) connection.send(requestOf(key, true, ENDLESS_CHUNKS));
  /** Of a connection that µWS has closed, idle for 10 s on a busy machine, nothing is told. */
  const ask = async (path: string): Promise<Set<number>> => {
    const text = `GET ${path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${key}\r\n\r\n`;
    for (const connection of kept) connection.send(text);
    const answers = await Promise.allSettled(kept.map((connection) => connection.answer()));
    const told = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value.status] : []));
    t.comment(`${told.length} of ${kept.length} connections are open`);
    return new Set(told);
  };
  t.same(await ask('/v1/models/later'), new Set([404]));
  process.kill(gateway.child.pid, 'SIGUSR2');
  await eventually('a drain', () =>
    gateway.log().some((line) => line.includes('gateway drains')) ? true : undefined,
  );
  const settings = testSettings(mock.url, { processes: 2, drain_timeout_ms: 500 }) as { models: object[] };
  const models = [...settings.models, { ...settings.models[0], id: 'later' }];
  writeFileSync(join(gateway.folder, 'tollgate.yaml'), JSON.stringify({ ...settings, models }));
  t.equal((await gateway.admin.send('POST', '/admin/v1/reload', {})).status, 200);
  t.notOk((await ask('/v1/models/later')).has(404), 'also at the one that is replaced');
  t.equal(await gateway.stop(), 0, 'and none is killed: each ends by the shorter time');
  for (const connection of [...streams, ...kept]) connection.close();
});

void t.test('SIGTERM of a lone gateway under streams on kept connections', async (t) => {
  // Here a drain has the time for the stream that runs and the one that a client sends on the same
  // connection.
  const { gateway } = await startBed(t, { drain_timeout_ms: LONE_DRAIN_MS });
  const { key } = await gateway.admin.customer();
  const ends = [
    startCallers(t, gateway, key, CONNECTIONS, true),
    startCallers(t, gateway, key, CONNECTIONS / 6, false, WHOLE_PAUSE_MS),
  ];
  await sleep(CHUNK_MS);
  t.equal(await gateway.stop(), 0);
  for (const end of ends) {
    const seen = await end();
    t.comment(JSON.stringify({ ...seen, faults: seen.faults.length }));
    t.same(seen.faults.slice(0, 3), [], 'none was cut or lost');
    t.ok(seen.told > 0, 'its last heads said that the connection ends');
    t.equal(seen.closed, seen.told, 'and it did');
  }
  t.notOk(gateway.log().some((line) => line.includes('calls were cut')));
});

void t.test('SIGTERM of a lone gateway whose only client is far away', async (t) => {
  const { gateway, mock } = await startBed(t, { drain_timeout_ms: LONE_DRAIN_MS });
  const { key } = await gateway.admin.customer();
  const end = startCallers(t, gateway, key, 1, true, FAR_MS);
  await eventually('its stream', async () => ((await mock.stats()).open > 0 ? true : undefined));
  await sleep(CHUNK_MS);
  t.equal(await gateway.stop(), 0);
  const seen = await end();
  t.same(seen.faults, [], 'its next call is not lost');
  t.equal(seen.told, 1, 'and told');
  t.equal(seen.whole, 2);
});

void t.test('every head says close while a gateway drains, whatever was asked for', async (t) => {
  const { gateway } = await startBed(t);
  const { key } = await gateway.admin.customer();
  const asks: readonly [string, string, number][] = [
    ['GET', '/v1/models', 200],
    ['GET', '/v1/models/none', 404],
    ['GET', '/openapi.json', 200],
    ['GET', '/nowhere', 404],
    ['GET', '/v1/chat/completions', 405],
    ['HEAD', '/nowhere', 404],
  ];
  const texts = [
    ...asks.map(
      ([method, path]) =>
        `${method} ${path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${key}\r\n\r\n`,
    ),
    requestOf(key, true, 1),
    requestOf(key, false),
    requestOf('sk-unknown', false),
    requestOf(key, false).replace('"model"', '"m0del"'),
  ];
  const connections = await Promise.all(texts.map(() => RawConnection.open(gateway.port)));
  // Accepted and used: what the kernel alone has is not there yet for the gateway.
  for (const connection of connections) {
    connection.send(requestOf(key, false));
    t.notMatch((await connection.answer()).headers.get('connection') ?? '', /close/i);
  }
  // What keeps the gateway, for longer than all that follows.
  const long = await RawConnection.open(gateway.port);
  long.send(requestOf(key, true, 2 * CHUNKS));
  await eventually('its first bytes', () => (long.pending() === '' ? undefined : true));
  const stopped = gateway.stop();
  await eventually('the drain', () =>
    RawConnection.open(gateway.port).then(
      (open) => {
        open.close();
        return undefined;
      },
      () => true,
    ),
  );
  for (const [index, connection] of connections.entries()) {
    connection.send(texts[index]!);
    if (texts[index]!.startsWith('HEAD')) {
      await eventually('its head', () => (connection.pending().includes('\r\n\r\n') ? true : undefined));
      t.match(connection.pending(), /\r\nconnection: close\r\n/i, 'of a HEAD');
    } else {
      const answer = await connection.answer();
      t.match(answer.headers.get('connection') ?? '', /close/i, texts[index]!.slice(0, 40));
    }
    connection.send(requestOf(key, false));
    await connection.closed;
    t.notMatch(connection.pending(), /HTTP\/1.1 200/, 'no call is begun on a connection that was told');
  }
  t.equal(eventData((await long.answer()).body).at(-1), '[DONE]');
  t.equal(await stopped, 0);
});
