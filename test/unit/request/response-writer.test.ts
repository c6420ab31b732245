/**
 * What a slow or silent socket gets, and when it is given up. The socket is a model of µWS's: it takes so
 * many bytes and no more.
 */
import t from 'tap';
import type { HttpResponse } from 'uWebSockets.js';
import { asMonotonicMs, asWallMs } from '#src/core/units.js';
import { ResponseWriter, type ResponseOwner } from '#src/request/response-writer.js';

const IDLE_MS_MAX = 60_000;

class Socket {
  text = '';
  corks = 0;
  heads = 0;
  ended = false;
  /** Whether a write finds room. */
  takes = true;
  writable: () => void = () => undefined;
  readonly res = {
    cork: (write: () => void) => {
      this.corks += 1;
      write();
    },
    write: (bytes: Uint8Array | string) => {
      this.text += typeof bytes === 'string' ? bytes : Buffer.from(bytes).toString();
      return this.takes;
    },
    end: () => (this.ended = true),
    onWritable: (callback: () => void) => (this.writable = callback),
    pause: () => undefined,
    resume: () => undefined,
  } as unknown as HttpResponse;
}

function open(isStream: boolean, socket = new Socket()) {
  const time = { nowMs: 0 };
  const clock = { monotonicMs: () => asMonotonicMs(time.nowMs), wallMs: () => asWallMs(time.nowMs) };
  const seen = { takenBytes: 0, left: 0 };
  const owner: ResponseOwner = {
    isStream,
    endsConnection: false,
    writeHead: () => (socket.heads += 1),
    onTaken: (bytes) => (seen.takenBytes += bytes),
    onDelivered: () => (seen.left += 1),
  };
  const writer = new ResponseWriter(socket.res, clock, owner);
  /** Sweeps as the listener does, once a second; whether the client may stay. */
  const wait = (ms: number): boolean => {
    const endMs = time.nowMs + ms;
    while (time.nowMs < endMs) {
      time.nowMs += 1_000;
      if (!writer.onSweep(time.nowMs, IDLE_MS_MAX)) return false;
    }
    return true;
  };
  return { socket, seen, writer, wait };
}

void t.test('a silent stream gets a comment every 15 seconds, a whole answer none', (t) => {
  const { socket, seen, writer, wait } = open(true);
  writer.write(Buffer.from('data: 1\n\n'));
  t.equal(wait(14_000), true);
  t.equal(socket.text, 'data: 1\n\n', 'not before');
  t.equal(wait(1_000), true);
  t.equal(socket.text, 'data: 1\n\n: keep-alive\n\n');
  t.equal(wait(15_000), true);
  t.equal(socket.text, 'data: 1\n\n: keep-alive\n\n: keep-alive\n\n');
  writer.write(Buffer.from('data: 2\n\n'));
  t.equal(wait(14_000), true);
  t.ok(socket.text.endsWith('data: 2\n\n'), 'an event is a sign of life');
  t.equal(seen.takenBytes, 18, 'comments are no part of the answer');
  t.equal(wait(10 * IDLE_MS_MAX), true, 'a client is not to blame for a silent upstream');
  t.equal(socket.heads, 1);

  const whole = open(false);
  whole.writer.write(Buffer.from('{"a":'));
  t.equal(whole.wait(60_000), true);
  t.equal(whole.socket.text, '{"a":');
  t.end();
});

void t.test('what a full socket did not take stays in order, and no credit goes back for it', (t) => {
  const { socket, seen, writer } = open(true);
  socket.takes = false;
  writer.write(Buffer.from('data: 1\n\n'));
  writer.write(Buffer.from('data: 2\n\n'));
  writer.end(Buffer.from('data: [DONE]\n\n'));
  t.equal(socket.text, 'data: 1\n\n');
  t.equal(seen.takenBytes, 0);
  socket.takes = true;
  socket.writable();
  t.equal(socket.text, 'data: 1\n\ndata: 2\n\ndata: [DONE]\n\n');
  t.equal(seen.takenBytes, 18, 'no worker waits for the credit of the last bytes');
  t.equal(socket.ended, true);
  t.equal(seen.left, 1);
  t.end();
});

