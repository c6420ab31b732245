/** The upstream worker of the relay: see server.ts. */
import { connect, type Socket } from 'node:net';
import { workerData } from 'node:worker_threads';
import { FramePort, type FrameChannel } from '#src/channel/frame-port.js';
import { FRAME_CALL, FRAME_END } from '#src/channel/messages.js';
import { asCallId, type CallId } from '#src/channel/open-calls.js';
import type { Usage } from '#src/core/token-counts.js';
import { CHAT_PATH } from '../contender.js';

const { link, upstreamPort } = workerData as { readonly link: FrameChannel; readonly upstreamPort: number };

const HEAD = `POST ${CHAT_PATH} HTTP/1.1\r\nhost: 127.0.0.1:${upstreamPort}\r\ncontent-type: application/json\r\ncontent-length: `;
const HEAD_END = Buffer.from('\r\n\r\n');
const LENGTH = 'content-length: ';
const READ_BYTES = 64 * 1024;
const NO_USAGE: Usage = {
  promptTokens: 0,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  reasoningTokens: 0,
  completionTokens: 0,
  source: 'reported',
};

/** One for all sockets: what it holds is used before the next read. */
const buffer = Buffer.allocUnsafeSlow(READ_BYTES);

/** One call at a time. */
class Connection {
  readonly socket: Socket;
  #id = asCallId(0);
  #chunks: Buffer[] = [];
  /** Of the body, as far as it is still to come; undefined before the head. */
  #leftBytes: number | undefined;

  constructor(onFree: (connection: Connection) => void, onAnswer: (id: CallId, body: Buffer) => void) {
    const callback = (bytes: number, read: Uint8Array): boolean => {
      this.#take(read as Buffer, bytes);
      if (this.#leftBytes !== 0) return true;
      const body = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks);
      onFree(this);
      onAnswer(this.#id, body);
      return true;
    };
    this.socket = connect({
      port: upstreamPort,
      host: '127.0.0.1',
      noDelay: true,
      onread: { buffer, callback },
    });
  }

  send(id: CallId, body: string): void {
    this.#id = id;
    this.#chunks = [];
    this.#leftBytes = undefined;
    this.socket.write(`${HEAD}${body.length}\r\n\r\n${body}`, 'latin1');
  }

  /** The mock's head comes in one piece. */
  #take(read: Buffer, bytes: number): void {
    let start = 0;
    if (this.#leftBytes === undefined) {
      start = read.indexOf(HEAD_END) + HEAD_END.length;
      const head = read.toString('latin1', 0, start).toLowerCase();
      this.#leftBytes = Number.parseInt(head.slice(head.indexOf(LENGTH) + LENGTH.length), 10);
    }
    this.#chunks.push(Buffer.from(read.subarray(start, bytes)));
    this.#leftBytes -= bytes - start;
  }
}

/** Last used last. */
const idle: Connection[] = [];

function open(): Connection {
  const connection = new Connection(
    (free) => idle.push(free),
    (id, bytes) => port.push({ kind: FRAME_END, id, bytes, usage: NO_USAGE, upstreamWaitMs: 0 }),
  );
  // The upstream ends what was idle for long.
  connection.socket.on('end', () => {
    const at = idle.indexOf(connection);
    if (at >= 0) idle.splice(at, 1);
  });
  return connection;
}

const port = new FramePort(link, (frame) => {
  if (frame.kind === FRAME_CALL) (idle.pop() ?? open()).send(frame.id, frame.request.body);
});
