/**
 * Responses of a provider that are none, through a whole gateway: a whole one is a 502 before its first byte;
 * a stream is the same until the client has something of it, then ends with an error event and without
 * `[DONE]`. Neither is billed, and no byte that is wrong comes through. What is wrong behind the last text
 * changes nothing. And what merely looks odd is served.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import t, { type Test } from 'tap';
import { SSE_EVENT_BYTES_MAX } from '#src/core/limits.js';
import { answerOf, chunkOf, DONE, sse, USAGE, usageEvent } from '../fixtures/upstream-server.js';
import { isGoodStream, NO_UTF8 } from '../support/answer-judge.js';
import { eventually, startGateway, testSettings, type Gateway } from '../support/gateway.js';
import type { Answer } from '../support/http.js';
import { naiveEvents } from '../support/sse-transcripts.js';

const CALLS_AT_ONCE = 24;
/** So that what was written before is relayed by itself. */
const PAUSE_MS = 15;

type Headers = Readonly<Record<string, string>>;
type Bytes = string | Uint8Array;
/**
 * What becomes of a call: 502; an error event behind what was good, or 502 where both came together, as then
 * what was good is held back; the same, but the connection ends in place of the event, and what was relayed
 * is charged, since callers can bring about an event beyond our bound; a good answer.
 */
type Outcome = 'refused' | 'refused or cut' | 'refused or charged' | 'served';

interface Case {
  readonly name: string;
  readonly stream: boolean;
  readonly headers: Headers;
  /** Written one by one, with pauses. */
  readonly parts: readonly Bytes[];
  readonly outcome: Outcome;
}

const joined = (...parts: readonly Bytes[]): Buffer =>
  Buffer.concat(parts.map((part) => Buffer.from(part as string)));

/** `text` with `put` at the share of its length. */
function within(text: string, share: number, put: Bytes): Buffer {
  const at = Math.floor(text.length * share);
  return joined(text.slice(0, at), put, text.slice(at));
}

const JSON_TYPE: Headers = { 'content-type': 'application/json' };
const TEXT = 'quite usual words. ';

/** Wrong forms of a good answer whose text begins behind `"content":"`. */
function wholeForms(answer: string): Readonly<Record<string, Bytes>> {
  const inText = (put: Bytes): Buffer => {
    const at = answer.indexOf('"content":"') + '"content":"'.length + 4;
    return joined(answer.slice(0, at), put, answer.slice(at));
  };
  return {
    ...Object.fromEntries(
      [0.1, 0.3, 0.5, 0.7, 0.9, 0.99].map((share) => [
        `cut at ${share}`,
        answer.slice(0, Math.floor(answer.length * share)),
      ]),
    ),
    'less its last byte': answer.slice(0, -1),
    'less its first byte': answer.slice(1),
    'a byte-order mark': `\uFEFF${answer}`,
    'two objects': answer + answer,
    'two on lines of their own': `${answer}\n${answer}\n`,
    'another object': `${answer}{}`,
    'a letter behind it': `${answer}x`,
    'a comma behind it': `${answer},`,
    'NUL behind it': `${answer}\u0000`,
    'NUL before it': `\u0000${answer}`,
    'in an array': `[${answer}]`,
    'in a string': JSON.stringify(answer),
    'as an event': `data: ${answer}\n\n`,
    'with a prefix': `)]}',\n${answer}`,
    'as UTF-16': Buffer.from(answer, 'utf16le'),
    'a trailing comma': answer.replace(/}$/, ',}'),
    'single quotes': answer.replaceAll('"', "'"),
    'a comment': `/* answer */${answer}`,
    NaN: answer.replace(/}$/, ',"x":NaN}'),
    'a name without quotes': answer.replace('"choices"', 'choices'),
    'a number with a zero before it': answer.replace(/}$/, ',"x":01}'),
    'a line break in the text': inText('\n'),
    'a lone CR in the text': inText('\r'),
    'NUL in the text': inText('\u0000'),
    'a tabulator in the text': inText('\t'),
    'an unknown escape': inText('\\x41'),
    'half an escape': inText('\\u12"'),
    'a quote in the text': inText('"'),
    ...Object.fromEntries(
      NO_UTF8.map((bytes) => [`no UTF-8: ${Buffer.from(bytes).toString('hex')}`, inText(bytes)]),
    ),
  };
}

const SHORT = answerOf(USAGE, TEXT);
const LONG = answerOf(USAGE, TEXT.repeat(1_000));

