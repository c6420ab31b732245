/**
 * Bodies with a second meaning, requests with a second framing, and bodies that are too large or too deep, by
 * each door: the members that a door reads mean one thing to every decoder, nothing hidden is served, and a
 * refusal has the door's own form. second-meaning, framing and hostile-bodies have more cases, for chat
 * completions alone.
 */
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { DOOR_NAMES } from '#src/core/door-names.js';
import { DOOR_OF } from '#src/doors/doors.js';
import {
  callAt,
  callOf,
  checkDoorError,
  DOOR_CASES,
  DOOR_ENV,
  hasStreams,
  modelsOf,
  pathOf,
  WAYS,
  wayName,
  type Way,
} from '../support/doors.js';
import { SPEECH } from '../support/door-speech.js';
import { startGateway, type Gateway } from '../support/gateway.js';
import type { Answer } from '../support/http.js';
import { RawConnection } from '../support/raw-connection.js';
import { newSeed, pick, randomOf } from '../support/random.js';

const IS_FULL = process.env.TOLLGATE_HOSTILE_FULL !== undefined;
const RANDOM_BODIES = IS_FULL ? 50_000 : 3_000;
const BODY_BYTES = 200_000;
const SAID = { text: 'hi there', prompt: 7, output: 3 };

/** One way of each door: what a listener reads is the same for all. */
const DOORS = DOOR_NAMES.map((door) => WAYS.find((way) => way.door === door)!);

/** Members as they are written, so that one can be there twice. */
type Written = [name: string, value: string][];

const membersOf = (way: Way): Written =>
  Object.entries({
    ...callOf(way, 'Hello', { outputTokensMax: 9 }),
    ...(hasStreams(way) && { stream: true }),
  }).map(([name, value]) => [name, JSON.stringify(value)]);
const textOf = (members: Written): string =>
  `{${members.map(([name, value]) => `"${name}":${value}`).join()}}`;

const escaped = (char: string): string => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
/** Other writings of a name; a decoder that folds case, or ends at NUL, takes them for it. */
const disguises = (name: string): string[] => [
  name.toUpperCase(),
  name[0]!.toUpperCase() + name.slice(1),
  escaped(name[0]!) + name.slice(1),
  escaped(name[0]!.toUpperCase()) + name.slice(1),
  `${name}\\u0000`,
  ...(name.includes('s') ? [name.replace('s', '\u017f')] : []),
  ...(name.includes('k') ? [name.replace('k', '\u212a')] : []),
];
const ODD_NUMBERS = [
  ...[
    '1.0',
    '1e3',
    '1E2',
    '-0',
    '-1',
    '1.5',
    '1e400',
    '9007199254740993',
    '18446744073709551617',
    '01',
    '+1',
  ],
  ...[`1${'0'.repeat(30)}`, '"5"', 'true', '[1]', '0x10', 'NaN', '.5'],
];
const ODD_FLAGS = ['1', '0', '"true"', 'TRUE', '[]', '{}'];
const SURROGATES = ['"\\ud800"', '"a\\udc00b"', '"\\ud83dx"'];

type Refused = readonly [what: string, body: string | Buffer];

/** Bodies with a second meaning. Each is to be refused. */
function secondMeanings(way: Way): Refused[] {
  const members = membersOf(way);
  const { bound } = DOOR_CASES[way.door];
  const found: Refused[] = [];
  const add = (what: string, written: Written): void => void found.push([what, textOf(written)]);
  members.forEach(([name, value], index) => {
    add(`${name} twice`, [...members, [name, value]]);
    add(`${name} twice, another first`, [[name, name === 'model' ? '"other"' : value], ...members]);
    for (const other of disguises(name)) add(`${name} beside ${other}`, [...members, [other, value]]);
    for (const other of disguises(name).filter((one) => !one.startsWith('\\u00') || /^\\u00[45]/.test(one)))
      add(
        `${name} as ${other}`,
        members.map((one, at) => (at === index ? [other, value] : one)),
      );
    const replaced = (to: string): Written => members.map((one, at) => (at === index ? [name, to] : one));
    for (const text of SURROGATES) add(`${name}: ${text}`, replaced(text));
    if (name === bound) for (const number of ODD_NUMBERS) add(`${name}: ${number}`, replaced(number));
    if (name === 'stream') for (const flag of ODD_FLAGS) add(`${name}: ${flag}`, replaced(flag));
  });
  add('a surrogate where nothing is read', [...members, ['x', '{"y":["\\ud800"]}']]);
  add('two unknown names of one folding', [...members, ['other', '1'], ['OTHER', '2']]);
  add('65 levels', [...members, ['x', '['.repeat(64) + ']'.repeat(64)]]);
  add('a provider of the caller', [...members, ['api_base', '"http://x"']]);
  add('a model of the caller', [...members, ['models', '["x"]']]);
  const text = textOf(members);
  for (const [what, body] of [
    ['two objects', text + text],
    ['an end that is missing', text.slice(0, -1)],
    ['a comma too many', text.replace(/\}$/, ',}')],
    ['a byte-order mark', `\ufeff${text}`],
    ['NUL behind', `${text}\0`],
    ['a comment', text.replace('{', '{/**/')],
    ['an array', '[]'],
    ['null', 'null'],
    ['nothing', ''],
  ] as const)
    found.push([what, body]);
  found.push(['a byte that is no UTF-8', Buffer.from(text.replace('Hello', 'H\xffllo'), 'latin1')]);
  return found;
}

