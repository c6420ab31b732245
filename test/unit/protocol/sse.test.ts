/**
 * The splitter is cut at every byte; what comes out must be the same bytes and the same events as of the
 * whole.
 */
import t from 'tap';
import { SSE_EVENT_BYTES_MAX } from '#src/core/limits.js';
import {
  endsEvent,
  errorEvent,
  forEachData,
  forEachEvent,
  latin1EventFrom,
  sseEvent,
  SseSplitter,
  SSE_DONE,
  SSE_KEEP_ALIVE,
} from '#src/protocol/sse.js';

const BOM = '\uFEFF';

/** Data of all events, read in each way that there is. */
function eventsOf(bytes: Buffer): (string | undefined)[] {
  const found: (string | undefined)[] = [];
  const text = bytes.toString('latin1');
  let covered = 0;
  forEachEvent(bytes, (start, end, data) => {
    if (start !== covered || end <= start) throw new Error(`gap at ${covered}: ${start}..${end}`);
    covered = end;
    found.push(data);
    for (const read of [text, undefined]) {
      const event = latin1EventFrom(bytes, read, start);
      const asUtf8 = event?.data && Buffer.from(event.data, 'latin1').toString();
      if (event?.end !== end || asUtf8 !== data) throw new Error(`as Latin-1 it is ${JSON.stringify(event)}`);
    }
  });
  if (covered !== bytes.length) throw new Error(`events end at ${covered} of ${bytes.length}`);
  const data: string[] = [];
  forEachData(bytes, (one) => data.push(one));
  const all = found.filter((one) => one !== undefined);
  if (JSON.stringify(data) !== JSON.stringify(all)) throw new Error(`without spans: ${JSON.stringify(data)}`);
  return found;
}

/** Data of all events of a stream that arrives as `chunks`, and its bytes put together. */
function read(chunks: Uint8Array[]): { data: string[]; bytes: Buffer } {
  const splitter = new SseSplitter();
  const pieces: Buffer[] = [];
  const data: string[] = [];
  const take = (piece: Buffer | undefined): void => {
    if (piece === undefined) throw new Error('given up');
    pieces.push(Buffer.from(piece));
    for (const value of eventsOf(piece)) if (value !== undefined) data.push(value);
  };
  for (const chunk of chunks) take(splitter.push(chunk));
  take(splitter.end());
  return { data, bytes: Buffer.concat(pieces) };
}

/** The same from the text alone, as the standard says it, by a regular expression. */
function naiveData(text: string): string[] {
  const found: string[] = [];
  let data: string[] = [];
  for (const line of text.replace(BOM, '').split(/\r\n|\n|\r/)) {
    if (line === '') {
      if (data.length > 0) found.push(data.join('\n'));
      data = [];
    } else if (line === 'data') data.push('');
    else if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
  }
  return found;
}

const STREAMS: Record<string, string> = {
  'line feeds': 'data: {"a":1}\n\ndata: {"b":"ü€😀"}\n\ndata: [DONE]\n\n',
  'carriage returns and line feeds': 'data: {"a":1}\r\n\r\ndata: {"b":2}\r\n\r\ndata: [DONE]\r\n\r\n',
  'carriage returns': 'data: {"a":1}\r\rdata: {"b":2}\r\rdata: [DONE]\r\r',
  'byte-order mark': `${BOM}data: 1\n\ndata: 2\n\n`,
  'comments and other fields':
    ': hello\n\nevent: x\nid: 7\nretry: 10\ndata:1\n\n:\n\ndatum: 3\n\ndata: 2\n\n',
  'many data lines': 'data: {"a":\ndata: 1}\ndata\ndata:\ndata:  two blanks\n\ndata: x\r\ndata: y\r\n\r\n',
  'stray blank lines': '\n\n\r\ndata: 1\n\n\n\n\ndata: 2\r\n\r\n\r\n\r\ndata: 3\n\n',
  'mixed line endings': 'data: 1\r\n\ndata: 2\n\r\ndata: 3\r\r\ndata: 4\n\rdata: 5\n\n',
};

