/** The listener of the relay: see server.ts. */
import { workerData } from 'node:worker_threads';
import uws, { type HttpResponse } from 'uWebSockets.js';
import { asAccountIndex } from '#src/core/units.js';
import { FramePort, type FrameChannel } from '#src/channel/frame-port.js';
import { FRAME_CALL, type CallFrame, type EndFrame } from '#src/channel/messages.js';
import { CHAT_PATH } from '../contender.js';

const { link } = workerData as { readonly link: FrameChannel };

interface Open {
  readonly res: HttpResponse;
  gone: boolean;
}

const calls = new Map<number, Open>();
let lastId = 0;

const port = new FramePort(link, (frames) => {
  for (const frame of frames) {
    const [, id, bytes] = frame as EndFrame;
    const { res, gone } = calls.get(id)!;
    calls.delete(id);
    if (gone) continue;
    res.cork(() => {
      res.writeHeader('content-type', 'application/json').end(bytes);
    });
  }
});

const app = uws.App({});
app.post(CHAT_PATH, (res) => {
  const open: Open = { res, gone: false };
  res.onAborted(() => (open.gone = true));
  let body = '';
  res.onData((chunk, isLast) => {
    body += Buffer.from(chunk).toString('latin1');
    if (!isLast) return;
    const id = (lastId += 1);
    calls.set(id, open);
    port.push([
      FRAME_CALL,
      id,
      '',
      0,
      false,
      false,
      0,
      0,
      body,
      true,
      undefined,
      undefined,
      asAccountIndex(0),
      16,
      1,
    ] satisfies CallFrame);
  });
});
app.listen('127.0.0.1', 0, (socket) => {
  if (socket === false) throw new Error('no port could be had on 127.0.0.1');
  process.stdout.write(`listening on ${uws.us_socket_local_port(socket)}\n`);
});