const choicesAs = (value: unknown): string => JSON.stringify({ id: 'c', choices: value, usage: USAGE });

function wholeCases(): Case[] {
  const wrong: Readonly<Record<string, Bytes>> = {
    nothing: '',
    blanks: ' \n ',
    HTML: '<!doctype html><html><body>Sign in</body></html>',
    null: 'null',
    'a number': '1',
    'a text': '"hello"',
    'an array': '[]',
    'an object with nothing': '{}',
    'an error with 200': JSON.stringify({ error: { message: 'x' } }),
    nested: '['.repeat(100_000),
    'no choices': choicesAs(undefined),
    ...Object.fromEntries(
      [null, 'x', 1, true, {}, { 0: { message: { content: 'x' } } }].map((value) => [
        `choices: ${JSON.stringify(value)}`,
        choicesAs(value),
      ]),
    ),
    'gzip that does not say so': gzipSync(SHORT),
    'zeros for an answer': Buffer.alloc(1_000),
  };
  const refused = (name: string, body: Bytes, headers = JSON_TYPE): Case => ({
    name: `whole, ${name}`,
    stream: false,
    headers,
    parts: [body],
    outcome: 'refused',
  });
  const encoded = (encoding: string, body: Bytes): Case =>
    refused(`${encoding}, ${String(body.length)} bytes`, body, {
      ...JSON_TYPE,
      'content-encoding': encoding,
    });
  const served = (name: string, body: Bytes): Case => ({ ...refused(name, body), outcome: 'served' });
  return [
    ...Object.entries(wrong).map(([name, body]) => refused(name, body)),
    ...Object.entries(wholeForms(SHORT)).map(([name, body]) => refused(`short, ${name}`, body)),
    ...Object.entries(wholeForms(LONG)).map(([name, body]) => refused(`long, ${name}`, body)),
    refused('HTML by its type', '<html></html>', { 'content-type': 'text/html' }),
    refused('JSON that calls itself HTML', SHORT, { 'content-type': 'text/html' }),
    refused('JSON that calls itself a stream', SHORT, { 'content-type': 'text/event-stream' }),
    encoded('gzip', gzipSync(SHORT)),
    // It lies: this is no gzip.
    encoded('gzip', SHORT),
    encoded('br', brotliCompressSync(SHORT)),
    encoded('deflate', deflateSync(SHORT)),
    served('as it should be', SHORT),
    served('long, as it should be', LONG),
    served('on many lines', JSON.stringify(JSON.parse(SHORT), null, '\t')),
    served('usage of the wrong type', SHORT.replace(JSON.stringify(USAGE), '"7"')),
    served('usage an array', SHORT.replace(JSON.stringify(USAGE), '[7,3,10]')),
  ];
}

const EVENT = sse(chunkOf(TEXT));
const STOP = sse(chunkOf('', 'stop'));

/** Events that are none. */
const EVENT_FORMS: Readonly<Record<string, Bytes>> = {
  'cut JSON': 'data: {"choices":[\n\n',
  'less its last brace': `${EVENT.trimEnd().slice(0, -1)}\n\n`,
  'two objects': `${EVENT.trimEnd()}${EVENT.slice('data: '.length)}`,
  'a letter behind it': `${EVENT.trimEnd()}x\n\n`,
  'an array': 'data: [1]\n\n',
  'a number': 'data: 1\n\n',
  'a text': 'data: "hello"\n\n',
  null: 'data: null\n\n',
  HTML: 'data: <html></html>\n\n',
  'an error': sse({ error: { message: 'x' } }),
  'a byte-order mark in its data': `data: \uFEFF${EVENT.slice('data: '.length)}`,
  'NUL in its text': within(EVENT, 0.65, '\u0000'),
  'NULs for an event': joined('data: ', Buffer.alloc(64), '\n\n'),
  'a lone CR in its text': EVENT.replace('usual', 'us\rual'),
  'lines in its text': EVENT.replace('usual', 'us\ndata: ual'),
  'a quote in its text': EVENT.replace('usual', 'us"ual'),
  'an unknown escape': EVENT.replace('usual', '\\x'),
  'single quotes': EVENT.replaceAll('"', "'"),
  'gzip for an event': joined(
    'data: ',
    gzipSync(EVENT)
      .toString('latin1')
      .replaceAll(/[\r\n]/g, 'x'),
    '\n\n',
  ),
  ...Object.fromEntries(
    NO_UTF8.map((bytes) => {
      const at = EVENT.indexOf('usual');
      return [
        `no UTF-8: ${Buffer.from(bytes).toString('hex')}`,
        joined(EVENT.slice(0, at), bytes, EVENT.slice(at)),
      ];
    }),
  ),
};
/** Longer than any that is taken; each costs the time of its bytes. */
const HUGE_EVENT = `data: {"x":"${'x'.repeat(2 * SSE_EVENT_BYTES_MAX)}"}\n\n`;

