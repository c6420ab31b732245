/**
 * Requests that say in an unclear way where their body ends, each with another request hidden in it or behind
 * it, whole and split into packets at every kind of place. What counts: the hidden request is never served,
 * whatever the first is told.
 *
 * Long form: TOLLGATE_HOSTILE_FULL=1, more splits. The seed of the splits is printed.
 */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { startGateway, testSettings, TEST_MODEL } from '../support/gateway.js';

const FULL = process.env.TOLLGATE_HOSTILE_FULL !== undefined;
const SEED = Number(process.env.TOLLGATE_SEED ?? randomInt(2 ** 31));
const AT_ONCE = 250;
/**
 * A connection that says nothing for so long is left: it waits for more, and that nothing hidden was served
 * is what is asked.
 */
const SILENCE_MS = 1_500;
/** What must come may take longer on a loaded machine; it is below the 8 s after which µWS cuts by itself. */
const ANSWER_MS = 7_000;
const NODE_MAJOR = Number(process.versions.node.split('.')[0]);
/**
 * On Node 20 the parser of µWS waits for more of many a wrong head, and answers 505 where a packet ends in a
 * request line.
 */
const OLD_PARSER = NODE_MAJOR < 22;

/**
 * serve: the first request is answered for what it is. refuse: it is refused or cut, and no provider sees it.
 * lax: its head is right and its chunks are not, which µWS may take or refuse; nothing behind it is read
 * either way. both: two requests, rightly.
 */
type Verdict = 'serve' | 'refuse' | 'lax' | 'both';

/** `body` gives the bytes behind the head: of the first request's own body and of the hidden request. */
interface Case {
  readonly name: string;
  readonly headers: (length: number, hiddenLength: number) => string;
  readonly body: (own: string, hidden: string) => string;
  readonly verdict: Verdict;
  /** The parser of µWS waits for more of it, in every version, and cuts it after 8 to 12 s. */
  readonly waits?: boolean;
}

const CRLF = '\r\n';
const plain = (own: string, hidden: string): string => own + hidden;
const hex = (value: number): string => value.toString(16);
const chunked = (own: string, hidden: string): string => `${hex(own.length)}\r\n${own}\r\n0\r\n\r\n${hidden}`;

const lengthCase = (name: string, verdict: Verdict, value: (n: number, hidden: number) => string): Case => ({
  name: `Content-Length ${name}`,
  headers: (n, hidden) => `Content-Length:${value(n, hidden)}\r\n`,
  body: plain,
  verdict,
});
const codingCase = (headers: string, verdict: Verdict): Case => ({
  name: JSON.stringify(headers),
  headers: () => headers + CRLF,
  body: chunked,
  verdict,
  waits: /\r(?!\n)/.test(headers + CRLF),
});
const chunkCase = (name: string, verdict: Verdict, body: Case['body']): Case => ({
  name: `chunks: ${name}`,
  headers: () => 'Transfer-Encoding: chunked\r\n',
  body,
  verdict,
});
/** A chunk's size as `size` writes it. */
const sizeCase = (name: string, verdict: Verdict, size: (n: number) => string): Case =>
  chunkCase(name, verdict, (own, hidden) => `${size(own.length)}${own}\r\n0\r\n\r\n${hidden}`);
/** What stands for the last chunk. */
const endCase = (end: string, verdict: Verdict): Case =>
  chunkCase(JSON.stringify(end), verdict, (own, hidden) => `${hex(own.length)}\r\n${own}\r\n${end}${hidden}`);