void t.test(
  'a stream gives the same events and bytes whole, cut in three at every two bytes, and byte by byte',
  (t) => {
    for (const [name, text] of Object.entries(STREAMS)) {
      const bytes = Buffer.from(text);
      const passed = Buffer.from(text.replace(BOM, ''));
      const expected = naiveData(text);
      t.ok(expected.length >= 2, `${name} has events`);
      const check = (chunks: Uint8Array[], what: string): void => {
        const got = read(chunks);
        if (!got.bytes.equals(passed) || JSON.stringify(got.data) !== JSON.stringify(expected)) {
          t.same(got, { data: expected, bytes: passed }, `${name}, ${what}`);
        }
      };
      check([bytes], 'whole');
      check(
        Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)),
        'byte by byte',
      );
      for (let first = 0; first <= bytes.length; first++) {
        for (let second = first; second <= bytes.length; second++) {
          check(
            [bytes.subarray(0, first), bytes.subarray(first, second), bytes.subarray(second)],
            `cut at ${first} and ${second}`,
          );
        }
      }
    }
    t.end();
  },
);

void t.test(
  'every stream of up to 8 bytes out of three, cut once, gives the events that the standard gives',
  (t) => {
    const letters = ['\n', '\r', 'd'];
    let streams = 0;
    const walk = (text: string): void => {
      // `d` stands for a line `data:x`, so that short words make events.
      const full = text.replaceAll('d', 'data:x');
      const expected = JSON.stringify(naiveData(`${full}\n\n`));
      for (let cut = 0; cut <= full.length; cut++) {
        const got = read([Buffer.from(full.slice(0, cut)), Buffer.from(full.slice(cut))]);
        if (JSON.stringify(got.data) !== expected || !got.bytes.toString().startsWith(full)) {
          t.same(got.data, expected, `${JSON.stringify(full)} cut at ${cut}`);
        }
      }
      streams++;
      if (text.length < 8) for (const letter of letters) walk(text + letter);
    };
    walk('');
    t.equal(streams, (3 ** 9 - 1) / 2);
    t.end();
  },
);

void t.test('Latin-1 has one character for each byte, also of what is no UTF-8', (t) => {
  const all = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)).filter(
    (byte) => byte !== 10 && byte !== 13,
  );
  for (const lineEnd of ['\n', '\r\n', '\r']) {
    const event = Buffer.concat([Buffer.from('data: '), all, Buffer.from(lineEnd + lineEnd)]);
    for (const text of [undefined, event.toString('latin1')])
      t.same(latin1EventFrom(event, text, 0), {
        end: event.length,
        data: Buffer.from(all).toString('latin1'),
      });
  }
  t.end();
});

void t.test('bytes end an event if they end with a blank line, whatever ends lines', (t) => {
  for (const end of ['\n\n', '\r\n\r\n', '\r\r', '\n\r\n', '\r\r\n', '\n\r'])
    t.equal(endsEvent(Buffer.from(`data: 1${end}`)), true, JSON.stringify(end));
  for (const end of ['', '\n', '\r', '\r\n', '\n\n ', '\n\ndata: 2\n'])
    t.equal(endsEvent(Buffer.from(`data: 1${end}`)), false, JSON.stringify(end));
  for (const short of ['', '\n', '\r', '\r\n']) t.equal(endsEvent(Buffer.from(short)), false);
  t.end();
});

void t.test('a chunk that ends with an event is passed on as it is', (t) => {
  const chunk = Buffer.from('data: 1\n\ndata: 2\n\n');
  const splitter = new SseSplitter();
  splitter.push(chunk);
  const passed = splitter.push(chunk);
  t.equal(passed?.buffer, chunk.buffer, 'the same memory');
  t.equal(passed?.byteOffset, chunk.byteOffset);
  t.equal(passed?.length, chunk.length);
  const plain = new Uint8Array(chunk);
  t.equal(splitter.push(plain)?.buffer, plain.buffer, 'also of a plain Uint8Array');
  t.equal(splitter.end().length, 0);
  t.end();
});

void t.test('whole events are given before the cut one, which does not change them later', (t) => {
  const splitter = new SseSplitter();
  t.equal(splitter.push(Buffer.from('data: 1\n\ndata: '))?.toString(), 'data: 1\n\n');
  t.equal(splitter.push(Buffer.from('2'))?.length, 0);
  const second = splitter.push(Buffer.from('\n\ndata: 3'));
  t.equal(second?.toString(), 'data: 2\n\n');
  splitter.push(Buffer.from('4\n\n'));
  t.equal(second?.toString(), 'data: 2\n\n', 'not overwritten by what is held after it');
  t.end();
});

