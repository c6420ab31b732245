/**
 * Long responses on real sockets of µWebSockets.js, for clients that read slowly and pause: they get every
 * byte, and a connection that ends does so after the last one.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import uWS, { type us_listen_socket } from 'uWebSockets.js';
import { SystemClock } from '#src/core/clock.js';
import { SSE_KEEP_ALIVE } from '#src/protocol/sse.js';
import { ResponseWriter } from '#src/request/response-writer.js';

/** More than the kernel's buffers of both sides. */
const FULL_BYTES = 12 * 1024 * 1024;
/** Responses that end about where the buffers are full, each LAST_BYTES longer than the one before. */
const CLIENTS = 20;
const LAST_BYTES = 10_000;
const READ_BYTES = 64 * 1024;
const SWEEP_MS = 1_000;
const IDLE_MS_MAX = 60_000;
/** Longer than the 12 s after which µWS cuts a connection that it believes to be dead. */
const PAUSE_MS = 14_000;
const SHORT_PAUSE_MS = 3_000;
const clock = new SystemClock();
const EVENT = Buffer.from(`data: ${'x'.repeat(1_000)}\n\n`);

type Kind = 'live stream' | 'live whole' | 'replayed stream' | 'replayed whole';
const KINDS: readonly Kind[] = ['live stream', 'live whole', 'replayed stream', 'replayed whole'];

/** Serves `/KIND/BYTES`. `/full` writes until the socket takes no more, and says how much it took. */
async function start(t: Test, endsConnection: boolean) {
  const body = Buffer.alloc(FULL_BYTES, EVENT);
  let took: (bytes: number) => void = () => undefined;
  const writers = new Map<ResponseWriter, () => void>();
  const app = uWS.App({});
  app.get('/*', (res, req) => {
    const [, kind = '', text = ''] = decodeURIComponent(req.getUrl()).split('/');
    const bytes = Number(text);
    const writer = new ResponseWriter(res, clock, {
      isStream: kind.endsWith('stream'),
      endsConnection,
      writeHead: (sendsClose) => {
        res.writeStatus('200 OK');
        if (sendsClose) res.writeHeader('connection', 'close');
      },
      onTaken: () => undefined,
      onDelivered: () => void writers.delete(writer),
    });
    writers.set(writer, () => res.close());
    res.onAborted(() => {
      writers.delete(writer);
      writer.onGone();
    });
    if (kind === 'full') {
      let fullBytes = 0;
      for (; !writer.isBlocked; fullBytes += EVENT.length) writer.write(EVENT);
      took(fullBytes);
    } else if (kind.startsWith('replayed')) {
      writer.end(body.subarray(0, bytes), true);
    } else {
      const lastStart = Math.floor((bytes - 1) / EVENT.length) * EVENT.length;
      for (let at = 0; at < lastStart; at += EVENT.length) writer.write(body.subarray(at, at + EVENT.length));
      writer.end(body.subarray(lastStart, bytes));
    }
  });
  const socket = await new Promise<us_listen_socket>((resolve) => {
    app.listen('127.0.0.1', 0, (listening) => {
      if (listening !== false) resolve(listening);
    });
  });
  const sweeps = setInterval(() => {
    for (const [writer, cut] of writers) if (!writer.onSweep(clock.monotonicMs(), IDLE_MS_MAX)) cut();
  }, SWEEP_MS);
  t.teardown(() => {
    clearInterval(sweeps);
    app.close();
  });
  const port = uWS.us_socket_local_port(socket);
  const capacity = async (): Promise<number> => {
    const full = new Promise<number>((resolve) => (took = resolve));
    const reader = read(port, '/full');
    const bytes = await full;
    reader.socket.destroy();
    return bytes;
  };
  return { port, capacity };
}

/** Reads nothing until `go`, and then what the kernel has. */
function read(port: number, path: string) {
  let isReading = false;
  const parts: Buffer[] = [];
  const buffer = Buffer.alloc(READ_BYTES);
  const socket = connect({
    host: '127.0.0.1',
    port,
    onread: {
      buffer,
      callback: (count) => {
        parts.push(Buffer.from(buffer.subarray(0, count)));
        return isReading;
      },
    },
  });
  socket.on('error', () => undefined);
  socket.write(`GET ${path} HTTP/1.1\r\nhost: a\r\n\r\n`);
  const closed = once(socket, 'close');
  const go = (): void => {
    isReading = true;
    socket.resume();
  };
  const whole = async (): Promise<void> => {
    while (!Buffer.concat(parts.slice(-2)).toString('latin1').endsWith('\r\n\r\n')) await sleep(100);
  };
  return { socket, closed, go, whole, text: () => Buffer.concat(parts).toString('latin1') };
}

/** The body, without the comments that keep streams alive; undefined if it is not whole. */
function bodyOf(text: string): string | undefined {
  const parts: string[] = [];
  for (let at = text.indexOf('\r\n\r\n') + 4; ;) {
    const lineEnd = text.indexOf('\r\n', at);
    if (lineEnd === -1) return undefined;
    const bytes = Number.parseInt(text.slice(at, lineEnd), 16);
    if (bytes === 0)
      return text.endsWith('\r\n\r\n') ? parts.join('').replaceAll(SSE_KEEP_ALIVE, '') : undefined;
    const start = lineEnd + 2;
    parts.push(text.slice(start, start + bytes));
    at = start + bytes + 2;
  }
}

/** Has clients of `kind` read nothing for `pauseMs`, and then all, and checks what they got. */
async function pausing(t: Test, endsConnection: boolean, kind: Kind, pauseMs: number): Promise<void> {
  const { port, capacity } = await start(t, endsConnection);
  const fullBytes = await capacity();
  const first = fullBytes - (CLIENTS / 2) * LAST_BYTES;
  t.comment(`a socket takes ${fullBytes} bytes`);
  await Promise.all(
    Array.from({ length: CLIENTS }, async (_, index) => {
      const bytes = first + index * LAST_BYTES;
      const reader = read(port, `/${encodeURIComponent(kind)}/${bytes}`);
      await sleep(pauseMs);
      reader.go();
      // It closes nothing itself if the response ends the connection.
      await (endsConnection ? reader.closed : Promise.race([reader.whole(), reader.closed]));
      reader.socket.destroy();
      await reader.closed;
      t.equal(bodyOf(reader.text())?.length, bytes, `${kind}, ${bytes} bytes`);
    }),
  );
}

for (const kind of KINDS) {
  void t.test(`a client that pauses gets all of a ${kind}`, { timeout: 180_000 }, (t) =>
    pausing(t, false, kind, PAUSE_MS),
  );
  void t.test(`a connection that ends does so after all of a ${kind}`, { timeout: 180_000 }, (t) =>
    pausing(t, true, kind, SHORT_PAUSE_MS),
  );
}
