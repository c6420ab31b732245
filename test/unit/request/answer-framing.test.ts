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
const HEAD_BYTES = 1_500;
/** What may be left to µWS and its timer when a response has left: the last write and the lines around it. */
const LEFT_BYTES_MAX = 1_100;

function open(accept: (bytes: number) => number, isStream: boolean, endsConnection = false) {
  const socket = new UwsSocket(accept);
  const seen = { left: false };
  const time = { nowMs: 0 };
  const clock = { monotonicMs: () => asMonotonicMs(time.nowMs), wallMs: () => asWallMs(time.nowMs) };
  const writer = new ResponseWriter(socket.res, clock, {
    isStream,
    endsConnection,
    writeHead: () => void socket.res.writeHeader('head', 'h'.repeat(HEAD_BYTES)),
    onTaken: () => undefined,
    onDelivered: () => (seen.left = true),
  });
  const sweep = (idleMsMax = Infinity): boolean => writer.onSweep((time.nowMs += 1_000), idleMsMax);
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

/** A socket that takes what it has room for: `grow` makes more. */
function roomOf(roomBytes: number) {
  const room = { bytes: roomBytes };
  const accept = (bytes: number): number => {
    const taken = Math.min(room.bytes, bytes);
    room.bytes -= taken;
    return taken;
  };
  return { room, accept };
}

/** A response that comes in pieces, as a live one, and one that is there at once, as a replay. */
const ENDS: readonly (readonly [string, (writer: ResponseWriter) => void])[] = [
  [
    'live',
    (writer) => {
      writer.write(eventOf(500));
      writer.end(eventOf(40_000));
    },
  ],
  ['a replay', (writer) => writer.end(eventOf(40_000), true)],
];

void t.test('an answer has not left while the socket has no room for it', (t) => {
  for (const [name, end] of ENDS)
    for (let roomBytes = 0; roomBytes < 45_000; roomBytes += 97) {
      const { room, accept } = roomOf(roomBytes);
      const { socket, writer, seen } = open(accept, false);
      end(writer);
      const keptBytes = socket.kept.length;
      if (
        seen.left &&
        !t.ok(keptBytes <= LEFT_BYTES_MAX, `${name}: room for ${roomBytes}, ${keptBytes} kept`)
      )
        break;
      room.bytes = Infinity;
      if (socket.waits) socket.writable();
      if (
        !t.ok(seen.left && chunkedBodyOf(socket.sent), `${name}: room for ${roomBytes} bytes, then for all`)
      )
        break;
    }
  t.end();
});

const turnEnd = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
/** The last chunk of a response that ends its connection has a trailer field. */
const wholeBodyOf = (sent: Buffer): Buffer | undefined =>
  chunkedBodyOf(
    Buffer.from(sent.toString('latin1').replace(/x-connection: close\r\n(?=\r\n$)/, ''), 'latin1'),
  );

void t.test('a connection that ends does so after the last byte', async (t) => {
  for (const isStream of [true, false])
    for (const [name, end] of ENDS)
      for (let roomBytes = 0; roomBytes < 45_000; roomBytes += 97) {
        const { room, accept } = roomOf(roomBytes);
        const { socket, writer, seen, sweep } = open(accept, isStream, true);
        end(writer);
        // Room comes in a while, and µWS tells of it when there is much.
        for (let second = 0; second < 20 && !socket.closed; second += 1) {
          if (second === 3 || second === 4) room.bytes = 30_000;
          if (second > 2 && socket.waits) socket.writable();
          else sweep();
          await turnEnd();
        }
        const told = `${name}, ${isStream ? 'stream' : 'whole'}: room for ${roomBytes}`;
        if (!t.ok(socket.closed && seen.left, `${told}: it is closed`)) break;
        if (!t.equal(socket.kept.length, 0, `${told}: nothing is lost`)) break;
        if (!t.ok(wholeBodyOf(socket.sent), told)) break;
      }
});

void t.test('a connection that ends is not waited for longer than for its client', async (t) => {
  let isClosedLater = 0;
  for (let roomBytes = 0; roomBytes < 45_000; roomBytes += 97) {
    const { socket, writer, seen, sweep } = open(roomOf(roomBytes).accept, true, true);
    writer.write(eventOf(500));
    writer.end(eventOf(40_000));
    let seconds = 0;
    for (; !seen.left && sweep(60_000); seconds += 1) await turnEnd();
    await turnEnd();
    if (!t.ok(seconds <= 62, `room for ${roomBytes}: ${seconds} s`)) break;
    if (seen.left) isClosedLater += socket.closed ? 1 : 0;
    else if (!t.notOk(socket.closed, 'its owner cuts it')) break;
  }
  t.ok(isClosedLater > 0);

  const { socket, writer, seen } = open((bytes) => bytes, true, true);
  writer.write(eventOf(40_000));
  writer.end(eventOf(10));
  await turnEnd();
  t.same([seen.left, socket.closed], [false, false], 'what the last write left with µWS is unknown');
  writer.onGone();
  t.equal(seen.left, true, 'the client has closed it: it has all');
  await turnEnd();
  t.equal(socket.closed, false);

  const short = open((bytes) => bytes, true, true);
  short.writer.write(eventOf(500));
  short.writer.end(eventOf(10));
  await turnEnd();
  t.same([short.seen.left, short.socket.closed], [true, true], 'a short one is closed at once');
});