void t.test('a blank line is not cut between its CR and its LF', (t) => {
  const splitter = new SseSplitter();
  t.equal(splitter.push(Buffer.from('data: 1\r\n\r'))?.length, 0, 'the LF is waited for');
  t.equal(splitter.push(Buffer.from('\ndata: 2\n\r'))?.toString(), 'data: 1\r\n\r\n');
  t.equal(
    splitter.push(Buffer.from('data: 3'))?.toString(),
    'data: 2\n\r',
    'none came, so the CR was the blank line',
  );
  t.equal(splitter.push(Buffer.from('\r\r'))?.toString(), 'data: 3\r\r', 'CR alone is not waited on');
  t.end();
});

void t.test('end closes what the upstream left open', (t) => {
  const open = {
    'data: x': 'data: x\n\n',
    'data: x\n': 'data: x\n\n',
    'data: x\r\n': 'data: x\r\n\n',
    'data: x\r': 'data: x\r\n\n',
  };
  for (const [text, closed] of Object.entries(open)) {
    const splitter = new SseSplitter();
    t.equal(splitter.push(Buffer.from(text))?.length, 0);
    const rest = splitter.end();
    t.equal(rest.toString(), closed);
    t.same(eventsOf(rest), ['x']);
    t.equal(splitter.end().length, 0, 'and gives it once');
  }
  t.end();
});

void t.test('an event as long as allowed passes, a longer one is given up', (t) => {
  const part = Buffer.alloc(SSE_EVENT_BYTES_MAX / 16, 'x');
  const splitter = new SseSplitter();
  for (let index = 0; index < 16; index++) t.equal(splitter.push(part)?.length, 0);
  t.equal(splitter.push(Buffer.from('\n\n'))?.length, SSE_EVENT_BYTES_MAX + 2);
  for (let index = 0; index < 16; index++) splitter.push(part);
  t.equal(splitter.push(Buffer.from('x')), undefined, 'one byte more');
  t.equal(splitter.bufferBytes, 0);
  t.equal(splitter.end().length, 0, 'nothing is left of what was given up');
  const atOnce = new SseSplitter();
  t.equal(atOnce.push(Buffer.alloc(SSE_EVENT_BYTES_MAX + 1, 'x')), undefined);
  t.end();
});

void t.test('the cost is linear where all but the last line end in CR', (t) => {
  // CPU time, since other files run beside this one, of the same number of events in either way.
  const microsOf = (count: number): number => {
    const bytes = Buffer.from(`${'data: {"choices":[]}\r\r'.repeat(count)}data: 1\n\n`);
    const before = process.cpuUsage();
    for (let events = 0; events < 16_000; events += count) t.equal(eventsOf(bytes).length, count + 1);
    return process.cpuUsage(before).user;
  };
  const leastOf = (count: number): number => Math.min(...Array.from({ length: 5 }, () => microsOf(count)));
  const short = leastOf(1_000);
  const long = leastOf(16_000);
  // The same, and were all that follows read for each of them 16 times as much.
  t.ok(long < 6 * short, `${long} µs for 16,000 in one text, ${short} µs in sixteen`);
  t.end();
});

void t.test('what is written reads back', (t) => {
  const record = { code: 'provider_unavailable', message: 'a "quote"\nand a line' } as const;
  t.equal(sseEvent('{"a":1}', 'b'), 'event: b\ndata: {"a":1}\n\n');
  const text = `${sseEvent('{"a":1}')}${sseEvent('{"b":2}', 'b')}${SSE_KEEP_ALIVE}${errorEvent(record)}${SSE_DONE}`;
  const found = eventsOf(Buffer.from(text));
  t.same(found.slice(0, 3), ['{"a":1}', '{"b":2}', undefined]);
  t.same(JSON.parse(found[3] ?? ''), {
    error: { message: record.message, type: 'provider_error', code: 'provider_unavailable' },
  });
  t.equal(found[4], '[DONE]');
  t.end();
});
