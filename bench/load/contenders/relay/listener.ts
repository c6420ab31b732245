/** The listener of the relay: see server.ts. */
import { workerData } from 'node:worker_threads';
import uws, { type HttpResponse } from 'uWebSockets.js';
import { asAccountIndex } from '#src/core/units.js';
import { FramePort, type FrameChannel } from '#src/channel/frame-port.js';
import { FRAME_CALL, FRAME_END } from '#src/channel/messages.js';
import { asCallId, type CallId } from '#src/channel/open-calls.js';
import { CHAT_PATH } from '../contender.js';

const { link } = workerData as { readonly link: FrameChannel };

interface Open {
  readonly res: HttpResponse;
  gone: boolean;
}

const calls = new Map<CallId, Open>();
let lastId = 0;

const port = new FramePort(link, (frame) => {
  if (frame.kind !== FRAME_END) return;
  const { res, gone } = calls.get(frame.id)!;
  calls.delete(frame.id);
  if (gone) return;
  res.cork(() => {
    res.writeHeader('content-type', 'application/json').end(frame.bytes);
  });
});

const app = uws.App({});
app.post(CHAT_PATH, (res) => {
  const open: Open = { res, gone: false };
  res.onAborted(() => (open.gone = true));
  let body = '';
  res.onData((chunk, isLast) => {
    body += Buffer.from(chunk).toString('latin1');
    if (!isLast) return;
    const id = asCallId((lastId += 1));
    calls.set(id, open);
    port.push({
      kind: FRAME_CALL,
      id,
      request: {
        requestId: '',
        door: 0,
        betas: '',
        modelIndex: 0,
        stream: false,
        includeUsage: false,
        modelStart: 0,
        modelEnd: 0,
        body,
        bodyIsAscii: true,
        account: asAccountIndex(0),
        outputTokensMax: 16,
        choices: 1,
        mediaParts: 0,
        repeatedTokens: 0,
      },
    });
  });
});
app.listen('127.0.0.1', 0, (socket) => {
  if (socket === false) throw new Error('no port could be had on 127.0.0.1');
  process.stdout.write(`listening on ${uws.us_socket_local_port(socket)}\n`);
});