const LENGTHS: readonly Case[] = [
  lengthCase('n', 'both', (n) => ` ${n}`),
  lengthCase('n, no space', 'both', (n) => `${n}`),
  lengthCase('tab n space', 'both', (n) => `\t${n} `),
  lengthCase('00n', 'both', (n) => ` 00${n}`),
  lengthCase('n twice, the same', 'both', (n) => ` ${n}\r\ncontent-length: ${n}`),
  ...[
    '+N',
    '-N',
    '0xN',
    'N.0',
    'N,N',
    'N, N',
    'N;a',
    'Ne0',
    '"N"',
    'N N',
    'N\x0b',
    '\x0bN',
    'N\0',
    '\0N',
    '',
    ' ',
    'a',
    '４',
  ].map((form) => lengthCase(JSON.stringify(form), 'refuse', (n) => ` ${form.replaceAll('N', String(n))}`)),
  // Right, and longer than what comes.
  { ...lengthCase('2^32 + n', 'refuse', (n) => ` ${2 ** 32 + n}`), waits: true },
  lengthCase('2^64 + n', 'refuse', (n) => ` ${2n ** 64n + BigInt(n)}`),
  lengthCase('10^20', 'refuse', () => ` 1${'0'.repeat(20)}`),
  lengthCase('folded', 'refuse', (n) => `\r\n ${n}`),
  lengthCase('n folded', 'refuse', (n) => ` ${n}\r\n 0`),
  ...['Content-Length: ', 'content-length:', 'X-Other: 1\r\nCONTENT-LENGTH: '].flatMap((second) => [
    lengthCase(`n, n + hidden (${second})`, 'refuse', (n, hidden) => ` ${n}\r\n${second}${n + hidden}`),
    lengthCase(`n + hidden, n (${second})`, 'refuse', (n, hidden) => ` ${n + hidden}\r\n${second}${n}`),
    lengthCase(`n, 0 (${second})`, 'refuse', (n) => ` ${n}\r\n${second}0`),
    lengthCase(`0, n (${second})`, 'refuse', (n) => ` 0\r\n${second}${n}`),
    lengthCase(`empty, n (${second})`, 'refuse', (n) => ` \r\n${second}${n}`),
    lengthCase(`n, empty (${second})`, 'refuse', (n) => ` ${n}\r\n${second}`),
    lengthCase(`n, n, 1 (${second})`, 'refuse', (n) => ` ${n}\r\n${second}${n}\r\n${second}1`),
  ]),
];

const TE = 'Transfer-Encoding';
const CODINGS: readonly Case[] = [
  ...['chunked', 'Chunked', 'CHUNKED', ' chunked ', '\tchunked'].map((value) =>
    codingCase(`${TE}: ${value}`, 'serve'),
  ),
  ...[
    ...['gzip', 'identity', 'gzip, chunked', 'chunked, gzip', 'chunked, chunked', 'chunked, identity', 'x'],
    ...['chunked;a=b', '"chunked"', "'chunked'", 'chunke', 'xchunked', 'chunked,', ',chunked', '', ' '],
    ...['chunked\x0b', '\x0bchunked', 'chunked\0', 'chunked\x0c', 'chun ked', 'chu\xadnked'],
    ...['ch\x09unked', 'chunked\r', 'chun\r\n ked', '\r\n chunked', '\u017Fchunked'],
  ].map((value) => codingCase(`${TE}: ${value}`, 'refuse')),
  // µWS takes bytes above 127 before a value for spaces.
  codingCase(`${TE}: \xa0chunked`, 'lax'),
  codingCase(`${TE}: chunked\r\n${TE}: chunked`, 'refuse'),
  codingCase(`${TE}: chunked\r\n${TE}: identity`, 'refuse'),
  codingCase(`${TE}: identity\r\n${TE}: chunked`, 'refuse'),
  codingCase(`${TE}: \r\n${TE}: chunked`, 'refuse'),
  codingCase(`${TE}: chunked\r\n${TE}:`, 'refuse'),
  ...[`${TE} : chunked`, `${TE}\t: chunked`, ` ${TE}: chunked`, `X: a\r\n ${TE}: chunked`].map((headers) =>
    codingCase(headers, 'refuse'),
  ),
  ...[`X: a\n${TE}: chunked`, `X: a\r${TE}: chunked`, `${TE}\0: chunked`, `${TE}: chunked\nX: a`].map(
    (headers) => codingCase(headers, 'refuse'),
  ),
];

