/**
 * The HTTP client beside undici on the same broken answers, from bare sockets: where both take a response it
 * is the same to the byte; where one alone takes it, the reason is one of those that are listed here.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import t from 'tap';
import { Agent, request } from 'undici';
import { SystemClock } from '#src/core/clock.js';
import { Http1Client } from '#src/http1/client.js';
import { targetOf } from '../fixtures/upstream-server.js';
import { newSeed, pick, type Random, randomOf } from '../support/random.js';

const MUTANTS = 1_000;
const AT_ONCE = 16;
/** Every answer ends with its connection, so none is waited for. */
const TIMEOUT_MS = 60_000;

/** As providers send them, with all that a mutation can turn into something else. */
const SOUND: readonly string[] = [
  'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\nDate: Sat, 21 Nov 2026 00:00:00 GMT\r\n\r\n{"choices":1}',
  'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ndata: 1\r\n2\r\n\n\n\r\nc\r\ndata: [DONE]\r\n0\r\n\r\n',
  'HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nX-Sum: 9\r\n\r\n',
  'HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 429 Too Many\r\nRetry-After: 5\r\nContent-Length: 2\r\n\r\n{}',
  'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: until the end\n\n',
  'HTTP/1.0 200 OK\r\nServer: old\r\n\r\nold',
  'HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n',
  'HTTP/1.1 500 \r\nContent-Length: 4\r\nKeep-Alive: timeout=5\r\nConnection: Keep-Alive\r\n\r\noops',
];
/** What has turned one message into two elsewhere. */
const PIECES: readonly string[] = [
  '\r',
  '\n',
  '\r\n',
  '\0',
  ' ',
  '\t',
  ':',
  ';',
  ',',
  '0',
  '1',
  'f',
  '-',
  '+',
  'x',
  '\x7f',
  '\x80',
  '\r\n\r\n',
  '\r\n ',
  'Content-Length: 3\r\n',
  'Content-Length: 13\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: identity\r\n',
  'Transfer-Encoding : chunked\r\n',
  'Content-Length:\r\n',
  ' folded\r\n',
  'HTTP/1.1 100 Continue\r\n\r\n',
  'HTTP/1.1 200 OK\r\n\r\n',
  '0\r\n\r\n',
];

/**
 * Why ours may refuse what undici takes: any coding but one chunked is none that was asked for, and undici
 * reads on until the close; a line before the status line is no response.
 */
const STRICTER: ReadonlySet<string> = new Set([
  'HTTP1_INVALID a transfer coding but chunked',
  'HTTP1_INVALID a transfer coding in HTTP/1.0',
  'HTTP1_INVALID two transfer codings',
  'HTTP1_INVALID bad status line',
]);
/** What ours takes where undici does not: undici's complaint, and what the response looks like. */
const LOOSER: readonly (readonly [complaint: RegExp, answer: RegExp])[] = [
  // RFC 9110, 15.2: any informational answer, and it ends with its head, as a 204 and a 304 do (6.4.1).
  [/bad response/, /HTTP\/1\.1 100 /],
  // The same of old servers, from which undici expects the close behind any head without a length.
  [/Data after `Connection: close`/, /^HTTP\/1\.0 1\d\d /],
  [/Content-Length/, /^HTTP\/1\.1 (?:103|204|304) [^]*content-length:/i],
  [/ContentLengthMismatch/, /^HTTP\/1\.1 (?:103|204|304) [^]*content-length:/i],
  // Nobody reads extensions and trailers; they are bounded and hold text alone.
  [/Invalid character in chunk extensions/, /transfer-encoding:[^]*;/i],
  [
    /Content-Length can't be present/,
    /transfer-encoding:(?:(?!content-length)[^])*\r\n\r\n[^]*\r\n0[^]*content-length:/i,
  ],
];

function mutant(next: Random): string {
  let answer = pick(next, SOUND);
  const changes = 1 + Math.floor(next() * 2);
  for (let change = 0; change < changes; change++) {
    const lineStarts = [...answer.matchAll(/\r\n/g)].map(({ index }) => index + 2);
    const anywhere = Math.floor(next() * (answer.length + 1));
    const at = next() < 0.5 ? anywhere : pick(next, [0, ...lineStarts]);
    const gone = next() < 0.3 ? 1 + Math.floor(next() * 3) : 0;
    const come = next() < 0.8 ? pick(next, PIECES) : '';
    answer = answer.slice(0, at) + come + answer.slice(at + gone);
  }
  return answer;
}

