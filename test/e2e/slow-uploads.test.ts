/**
 * Bodies that come slowly or not at all, by each door: served as long as they move, and told 408 in the
 * door's own form if they stand still.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import {
  callAt,
  callOf,
  checkDoorError,
  DOOR_ENV,
  modelsOf,
  pathOf,
  startDoorMocks,
  WAYS,
  wayName,
  type Way,
} from '../support/doors.js';
import { startGateway, type Gateway } from '../support/gateway.js';
import { RawConnection } from '../support/raw-connection.js';

/** µWS by itself cuts a body that stands still after 8 to 12 s. */
const BEYOND_UWS_MS = 13_000;
const PLAN = { id: 'ample', requests_per_minute: 1_000, calls_per_day: 1_000 };

const headOf = (way: Way, key: string, more: string): string =>
  `POST ${pathOf(way)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n${more}\r\n\r\n`;
const inChunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;

async function startBed(t: Parameters<typeof startDoorMocks>[0], limits: object = {}): Promise<Gateway> {
  const { originOf } = await startDoorMocks(t);
  return startGateway(t, { config: { models: modelsOf(originOf), plans: [PLAN], limits }, env: DOOR_ENV });
}

void t.test('a body that pauses is served', { timeout: 120_000 }, async (t) => {
  const gateway = await startBed(t);
  const { key } = await gateway.admin.customer({ credit: '10.00' });
  const cases = WAYS.flatMap((way) => {
    const body = JSON.stringify(callOf(way, 'Hello', { outputTokensMax: 100 }));
    const head = headOf(way, key, `Content-Length: ${body.length}`);
    const chunked = headOf(way, key, 'Transfer-Encoding: chunked');
    return [
      { name: `${wayName(way)}, behind its head`, parts: [head, body] },
      { name: `${wayName(way)}, in its middle`, parts: [head + body.slice(0, 10), body.slice(10)] },
      {
        name: `${wayName(way)}, in chunks`,
        parts: [chunked + inChunk(body.slice(0, 10)), `${inChunk(body.slice(10))}0\r\n\r\n`],
      },
    ];
  });
  await Promise.all(
    cases.map(async ({ name, parts }) => {
      const connection = await RawConnection.open(gateway.port);
      connection.send(parts[0]!);
      await sleep(BEYOND_UWS_MS);
      connection.send(parts[1]!);
      t.equal((await connection.answer()).status, 200, name);
      connection.close();
    }),
  );
  t.equal(await gateway.stop(), 0);
});

void t.test('a body that stands still is told so', { timeout: 120_000 }, async (t) => {
  const gateway = await startBed(t, { client_idle_timeout_ms: 1_000 });
  const { key } = await gateway.admin.customer({ credit: '10.00' });
  await Promise.all(
    WAYS.flatMap((way) => {
      const head = headOf(way, key, 'Content-Length: 100');
      const chunked = headOf(way, key, 'Transfer-Encoding: chunked');
      return [head, `${head}{"model":`, `${chunked}5\r\n{"mod\r\n`].map(async (start, index) => {
        const connection = await RawConnection.open(gateway.port);
        connection.send(start);
        const { status, headers, body } = await connection.answer();
        const answer = {
          status,
          headers: Object.fromEntries(headers),
          body,
          json: () => JSON.parse(body) as unknown,
        };
        const name = `${wayName(way)}, ${index}`;
        t.match(checkDoorError(t, way, answer, 'request_timeout', name), /1000 ms/, name);
        await connection.closed;
      });
    }),
  );
  for (const way of WAYS) t.equal((await callAt(gateway, key, way, 'Hello')).status, 200, wayName(way));
  t.equal(await gateway.stop(), 0);
});