void t.test('frames that came at once leave with one system call', (t) => {
  const { socket, seen, writer } = open(true);
  writer.write(Buffer.from('data: 1\n\n'), true);
  t.equal(socket.corks, 0);
  writer.write(Buffer.from('data: 2\n\n'), false);
  t.same([socket.corks, socket.text, seen.takenBytes], [1, 'data: 1\n\ndata: 2\n\n', 18]);
  writer.write(Buffer.from('data: 3\n\n'), true);
  writer.flush();
  writer.flush();
  t.same([socket.corks, seen.takenBytes], [2, 27]);
  writer.write(Buffer.from('data: 4\n\n'), true);
  writer.end(Buffer.from('data: [DONE]\n\n'));
  t.same([socket.corks, socket.ended, seen.left], [3, true, 1]);
  t.equal(socket.text, 'data: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\ndata: [DONE]\n\n');

  const short = open(true);
  short.writer.write(Buffer.alloc(8_000, 'a'), true);
  short.writer.end(Buffer.alloc(6_000, 'b'));
  t.same(
    [short.socket.corks, short.socket.ended],
    [1, true],
    'a short answer as a whole: the socket is empty',
  );

  const long = open(true);
  long.writer.write(Buffer.alloc(8_000, 'a'), true);
  long.writer.write(Buffer.alloc(8_000, 'b'), true);
  t.equal(long.socket.text.length, 16_000, 'many bytes do not wait for each other');
  long.writer.end(Buffer.alloc(10, 'c'));
  t.equal(long.socket.text.length, 16_010);

  const full = open(true);
  full.socket.takes = false;
  full.writer.write(Buffer.from('data: 1\n\n'), false);
  full.writer.write(Buffer.from('data: 2\n\n'), true);
  full.writer.write(Buffer.from('data: 3\n\n'), false);
  full.socket.takes = true;
  full.socket.writable();
  t.equal(full.socket.text, 'data: 1\n\ndata: 2\n\ndata: 3\n\n', 'in order, also behind a full socket');
  t.end();
});

void t.test('what a full socket did not take of joined frames is its own, whatever others join', (t) => {
  const framesOf = (letter: string, bytes: number): Uint8Array => new Uint8Array(Buffer.alloc(bytes, letter));
  for (const [bytes, isEnd] of [
    [5_000, true],
    [8_000, false],
  ] as const) {
    const slow = open(true);
    slow.writer.write(framesOf('s', 1));
    slow.socket.takes = false;
    slow.writer.write(framesOf('a', bytes), true);
    if (isEnd) slow.writer.end(framesOf('b', bytes));
    else slow.writer.write(framesOf('b', bytes));
    t.ok(slow.socket.text.length < 2 * bytes, 'part of it waits');
    const other = open(true);
    other.writer.write(framesOf('c', 8_000), true);
    other.writer.end(framesOf('d', 8_000));
    t.equal(other.socket.text, 'c'.repeat(8_000) + 'd'.repeat(8_000));
    slow.socket.takes = true;
    slow.socket.writable();
    t.equal(slow.socket.text, `s${'a'.repeat(bytes)}${'b'.repeat(bytes)}`);
  }
  t.end();
});

void t.test('a client that takes nothing is given up, one that takes little is not', (t) => {
  const stalled = open(true);
  stalled.socket.takes = false;
  stalled.writer.write(Buffer.alloc(200_000, 'a'));
  t.equal(stalled.wait(IDLE_MS_MAX - 1_000), true);
  t.equal(stalled.wait(1_000), false);

  const slow = open(true);
  for (let round = 0; round < 5; round += 1) {
    slow.socket.takes = false;
    slow.writer.write(Buffer.alloc(1_000, 'a'));
    t.equal(slow.wait(IDLE_MS_MAX - 1_000), true);
    slow.socket.takes = true;
    slow.socket.writable();
  }
  t.end();
});

void t.test('no comment comes within an event, and a sweep tries the last bytes too', (t) => {
  const event = `data: ${'a'.repeat(3_000)}\n\n`;
  const live = open(true);
  live.writer.write(Buffer.from('data: 1\n\n'));
  live.socket.takes = false;
  live.writer.end(Buffer.from(event));
  t.equal(live.wait(3_000), true);
  live.socket.takes = true;
  live.socket.writable();
  t.equal(live.socket.text, `data: 1\n\n${event}`);
  t.same([live.socket.ended, live.seen.left], [true, 1]);

  const whole = open(false);
  whole.writer.write(Buffer.from('{'));
  whole.socket.takes = false;
  whole.writer.end(Buffer.alloc(3_000, 'b'));
  whole.socket.takes = true;
  t.equal(whole.wait(1_000), true);
  t.equal(whole.socket.text, `{${'b'.repeat(3_000)}`);
  t.equal(whole.socket.ended, true);
  t.end();
});