void t.test('bodies with a second meaning are refused, in one piece or in two', (t) => {
  for (const way of DOORS) {
    const door = DOOR_OF[way.door];
    const good = door.read(Buffer.from(textOf(membersOf(way))));
    t.ok(good.ok, `${way.door}: ${JSON.stringify(good)}`);
    let count = 0;
    for (const [what, body] of secondMeanings(way)) {
      const bytes = Buffer.from(body as string);
      const read = door.read(bytes);
      const half = Math.floor(bytes.length / 2);
      const large = door.readPieces([bytes.subarray(0, half), bytes.subarray(half)]);
      count++;
      // A member by which an upstream chooses another is told, and refused at admission.
      const isRejected = !read.ok || read.call.routingMembers.length > 0;
      if (!isRejected) t.fail(`${way.door}, ${what}: ${bytes.toString('latin1').slice(0, 200)}`);
      if (!read.ok || !large.ok) t.same(large, read, `${way.door}, ${what}: the same words`);
    }
    t.comment(`${way.door}: ${count} bodies`);
  }
  t.end();
});

void t.test('what is taken of random bodies is what every decoder reads', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  const VALUES = [
    '"x"',
    '5',
    '1e3',
    'true',
    'null',
    '{}',
    '[]',
    '"\\ud800"',
    '"a\\u0000"',
    '{"model":"y","Model":"z"}',
  ];
  for (const way of DOORS) {
    const door = DOOR_OF[way.door];
    let taken = 0;
    for (let index = 0; index < RANDOM_BODIES; index++) {
      const members = membersOf(way);
      for (let spoils = Math.floor(next() * 3); spoils > 0; spoils--) {
        const [name, value] = pick(next, members);
        const other = pick(next, [
          name,
          ...(name === '' || name.includes('\\') ? [] : disguises(name)),
          'x',
          '',
          '__proto__',
        ]);
        members.splice(Math.floor(next() * (members.length + 1)), 0, [other, pick(next, [value, ...VALUES])]);
        if (next() < 0.5) members.splice(Math.floor(next() * members.length), 1);
      }
      const text = textOf(members);
      const read = door.read(Buffer.from(text));
      if (!read.ok) continue;
      taken++;
      // The first, the last, and that of any case: one member of the name, and it is the one that was read.
      const folded = members.filter(
        ([name]) => (JSON.parse(`"${name}"`) as string).toLowerCase() === 'model',
      );
      const seen = JSON.parse(text) as Record<string, unknown>;
      const { bound } = DOOR_CASES[way.door];
      const { call } = read;
      const isOne =
        folded.length === 1 &&
        JSON.parse(folded[0]![1]) === call.model &&
        seen.model === call.model &&
        (seen.stream === true) === call.stream &&
        (bound === undefined || (seen[bound] ?? undefined) === call.outputTokensMax);
      if (!isOne) t.fail(`${way.door}: ${text}`);
      const sent = JSON.parse(
        call.largeBody === undefined ? call.body : Buffer.from(call.largeBody).toString(),
      ) as Record<string, unknown>;
      // A stream is made to report its usage.
      const rest: Record<string, unknown> = { ...sent };
      delete rest.stream_options;
      if (JSON.stringify(rest) !== JSON.stringify(seen)) t.fail(`${way.door}: another body: ${text}`);
    }
    t.ok(
      taken > RANDOM_BODIES / 10 && taken < RANDOM_BODIES,
      `${way.door}: ${taken} of ${RANDOM_BODIES} taken`,
    );
  }
  t.end();
});

// ---- over the wire