/** Where in a stream it stands: events before it, and those behind it. */
const PLACES: Readonly<Record<string, readonly [before: readonly string[], behind: readonly string[]]>> = {
  'at the start': [[], [EVENT, STOP]],
  'behind one event': [[EVENT], [EVENT, STOP]],
  // By then events of that form are known without being parsed.
  'behind twenty': [Array.from({ length: 20 }, () => EVENT), [EVENT, STOP]],
  'before the finish': [[EVENT, EVENT], [STOP]],
  'behind the finish': [[EVENT, STOP], []],
};

function streamCase(
  name: string,
  parts: readonly Bytes[],
  outcome: Outcome,
  headers: Headers = { 'content-type': 'text/event-stream' },
): Case {
  return { name: `stream, ${name}`, stream: true, headers, parts, outcome };
}

function placedCases(name: string, bad: Bytes): Case[] {
  return Object.entries(PLACES).flatMap(([place, [before, behind]]) => {
    const tail = [...behind, sse(usageEvent(USAGE)), DONE];
    const isLate = place === 'behind the finish';
    const outcome = isLate ? 'served' : before.length === 0 ? 'refused' : 'refused or cut';
    return [
      streamCase(`${name} ${place}`, [...before, bad, ...tail], outcome),
      streamCase(`${name} ${place}, in one piece`, [joined(...before, bad, ...tail)], outcome),
    ];
  });
}

function streamCases(): Case[] {
  const tail = [STOP, sse(usageEvent(USAGE)), DONE];
  const whole = joined(EVENT, ...tail);
  const crlf = whole.toString().replaceAll('\n', '\r\n');
  const cr = whole.toString().replaceAll('\n', '\r');
  const lines = EVENT.replace('"choices"', '\ndata: "choices"');
  const type = { 'content-type': 'text/event-stream' };
  return [
    ...Object.entries(EVENT_FORMS).flatMap(([name, bad]) => placedCases(name, bad)),
    streamCase('a huge event at the start', [HUGE_EVENT], 'refused'),
    streamCase('a huge event', [EVENT, HUGE_EVENT, ...tail], 'refused or charged'),
    streamCase('a huge event without end', [EVENT, HUGE_EVENT.slice(0, -2)], 'refused or charged'),
    streamCase('nothing', [''], 'refused'),
    streamCase('[DONE] alone', [DONE], 'refused'),
    streamCase('comments alone', [': hello\n\n'], 'refused'),
    streamCase('lines that are no events', [EVENT.slice('data: '.length).repeat(3)], 'refused'),
    streamCase('a whole answer', [SHORT], 'refused'),
    streamCase('HTML', ['<html></html>'], 'refused'),
    streamCase('HTML by its type', ['<html></html>'], 'refused', { 'content-type': 'text/html' }),
    streamCase('events that call themselves JSON', [whole], 'refused', JSON_TYPE),
    streamCase('NULs', [Buffer.alloc(1_000)], 'refused'),
    streamCase('as UTF-16', [Buffer.from(whole.toString(), 'utf16le')], 'refused'),
    streamCase('an event without choices first', ['data: {"x":1}\n\n', whole], 'refused'),
    streamCase('choices that are a text first', ['data: {"choices":"x"}\n\n', whole], 'refused'),
    streamCase('no end', [EVENT], 'refused or cut'),
    streamCase('half an event for an end', [EVENT, 'data: {"cho'], 'refused or cut'),
    streamCase('gzip', [gzipSync(whole)], 'refused', { ...type, 'content-encoding': 'gzip' }),
    streamCase('gzip that lies', [whole], 'refused', { ...type, 'content-encoding': 'gzip' }),
    streamCase('gzip that does not say so', [gzipSync(whole)], 'refused'),
    streamCase('as it should be', [whole], 'served'),
    streamCase('in CRLF', [crlf], 'served'),
    streamCase('in lone CRs', [cr], 'served'),
    streamCase('a byte-order mark first', ['\uFEFF', whole], 'served'),
    streamCase('data over two lines', [lines, lines, ...tail], 'served'),
    streamCase('two objects behind [DONE]', [whole, EVENT.trimEnd() + EVENT], 'served'),
    streamCase('without a blank line at its end', [EVENT, STOP.trimEnd()], 'served'),
  ];
}