void t.test('no comment comes within an event whose bytes come in several frames', (t) => {
  // As the last events of a stream, which may be long.
  for (const first of ['data: {"a":', 'event: response.completed\n', 'event: response.completed\r\n']) {
    const { socket, writer, wait } = open(true);
    writer.write(Buffer.from(`data: 1\n\n${first}`));
    t.equal(wait(30_000), true);
    t.equal(socket.text, `data: 1\n\n${first}`, 'not if the stream is silent');
    socket.takes = false;
    writer.write(Buffer.from('data: 2'));
    t.equal(wait(3_000), true);
    t.equal(socket.text, `data: 1\n\n${first}data: 2`, 'nor to try a full socket');
    socket.takes = true;
    socket.writable();
    writer.write(Buffer.from('\n\n'));
    t.equal(wait(15_000), true);
    t.equal(socket.text, `data: 1\n\n${first}data: 2\n\n: keep-alive\n\n`, 'but after it');
  }
  t.end();
});

void t.test('what waits of bytes that stay as they are is not copied, of others it is', (t) => {
  for (const stays of [true, false]) {
    const { socket, writer } = open(false);
    const memory = new Set<ArrayBufferLike>();
    const write = socket.res.write.bind(socket.res);
    socket.res.write = (bytes) => {
      memory.add((bytes as Uint8Array).buffer);
      return write(bytes);
    };
    const bytes = new Uint8Array(200_000).fill(97);
    socket.takes = false;
    writer.end(bytes, stays);
    if (!stays) bytes.fill(98, 15 * 1024);
    socket.takes = true;
    socket.writable();
    t.equal(socket.text, 'a'.repeat(200_000));
    t.equal(socket.ended, true);
    t.equal(memory.size === 1, stays);
  }
  t.end();
});

/** Keeps what the kernel does not take, as µWS does: a write that fails is seen at the next one. */
class FullSocket extends Socket {
  /** Bytes that the kernel would take, and bytes that are kept. */
  roomBytes = 100_000;
  keptBytes = 0;

  constructor() {
    super();
    let corkedBytes = 0;
    this.res.cork = (write) => {
      write();
      this.keptBytes += corkedBytes;
      corkedBytes = 0;
      this.#flush();
      return this.res;
    };
    this.res.write = (bytes) => {
      const text = bytes as Uint8Array;
      this.text += Buffer.from(text).toString();
      if (this.keptBytes > 0) this.#flush();
      if (this.keptBytes > 0) this.keptBytes += text.length;
      else corkedBytes += text.length;
      return this.keptBytes === 0;
    };
  }

  #flush(): void {
    const bytes = Math.min(this.roomBytes, this.keptBytes);
    this.roomBytes -= bytes;
    this.keptBytes -= bytes;
  }
}

void t.test('what waits of the end is a copy, also of a client that was slow and seems not to be', (t) => {
  const socket = new FullSocket();
  const { writer, wait } = open(false, socket);
  writer.write(Buffer.alloc(150_000, 'a'));
  t.ok(writer.isBlocked);
  socket.roomBytes += 1_000_000;
  wait(1_000);
  t.notOk(writer.isBlocked);
  // Full again, which only the next write shows.
  socket.roomBytes = 100;
  writer.write(Buffer.alloc(1_000, 'b'));
  t.notOk(writer.isBlocked);
  const end = new Uint8Array(600).fill(99);
  writer.end(end);
  // It was a view of a ring, where other frames are written next.
  end.fill(122);
  socket.roomBytes += 1_000_000;
  wait(1_000);
  t.same([socket.ended, socket.text.slice(-601)], [true, `b${'c'.repeat(600)}`]);
  t.end();
});

void t.test('a steady slow reader gets all of a whole answer, though nothing says that it reads', (t) => {
  for (let size = 200_000; size < 240_000; size += 1_777) {
    const socket = new FullSocket();
    const { writer, wait } = open(false, socket);
    const body = 'abcdefghij'.repeat(24_000).slice(0, size);
    writer.write(Buffer.from(body.slice(0, 150_000)));
    writer.end(Buffer.from(body.slice(150_000)));
    let stays = true;
    // It reads so much that `onWritable` would come after many minutes.
    for (let seconds = 0; seconds < 1_000 && stays && !socket.ended; seconds++) {
      socket.roomBytes += 500;
      stays = wait(1_000);
    }
    t.same([stays, socket.ended, socket.text === body], [true, true, true], `${size} bytes`);
  }
  t.end();
});