/** Both headers: the length says that the hidden request is in the body, or that it is not. */
const TOGETHER: readonly Case[] = ['chunked', 'identity', 'gzip, chunked', 'Chunked', ''].flatMap((coding) =>
  [true, false].flatMap((lengthFirst) =>
    [0, 1].map((hides): Case => ({
      name: `${TE}: ${coding} and Content-Length, ${lengthFirst ? 'first' : 'last'}, ${hides}`,
      headers: (n, hidden) => {
        const lines = [`Content-Length: ${n + hides * hidden}`, `${TE}: ${coding}`];
        return `${(lengthFirst ? lines : lines.reverse()).join(CRLF)}\r\n`;
      },
      body: chunked,
      verdict: 'refuse',
    })),
  ),
);

const CHUNKS: readonly Case[] = [
  sizeCase('upper', 'serve', (n) => `${hex(n).toUpperCase()}\r\n`),
  sizeCase('zeros before', 'serve', (n) => `000${hex(n)}\r\n`),
  ...[';a', ';a=b', ';a="b"', ' ;a', ';', '\t;a=1', ' ', '\t', ';\n', ' x'].map((more) =>
    sizeCase(`size and ${JSON.stringify(more)}`, 'lax', (n) => `${hex(n)}${more}\r\n`),
  ),
  ...['+', '-', '0x', ' ', '\t', '\n', '\r\n', '#', '\0'].map((sign) =>
    sizeCase(`${JSON.stringify(sign)} and size`, 'lax', (n) => `${sign}${hex(n)}\r\n`),
  ),
  ...['g', '@', ':', 'G', '', '1'.repeat(17), 'f'.repeat(16), '8'.repeat(16), '10000000000000000'].map(
    (size) => sizeCase(`size ${JSON.stringify(size)}`, 'lax', () => `${size}\r\n`),
  ),
  sizeCase('2^32 + n', 'lax', (n) => `${hex(2 ** 32 + n)}\r\n`),
  sizeCase('2^64 + n', 'lax', (n) => `${(2n ** 64n + BigInt(n)).toString(16)}\r\n`),
  sizeCase('LF', 'lax', (n) => `${hex(n)}\n`),
  sizeCase('CR', 'lax', (n) => `${hex(n)}\r`),
  sizeCase('one less', 'lax', (n) => `${hex(n - 1)}\r\n`),
  sizeCase('one more', 'lax', (n) => `${hex(n + 1)}\r\n`),
  sizeCase('two more', 'lax', (n) => `${hex(n + 2)}\r\n`),
  sizeCase('as hexadecimal digits of an extension', 'lax', (n) => `${hex(n >> 8)};${hex(n & 255)}\r\n`),
  ...['', 'XX', '\n\n', '\r', '\r\n\r\n', 'X\r\n', ' \r\n'].map((end) =>
    chunkCase(
      `${JSON.stringify(end)} behind data`,
      'lax',
      (own, hidden) => `${hex(own.length)}\r\n${own}${end}0\r\n\r\n${hidden}`,
    ),
  ),
  ...['00\r\n\r\n', '0000000000\r\n\r\n'].map((end) => endCase(end, 'serve')),
  ...[
    '0;a\r\n\r\n',
    '0 \r\n\r\n',
    '0\n\n',
    '0\r\n',
    '0\r\nXX',
    '0\r\nX: y\r\n\r\n',
    '-0\r\n\r\n',
    '0\r\n\n',
  ].map((end) => endCase(end, 'lax')),
  ...['0\r\nX: y\r\nY: z\r\n\r\n', '0\r\n\0\0', '\r\n0\r\n\r\n', '0x0\r\n\r\n', '', '0', '0\r'].map((end) =>
    endCase(end, 'lax'),
  ),
  chunkCase('the hidden request is a chunk', 'lax', (own, hidden) => {
    const size = hex(hidden.length);
    return `${hex(own.length)}\r\n${own}\r\n${size}\r\n${hidden}\r\n0\r\n\r\n`;
  }),
  chunkCase(
    'the hidden request is a trailer',
    'lax',
    (own, hidden) => `${hex(own.length)}\r\n${own}\r\n0\r\n${hidden}`,
  ),
];