/** RFC 9112 ends a field's value before white space; llhttp keeps a tab: no `chunked`, no length 13. */
const TAB_AFTER_FRAMING = /^(?:transfer-encoding|content-length):.*\t[\t ]*\r?$/im;

interface Outcome {
  readonly status: number;
  readonly body: string;
  /** Undefined where the response came whole. */
  readonly fault: string | undefined;
}

function byOurs(client: Http1Client, origin: string, path: string): Promise<Outcome> {
  return new Promise((resolve) => {
    let status = 0;
    let body = '';
    client.start(targetOf(origin, { path }), '{}', 'r', {
      onStart: (started) => (status = started),
      onData: (chunk) => (body += Buffer.from(chunk).toString('latin1')),
      onEnd: () => resolve({ status, body, fault: undefined }),
      onError: ({ code, message, repeatable }) => {
        // The server closes each connection behind its response, whatever it says: one that was kept may be
        // dead.
        if (repeatable) resolve(byOurs(client, origin, path));
        else resolve({ status, body, fault: `${code} ${message}` });
      },
    });
  });
}

async function byUndici(dispatcher: Agent, origin: string, path: string): Promise<Outcome> {
  let status = 0;
  let body = '';
  try {
    const answer = await request(origin + path, { method: 'POST', body: '{}', dispatcher });
    status = answer.statusCode;
    for await (const chunk of answer.body) body += (chunk as Buffer).toString('latin1');
    return { status, body, fault: undefined };
  } catch (error) {
    return { status, body, fault: String(error) };
  }
}

void t.test('mutants of sound answers', { timeout: 600_000 }, async (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  const answers = [...SOUND, ...Array.from({ length: MUTANTS }, () => mutant(next))];
  const cuts = answers.map((answer) => Math.floor(next() * answer.length));
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    let received = '';
    socket.on('data', (bytes) => {
      received += bytes.toString('latin1');
      const index = Number(/^POST \/(\d+) [^]*\r\n\r\n\{\}$/.exec(received)?.[1] ?? -1);
      if (index === -1) return;
      const answer = Buffer.from(answers[index]!, 'latin1');
      socket.write(answer.subarray(0, cuts[index]));
      setImmediate(() => socket.end(answer.subarray(cuts[index])));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const client = new Http1Client({ clock: new SystemClock(), version: '1' });
  const dispatcher = new Agent({ headersTimeout: TIMEOUT_MS, bodyTimeout: TIMEOUT_MS, pipelining: 1 });
  t.teardown(async () => {
    await client.close();
    await dispatcher.destroy();
    server.close();
  });
  const counts = { both: 0, neither: 0, stricter: 0, looser: 0 };
  const compare = async (index: number): Promise<void> => {
    if (TAB_AFTER_FRAMING.test(answers[index]!)) return;
    const [ours, judge] = await Promise.all([
      byOurs(client, origin, `/${index}`),
      byUndici(dispatcher, origin, `/${index}`),
    ]);
    const shown = JSON.stringify({ answer: answers[index], ours, judge });
    if (ours.fault === undefined && judge.fault === undefined) {
      counts.both++;
      if (ours.status !== judge.status || ours.body !== judge.body) t.fail(`taken otherwise: ${shown}`);
    } else if (ours.fault !== undefined && judge.fault !== undefined) {
      counts.neither++;
    } else if (ours.fault !== undefined) {
      counts.stricter++;
      if (!STRICTER.has(ours.fault)) t.fail(`refused: ${shown}`);
    } else {
      counts.looser++;
      const { fault = '' } = judge;
      const isListed = LOOSER.some(
        ([complaint, form]) => complaint.test(fault) && form.test(answers[index]!),
      );
      if (!isListed) t.fail(`taken: ${shown}`);
    }
  };
  const walk = answers.keys();
  const work = async (): Promise<void> => {
    for (const index of walk) await compare(index);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  t.comment(JSON.stringify(counts));
  t.ok(counts.both > SOUND.length);
  t.ok(counts.neither > 0);
});
