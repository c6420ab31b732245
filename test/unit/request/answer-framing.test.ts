/**
 * The bytes that a client gets, whatever its socket takes at a time: every chunk is whole and in its place.
 */
import { randomBytes } from 'node:crypto';
import t from 'tap';
import { asMonotonicMs, asWallMs } from '#src/core/units.js';
import { ResponseWriter } from '#src/request/response-writer.js';
import { SSE_KEEP_ALIVE } from '#src/protocol/sse.js';
import { UwsSocket, chunkedBodyOf } from '../../support/uws-socket.js';
import { newSeed, randomOf } from '../../support/random.js';

const ROUNDS = 300;
const FRAME_BYTES_MAX = 70_000;
/** More than the response's head ever has. */
const HEAD_BYTES = 600;
/** What may be left to µWS and its timer when a response has left: the last write and the lines around it. */
const LEFT_BYTES_MAX = 1_100;

function open(accept: (bytes: number) => number, isStream: boolean) {
  const socket = new UwsSocket(accept);
  const seen = { left: false };
  const time = { nowMs: 0 };
  const clock = { monotonicMs: () => asMonotonicMs(time.nowMs), wallMs: () => asWallMs(time.nowMs) };
  const writer = new ResponseWriter(socket.res, clock, {
    isStream,
    endsConnection: false,
    writeHead: () => void socket.res.writeHeader('head', 'h'.repeat(HEAD_BYTES)),
    onTaken: () => undefined,
    onLeft: () => (seen.left = true),
  });
  const sweep = (): void => void writer.onSweep((time.nowMs += 1_000), Infinity);
  return { socket, writer, seen, sweep };
}

const eventOf = (bytes: number): Buffer =>
  Buffer.from(`data: ${randomBytes(bytes >> 1).toString('hex')}\n\n`);

void t.test('a socket that is full to the byte at any send gets every chunk whole', (t) => {
  const frames = [eventOf(20_000), eventOf(100), eventOf(FRAME_BYTES_MAX), eventOf(1_500)];
  let sends = Infinity;
  for (let fullAt = 1; fullAt <= sends; fullAt += 1) {
    let count = 0;
    const { socket, writer, seen } = open((bytes) => ((count += 1) === fullAt ? 0 : bytes), true);
    for (const frame of frames) writer.write(frame);
    writer.end(eventOf(10));
    if (socket.waits) socket.writable();
    if (!t.ok(seen.left && socket.kept.length === 0, `it leaves, full at send ${fullAt}`)) break;
    if (!t.equal(socket.lostBytes, 0, `full at send ${fullAt}`)) break;
    const body = chunkedBodyOf(socket.sent);
    if (!t.ok(body?.includes(Buffer.concat(frames)), 'the client reads what was written')) break;
    if (count < fullAt) sends = count;
  }
  t.end();
});

void t.test('random frames to a socket that takes what it likes', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  const accept = (bytes: number): number => {
    const kind = next();
    if (kind < 0.15) return 0;
    return kind < 0.3 ? Math.floor(next() * bytes) : bytes;
  };
  for (let round = 0; round < ROUNDS; round += 1) {
    const isStream = next() < 0.5;
    const { socket, writer, seen, sweep } = open(accept, isStream);
    const frames = Array.from({ length: 1 + Math.floor(next() * 8) }, () =>
      eventOf(Math.floor(next() * (next() < 0.5 ? 500 : FRAME_BYTES_MAX))),
    );
    frames.forEach((frame, index) => {
      if (index < frames.length - 1) writer.write(frame);
      else writer.end(frame);
      if (next() < 0.3) sweep();
      if (socket.waits && next() < 0.3) socket.writable();
    });
    for (let turn = 0; turn < 1_000 && (!seen.left || socket.kept.length > 0); turn += 1) {
      if (socket.waits && next() < 0.5) socket.writable();
      else if (!seen.left) sweep();
    }
    const body = chunkedBodyOf(socket.sent)?.toString('latin1').replaceAll(SSE_KEEP_ALIVE, '');
    if (!t.ok(body === Buffer.concat(frames).toString('latin1'), `round ${round}`)) break;
  }
  t.end();
});

void t.test('an answer has not left while the socket has no room for it', (t) => {
  for (let roomBytes = 0; roomBytes < 45_000; roomBytes += 97) {
    let room = roomBytes;
    const accept = (bytes: number): number => {
      const taken = Math.min(room, bytes);
      room -= taken;
      return taken;
    };
    const { socket, writer, seen } = open(accept, false);
    writer.write(eventOf(500));
    writer.end(eventOf(40_000));
    if (seen.left && !t.ok(socket.kept.length <= LEFT_BYTES_MAX, `room for ${roomBytes} bytes`)) break;
    room = Infinity;
    if (socket.waits) socket.writable();
    if (!t.ok(seen.left && chunkedBodyOf(socket.sent), `room for ${roomBytes} bytes, then for all`)) break;
  }
  t.end();
});