const HEADS: readonly Case[] = [
  ...['Host: other', 'host: x'].map((line): Case => ({
    name: `two hosts, ${line}`,
    headers: (n) => `${line}\r\nContent-Length: ${n}\r\n`,
    body: plain,
    verdict: 'refuse',
  })),
];

/** Names that RFC 9110 §5.6.2 allows. */
const SIGNS = [
  '0',
  'A',
  ...(OLD_PARSER ? [] : ['!', '#', '$', '%', '&', "'", '*', '+', '.', '^', '_', '`', '|', '~']),
];
const NAMES: readonly Case[] = SIGNS.map((sign) => ({
  name: `name session${sign}id`,
  headers: (n) => `session${sign}id: 1\r\nContent-Length: ${n}\r\n`,
  body: plain,
  verdict: 'both',
}));

const CASES = [...LENGTHS, ...CODINGS, ...TOGETHER, ...CHUNKS, ...HEADS, ...NAMES];

/** mulberry32. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Bodies that wait for their provider, a wrong one that is refused at once, and one of nobody. */
const KINDS = ['waits', 'streams', 'wrong', 'stranger'] as const;
type Kind = (typeof KINDS)[number];
const RIGHT_STATUS: Readonly<Record<Kind, number>> = { waits: 200, streams: 200, wrong: 400, stranger: 401 };

interface Seen {
  readonly statuses: number[];
  readonly isClosed: boolean;
}

/** How much a wait may take longer than asked for and count: a process that got no core has not waited. */
const TURN_MS_MAX = 50;

/**
 * Sends the packets and reads until it is closed, `enough` responses are there, or nothing came for so long.
 * Who was told something is to be told the end too, which may take ANSWER_MS.
 */
async function talk(
  port: number,
  packets: readonly Buffer[],
  enough: number,
  waitsMs: number,
): Promise<Seen> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.setNoDelay(true);
  socket.on('error', () => undefined);
  let received = '';
  let isClosed = false as boolean;
  let silentMs = 0;
  socket.on('data', (bytes: Buffer) => {
    received += bytes.toString('latin1');
    silentMs = 0;
  });
  for (const event of ['end', 'close']) socket.on(event, () => (isClosed = true));
  for (const packet of packets) {
    socket.write(packet);
    if (packets.length > 1) await sleep(2);
  }
  const statuses = (): number[] =>
    [...received.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
  const waitMsMax = (): number => (received === '' ? waitsMs : ANSWER_MS);
  while (!isClosed && statuses().length < enough && silentMs < waitMsMax()) {
    const beganMs = performance.now();
    await sleep(10);
    silentMs += Math.min(performance.now() - beganMs, TURN_MS_MAX);
  }
  socket.destroy();
  return { statuses: statuses(), isClosed };
}

