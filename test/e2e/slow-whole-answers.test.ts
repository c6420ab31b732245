/**
 * Long whole responses for slow readers, by each door, passed and translated: what they hold together is
 * bounded, who finds no room is told so at once and in the door's words, others are not harmed.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { rssBytes } from '../../bench/support/proc.js';
import { WHOLE_RESPONSES_BYTES_MAX } from '#src/core/limits.js';
import { picoUnitsOf } from '#src/core/money.js';
import { SPEECH } from '../support/door-speech.js';
import {
  callAt,
  callOf,
  costOf,
  DOOR_CASES,
  DOOR_ENV,
  isAnthropic,
  isFree,
  modelsOf,
  pathOf,
  WAYS,
  wayName,
  type Way,
} from '../support/doors.js';
import { settledAccount } from '../support/fault-cells.js';
import { eventually, startGateway } from '../support/gateway.js';
import { SlowReader } from '../support/slow-reader.js';

const ANSWER_CHARS = 10_000_000;
const READERS = 60;
/**
 * Held, and as much again that collectors leave of responses that were joined and parsed, or found no room.
 */
const GROWTH_BYTES_MAX = 2 * WHOLE_RESPONSES_BYTES_MAX + 150_000_000;
const SAID = { text: 'hi there', prompt: 7, output: 3 };
const COSTLY = WAYS.filter((way) => !isFree(way));

/** Of embeddings and reranks the prompt alone is billed. */
const billOf = (way: Way): bigint =>
  costOf(way, [SAID.prompt, way.door === 'embeddings' || way.door === 'rerank' ? 0 : SAID.output]);
const sumOf = (ways: readonly Way[]): bigint => ways.reduce((sum, way) => sum + billOf(way), 0n);
const shortOf = ({ speech }: Way): string => SPEECH[speech].whole(SAID);
const PAD = 'w'.repeat(ANSWER_CHARS);
/** What upstreams say; a translated response keeps its text alone. */
const LONG = new Map(
  COSTLY.map((way) => {
    const padded = `{"pad":"${PAD}",${shortOf(way).slice(1)}`;
    return [
      way,
      Buffer.from(way.kind === 'passed' ? padded : SPEECH[way.speech].whole({ ...SAID, text: PAD })),
    ];
  }),
);

void t.test(`${READERS} slow readers of whole answers of 10 MB`, async (t) => {
  const upstream = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const body = Buffer.concat(parts).toString();
      const way = COSTLY.find((one) => body.includes(`"model":"${wayName(one)}"`))!;
      const answer = body.includes('long') ? LONG.get(way)! : shortOf(way);
      response.writeHead(200, { 'content-type': 'application/json' }).end(answer);
    });
  });
  upstream.listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  t.teardown(() => upstream.closeAllConnections());
  t.teardown(() => upstream.close());
  const origin = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
  const gateway = await startGateway(t, {
    env: DOOR_ENV,
    config: {
      models: modelsOf(() => origin),
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
    },
  });
  const { key, accountId } = await gateway.admin.customer({ credit: '1000.00' });
  const checkShort = async (when: string): Promise<void> => {
    for (const way of COSTLY)
      t.equal((await callAt(gateway, key, way, 'Hello')).status, 200, `${wayName(way)}: ${when}`);
  };
  await checkShort('before');
  const restBytes = rssBytes(gateway.pid());

  const readers = Array.from({ length: READERS }, (_, index) => {
    const way = COSTLY[index % COSTLY.length]!;
    const reader = new SlowReader(gateway.port, key, callOf(way, 'long'), 4_096, true, {}, pathOf(way));
    return { way, reader };
  });
  await eventually(
    'an answer for all',
    () => readers.every(({ reader }) => reader.readBytes > 0) || undefined,
  );
  const grownBytes = rssBytes(gateway.pid()) - restBytes;
  const served = readers.filter(({ reader }) => reader.text().startsWith('HTTP/1.1 200'));
  const refused = readers.filter((one) => !served.includes(one));
  t.comment(`${served.length} served, ${Math.round(grownBytes / 1e6)} MB over rest`);
  const room = Math.floor(WHOLE_RESPONSES_BYTES_MAX / ANSWER_CHARS);
  // Those that come at the same time may take room from each other before one of them is whole.
  t.ok(served.length > 0 && served.length <= room, `${room} find room at most`);
  t.ok(grownBytes < GROWTH_BYTES_MAX);
  for (const { way, reader } of refused) {
    t.match(reader.text(), `HTTP/1.1 ${isAnthropic(way) ? 529 : 503} `, wayName(way));
    t.match(reader.text(), /retry-after: 5\r\n/i, wayName(way));
    t.match(reader.text(), /code":"overloaded"/, wayName(way));
  }
  await checkShort('short answers have room');

  for (const { reader } of readers) reader.leave();
  for (const way of COSTLY) {
    const again = await eventually('room', async () => {
      const answer = await callAt(gateway, key, way, 'long');
      return answer.status === 200 ? answer : undefined;
    });
    const isSame =
      way.kind === 'passed'
        ? LONG.get(way)!.equals(Buffer.from(again.body))
        : DOOR_CASES[way.door].textOf(again) === PAD;
    t.ok(isSame, `${wayName(way)}: a long answer is served again, all of it`);
  }
  const { spent } = await settledAccount(gateway, accountId, 'all');
  const others = 3n * sumOf(COSTLY);
  const least = others + sumOf(served.map(({ way }) => way));
  t.ok(picoUnitsOf(spent)! >= least, 'what was served is charged');
  t.ok(picoUnitsOf(spent)! <= others + sumOf(readers.map(({ way }) => way)), 'and nothing twice');
  t.equal(await gateway.stop(), 0);
});