/** How a request hides another one behind itself; `own` and `hidden` are what it sends. */
const FRAMINGS: readonly (readonly [
  name: string,
  headers: (own: number, hidden: number) => string,
  isChunked: boolean,
])[] = [
  [
    'both, the length first',
    (own, hidden) => `Content-Length: ${own + hidden}\r\nTransfer-Encoding: chunked`,
    true,
  ],
  ['both, the coding first', (own) => `Transfer-Encoding: chunked\r\nContent-Length: ${own}`, true],
  ['two lengths', (own, hidden) => `Content-Length: ${own}\r\nContent-Length: ${own + hidden}`, false],
  [
    'two lengths, the other way',
    (own, hidden) => `Content-Length: ${own + hidden}\r\nContent-Length: ${own}`,
    false,
  ],
  ['a coding that is not chunked', () => 'Transfer-Encoding: gzip, chunked', true],
  ['two codings', () => 'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity', true],
  ['a folded coding', () => 'Transfer-Encoding:\r\n chunked', true],
  ['a space before the colon', () => 'Transfer-Encoding : chunked', true],
  ['a length with a sign', (own) => `Content-Length: +${own}`, false],
  ['a length in hexadecimal', (own) => `Content-Length: 0x${own.toString(16)}`, false],
];
const CLOSED_MS_MAX = 1_500;

async function framed(
  gateway: Gateway,
  key: string,
  way: Way,
  framing: (typeof FRAMINGS)[number],
): Promise<string> {
  const [, headers, isChunked] = framing;
  const bodyOf = (marker: string): string => JSON.stringify(callOf(way, marker));
  const head = (more: string): string =>
    `POST ${pathOf(way)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\n${more}\r\n\r\n`;
  const hiddenBody = bodyOf('hidden');
  const hidden = head(`Content-Length: ${hiddenBody.length}`) + hiddenBody;
  const plain = bodyOf('own');
  const own = isChunked ? `${plain.length.toString(16)}\r\n${plain}\r\n0\r\n\r\n` : plain;
  const connection = await RawConnection.open(gateway.port);
  connection.send(head(headers(own.length, hidden.length)) + own + hidden);
  const late = new Promise<string>((resolve) => setTimeout(resolve, CLOSED_MS_MAX, ''));
  const first = await Promise.race([
    connection.answer().then(
      ({ status }) => String(status),
      () => 'cut',
    ),
    late,
  ]);
  connection.close();
  return first;
}

void t.test('over the wire', { timeout: 120_000 }, async (t) => {
  const bodies: string[] = [];
  const upstream = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const body = Buffer.concat(parts).toString();
      bodies.push(body);
      const way = WAYS.find((one) => body.includes(`"model":"${wayName(one)}"`))!;
      response.setHeader('content-type', 'application/json').end(SPEECH[way.speech].whole(SAID));
    });
  }).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  t.teardown(() => {
    upstream.close();
    upstream.closeAllConnections();
  });
  const origin = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
  const gateway = await startGateway(t, {
    env: DOOR_ENV,
    config: {
      models: modelsOf(() => origin),
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
      limits: { body_bytes: BODY_BYTES },
    },
  });
  const { key } = await gateway.admin.customer({ credit: '1000.00' });

  await t.test('a hidden request is never served', async (t) => {
    const jobs = DOORS.flatMap((way) => FRAMINGS.map((framing) => ({ way, framing })));
    await Promise.all(
      jobs.map(async ({ way, framing }) => {
        const status = await framed(gateway, key, way, framing);
        t.match(status, /^(?:|cut|4\d\d|5\d\d)$/, `${way.door}, ${framing[0]}: ${status}`);
      }),
    );
    t.same(bodies, [], 'no provider saw one of them, or what was hidden');
  });

  const hostile = (way: Way, more: Written): Promise<Answer> =>
    gateway.request(key, { method: 'POST', path: pathOf(way), body: textOf([...membersOf(way), ...more]) });
  const SIZES: readonly (readonly [string, () => Written, 'request_too_large' | 'invalid_parameters'])[] = [
    ['too large', () => [['x', `"${'x'.repeat(BODY_BYTES)}"`]], 'request_too_large'],
    ['too deep', () => [['x', '['.repeat(50_000) + ']'.repeat(50_000)]], 'invalid_parameters'],
    ['never closed', () => [['x', '['.repeat(150_000)]], 'invalid_parameters'],
    ['a second model', () => [['Model', '"other"']], 'invalid_parameters'],
    ['a surrogate', () => [['x', '"\\ud800"']], 'invalid_parameters'],
  ];
  for (const way of DOORS)
    await t.test(`${way.door}: too large, too deep, two meanings`, async (t) => {
      for (const [name, more, code] of SIZES)
        checkDoorError(t, way, await hostile(way, more()), code, `${way.door}, ${name}`);
      const many = Array.from({ length: 5_000 }, (_, index): [string, string] => [`k${index}`, '1']);
      checkDoorError(t, way, await hostile(way, many), 'invalid_parameters', `${way.door}, 5,000 members`);
      const next = await callAt(gateway, key, way, 'Hello');
      t.equal(next.status, 200, `${way.door}: the next is served: ${next.body.slice(0, 200)}`);
    });

  t.equal(await gateway.stop(), 0);
  t.same(
    gateway.log().filter((line) => line.includes('"level":"error"')),
    [],
    'nothing of this is an error of ours',
  );
});