void t.test('framing', { timeout: 120_000 }, async (t) => {
  t.comment(`seed ${SEED}`);
  const bodies: string[] = [];
  const upstream = createServer((req, res) => {
    void text(req).then((body) => {
      bodies.push(body);
      if (body.includes('"stream":true')) {
        const event = (delta: object, reason: string | null): string =>
          `data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta, finish_reason: reason }] })}\n\n`;
        res.setHeader('content-type', 'text/event-stream');
        res.end(`${event({ role: 'assistant', content: 'ok' }, null)}${event({}, 'stop')}data: [DONE]\n\n`);
        return;
      }
      const answer = {
        id: 'x',
        object: 'chat.completion',
        created: 1,
        model: 'm',
        choices: [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }],
        usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
      };
      res.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
    });
  }).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  t.teardown(() => {
    upstream.close();
    upstream.closeAllConnections();
  });
  const gateway = await startGateway(t, {
    config: testSettings(`http://127.0.0.1:${(upstream.address() as AddressInfo).port}/v1`),
  });
  const { key } = await gateway.admin.customer({ credit: '1000.00' });

  const chatBody = (marker: string, more: object = {}): string =>
    JSON.stringify({ model: TEST_MODEL, messages: [{ role: 'user', content: marker }], ...more });
  const head = (bearer: string, more: string): string =>
    `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${bearer}\r\n${more}\r\n`;
  const random = randomOf(SEED);

  let count = 0;
  const judge = async (
    { name, headers, body, verdict, waits }: Case,
    kind: Kind,
    cuts: number,
  ): Promise<void> => {
    count += 1;
    const marker = `case-${count}-`;
    const own =
      kind === 'wrong'
        ? `{"wrong ${marker}own`
        : chatBody(`${marker}own`, kind === 'streams' ? { stream: true } : {});
    const hiddenBody = chatBody(`${marker}hidden`);
    // A good body in chunks is also sent alone.
    const hides = verdict !== 'serve' || random() < 0.5;
    const hidden = hides ? head(key, `Content-Length: ${hiddenBody.length}\r\n`) + hiddenBody : '';
    const all = Buffer.from(
      head(kind === 'stranger' ? 'sk-none' : key, headers(own.length, hidden.length)) + body(own, hidden),
      'latin1',
    );
    const ends = Array.from({ length: cuts }, () => Math.floor(random() * all.length)).sort((a, b) => a - b);
    const packets = [...ends, all.length]
      .map((end, at) => all.subarray(at === 0 ? 0 : ends[at - 1]!, end))
      .filter((packet) => packet.length > 0);

    // Two requests at once, the first of which waits, are cut: µWS does not keep the second.
    const mayBeCut = verdict === 'both' && (kind === 'waits' || kind === 'streams');
    const enough = verdict === 'both' ? 2 : Infinity;
    const hangs = verdict === 'lax' || waits === true || mayBeCut || (verdict === 'refuse' && OLD_PARSER);
    const { statuses, isClosed } = await talk(gateway.port, packets, enough, hangs ? SILENCE_MS : ANSWER_MS);

    const said = `${name}, ${kind}, cut at ${ends.join() || 'no place'}: ${statuses.join() || 'nothing'}${isClosed ? ', closed' : ''}`;
    const served = (part: string): number =>
      bodies.filter((text) => text.includes(`${marker}${part}`)).length;
    const right = RIGHT_STATUS[kind];
    if (
      OLD_PARSER &&
      cuts > 0 &&
      verdict !== 'refuse' &&
      (statuses.at(-1) ?? 505) === 505 &&
      isClosed &&
      served('hidden') === 0
    )
      return;
    if (verdict === 'both') {
      if (mayBeCut) return;
      if (statuses[0] !== right || statuses[1] !== 200) t.fail(said);
      return;
    }
    if (served('hidden') > 0 || statuses.length > 1) t.fail(`the hidden request was served: ${said}`);
    // What comes behind a body in chunks cuts the connection, before the response or while it is on its way.
    const mayComeLate = hides || (ends.at(-1) ?? 0) > all.length - '0\r\n\r\n'.length;
    const isCut = mayComeLate && statuses.length === 0;
    if (verdict === 'serve' && ((statuses[0] !== right && !isCut) || !isClosed)) t.fail(said);
    if (verdict === 'refuse' && (served('own') > 0 || statuses.some((status) => status < 400))) t.fail(said);
    if (verdict === 'refuse' && !isClosed && !hangs) t.fail(`not closed: ${said}`);
    if (verdict === 'lax' && statuses.length > 0 && !isClosed) t.fail(`not closed: ${said}`);
  };

  const jobs = CASES.flatMap((each) =>
    KINDS.flatMap((kind) =>
      (FULL ? [0, 0, 1, 1, 1, 2, 2, 3, 5, 8, 40] : [0, 2]).map((cuts) => ({ each, kind, cuts })),
    ),
  );
  const run = async (): Promise<void> => {
    for (let job = jobs.pop(); job !== undefined; job = jobs.pop()) await judge(job.each, job.kind, job.cuts);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, run));
  t.ok(count >= CASES.length * KINDS.length, `${count} connections, ${CASES.length} framings`);

  t.equal((await gateway.chat(key, 'Hello')).status, 200, 'the next is served');
  t.equal(await gateway.stop(), 0);
  t.same(
    gateway.log().filter((line) => line.includes('"level":"error"')),
    [],
    'nothing of this is an error of ours',
  );
});
