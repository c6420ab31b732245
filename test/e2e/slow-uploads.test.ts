/** Bodies that come slowly or not at all: served as long as they move, and told 408 where they do not. */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { startBed } from '../support/bed.js';
import { checkError } from '../support/error-answer.js';
import { RawConnection } from '../support/raw-connection.js';

/** µWS by itself cuts a body that stands still after 8 to 12 s. */
const BEYOND_UWS_MS = 13_000;
const BODY = JSON.stringify({ model: 'mock-model', messages: [{ role: 'user', content: 'Hello' }] });

const headOf = (key: string, more: string): string =>
  `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n${more}\r\n\r\n`;
const inChunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;

void t.test('a body that pauses is served', { timeout: 120_000 }, async (t) => {
  const { gateway } = await startBed(t);
  const { key } = await gateway.admin.customer({ credit: '1.00' });
  const length = `Content-Length: ${BODY.length}`;
  const cases = [
    { name: 'behind its head', parts: [headOf(key, length), BODY] },
    { name: 'in its middle', parts: [headOf(key, length) + BODY.slice(0, 10), BODY.slice(10)] },
    {
      name: 'in chunks',
      parts: [
        headOf(key, 'Transfer-Encoding: chunked') + inChunk(BODY.slice(0, 10)),
        `${inChunk(BODY.slice(10))}0\r\n\r\n`,
      ],
    },
  ];
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
  const { gateway } = await startBed(t, { limits: { client_idle_timeout_ms: 1_000 } });
  const { key } = await gateway.admin.customer({ credit: '1.00' });
  const starts = [
    headOf(key, 'Content-Length: 100'),
    `${headOf(key, 'Content-Length: 100')}{"model":`,
    `${headOf(key, 'Transfer-Encoding: chunked')}5\r\n{"mod\r\n`,
  ];
  await Promise.all(
    starts.map(async (start) => {
      const connection = await RawConnection.open(gateway.port);
      connection.send(start);
      const answer = await connection.answer();
      t.match(checkError(t, answer, 'request_timeout', start), /1000 ms/);
      await connection.closed;
    }),
  );
  t.equal((await gateway.chat(key, 'Hello')).status, 200);
  t.equal(await gateway.stop(), 0);
});