async function startProvider(t: Test, cases: ReadonlyMap<string, Case>): Promise<string> {
  const play = async (response: ServerResponse, { headers, parts }: Case): Promise<void> => {
    response.writeHead(200, headers);
    for (const part of parts) {
      response.write(part);
      if (parts.length > 1) await sleep(PAUSE_MS);
    }
    response.end();
  };
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    response.on('error', () => undefined);
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      const body = JSON.parse(Buffer.concat(pieces).toString()) as { messages: { content: string }[] };
      void play(response, cases.get(body.messages[0]!.content)!);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
}

/** What is wrong with what became of it; undefined where nothing is. No answer: the connection was reset. */
function faultOf({ stream, outcome }: Case, answer: Answer | undefined, spent: string): string | undefined {
  if (answer === undefined) {
    if (outcome !== 'refused or charged') return 'its connection was reset';
    return spent === '0.00' ? 'it is not charged' : undefined;
  }
  const { status, body } = answer;
  if (body.includes('\uFFFD')) return 'bytes that are no UTF-8 came through';
  const isRejected = status === 502 && (answer.json() as { error?: { code: string } }).error !== undefined;
  if (status !== 200 && !isRejected) return `status ${status}`;
  if (isRejected ? !outcome.startsWith('refused') : outcome === 'refused') return `status ${status}`;
  const isPaid = spent !== '0.00';
  if (outcome === 'served') {
    if (!isPaid) return 'it is not charged';
    if (!stream) return body.includes(TEXT) ? undefined : 'its text is missing';
    return naiveEvents(body).at(-1) === '[DONE]' && body.includes('usual') ? undefined : 'it has no end';
  }
  if (isPaid) return `charged ${spent}`;
  if (isRejected) return undefined;
  if (outcome === 'refused or charged') return 'its connection was not reset';
  if (!isGoodStream(Buffer.from(body))) return 'an event that is none came through';
  const events = naiveEvents(body);
  if (events.includes('[DONE]')) return 'it has an end';
  const last = JSON.parse(events.at(-1)!) as { error?: { code?: string } };
  if (last.error?.code !== 'provider_unavailable') return 'no error event at its end';
  return body.includes(TEXT) ? undefined : 'what came before is missing';
}

async function check(gateway: Gateway, one: Case): Promise<{ fault: string | undefined; isCut: boolean }> {
  const { accountId, key } = await gateway.admin.customer();
  const answer = await gateway
    .chat(key, one.name, { stream: one.stream })
    .catch((error: unknown): undefined => {
      if ((error as NodeJS.ErrnoException).code !== 'ECONNRESET') throw error;
    });
  const { spent } = await eventually(`nothing held by ${one.name}`, async () => {
    const view = await gateway.admin.account(accountId);
    return view.held === '0.00' ? view : undefined;
  });
  const fault = faultOf(one, answer, spent);
  return {
    fault: fault && `${one.name}: ${fault}, wanted ${one.outcome}: ${answer?.body.slice(-300)}`,
    isCut: answer?.status !== 502 && one.outcome !== 'served',
  };
}

void t.test('answers that are none', async (t) => {
  const list = [...wholeCases(), ...streamCases()];
  const cases = new Map(list.map((one) => [one.name, one]));
  t.equal(cases.size, list.length, 'each has a name of its own');
  const settings = testSettings(await startProvider(t, cases), { upstream: { breaker_failures: 0 } });
  const gateway = await startGateway(t, { config: settings });
  const startMs = performance.now();
  const faults: string[] = [];
  let cut = 0;
  let next = 0;
  const work = async (): Promise<void> => {
    for (let one = list[next++]; one !== undefined; one = list[next++]) {
      const { fault, isCut } = await check(gateway, one);
      if (fault !== undefined) faults.push(fault);
      if (isCut) cut++;
    }
  };
  await Promise.all(Array.from({ length: CALLS_AT_ONCE }, work));
  const wholes = list.filter(({ stream }) => !stream).length;
  t.strictSame(faults, []);
  t.comment(
    `${list.length} answers, ${wholes} of them whole, ${cut} streams cut, in ${((performance.now() - startMs) / 1_000).toFixed(1)} s`,
  );
  t.ok(list.length > 300 && cut > 20);
  t.notMatch(gateway.log().join('\n'), /inside of the gateway|invariant/);
  t.equal(await gateway.stop(), 0);
});
