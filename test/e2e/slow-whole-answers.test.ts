/**
 * Long whole responses for slow readers: what they hold together is bounded, who finds no room is told so at
 * once, others are not harmed.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { rssBytes } from '../../bench/support/proc.js';
import { WHOLE_RESPONSES_BYTES_MAX } from '#src/core/limits.js';
import { TEST_MODEL, eventually, startGateway, testSettings } from '../support/gateway.js';
import { SlowReader } from '../support/slow-reader.js';

const ANSWER_CHARS = 10_000_000;
const READERS = 60;
/**
 * Held, and as much again that collectors leave of responses that were joined and parsed, or found no room.
 */
const GROWTH_BYTES_MAX = 2 * WHOLE_RESPONSES_BYTES_MAX + 150_000_000;
const BODY = { model: TEST_MODEL, messages: [{ role: 'user', content: 'long' }] };

const answerOf = (content: string): Buffer =>
  Buffer.from(
    JSON.stringify({
      object: 'chat.completion',
      choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
    }),
  );

void t.test(`${READERS} slow readers of whole answers of 10 MB`, async (t) => {
  const long = answerOf('w'.repeat(ANSWER_CHARS));
  const short = answerOf('Hello');
  const upstream = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const answer = Buffer.concat(parts).includes('long') ? long : short;
      response.writeHead(200, { 'content-type': 'application/json' }).end(answer);
    });
  });
  upstream.listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  t.teardown(() => upstream.closeAllConnections());
  t.teardown(() => upstream.close());
  const url = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}/v1`;
  const gateway = await startGateway(t, { config: testSettings(url) });
  const { key, accountId } = await gateway.admin.customer({ credit: '1000.00' });
  t.equal((await gateway.chat(key, 'Hello')).status, 200);
  const restBytes = rssBytes(gateway.pid());

  const readers = Array.from({ length: READERS }, () => new SlowReader(gateway.port, key, BODY, 4_096, true));
  await eventually('an answer for all', () => readers.every(({ readBytes }) => readBytes > 0) || undefined);
  const grownBytes = rssBytes(gateway.pid()) - restBytes;
  const statuses = readers.map((reader) => reader.text().slice(9, 12));
  const served = statuses.filter((status) => status === '200').length;
  t.comment(`${served} served, ${Math.round(grownBytes / 1e6)} MB over rest`);
  t.same([...new Set(statuses)].sort(), ['200', '503']);
  const room = Math.floor(WHOLE_RESPONSES_BYTES_MAX / long.length);
  // Those that come at the same time may take room from each other before one of them is whole.
  t.ok(served > 0 && served <= room, `${room} find room at most`);
  t.ok(grownBytes < GROWTH_BYTES_MAX);
  const refused = readers.find((reader) => reader.text().startsWith('HTTP/1.1 503'))!.text();
  t.match(refused, /retry-after: 5\r\n/i);
  t.match(refused, '"code":"overloaded"');
  t.equal((await gateway.chat(key, 'Hello')).status, 200, 'short answers have room');

  for (const reader of readers) reader.leave();
  const again = await eventually('room', async () => {
    const answer = await gateway.chat(key, 'long');
    return answer.status === 200 ? answer : undefined;
  });
  t.ok(long.equals(Buffer.from(again.body)), 'a long answer is served again, byte for byte');
  const account = await eventually('nothing held', async () => {
    const now = await gateway.admin.account(accountId);
    return Number(now.held) === 0 ? now : undefined;
  });
  const one = (1.5 + 2.25) / 1e6;
  t.ok(Number(account.spent) >= (served + 3) * one - 1e-12, 'what was served is charged');
  t.ok(Number(account.spent) <= (READERS + 3) * one, 'and nothing twice');
  t.equal(await gateway.stop(), 0);
});
