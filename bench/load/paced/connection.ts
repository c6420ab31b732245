/**
 * One kept connection of the paced client: writes a request, tells when the first byte of its response's body
 * is here, each piece of it, and its end. It understands what the bench's contenders send, and fails at
 * anything else.
 */
import { connect, type Socket } from 'node:net';

export interface AnswerEvents {
  /** Some of the body, as it came. */
  onPiece(text: string): void;
  onEnd(status: number): void;
  /** The connection broke, or spoke no HTTP; it is of no use any more. */
  onFail(reason: string): void;
}

const HEAD_END = '\r\n\r\n';
const LAST_CHUNK = '0\r\n\r\n';

export class Connection {
  readonly #socket: Socket;
  #events: AnswerEvents | undefined;
  #status = 0;
  /** Of the head, until it is whole. */
  #head = '';
  /** Bytes of the body that are still to come; undefined: chunked, up to the last chunk. */
  #left: number | undefined;
  /** What the last chunk's mark may be split over. */
  #tail = '';

  constructor(port: number) {
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.setEncoding('latin1');
    this.#socket.on('data', (text: unknown) => this.#onData(text as string));
    this.#socket.on('error', (error) => this.#fail(error.message));
    this.#socket.on('close', () => this.#fail('the connection was closed'));
  }

  /** One at a time. */
  send(request: string, events: AnswerEvents): void {
    this.#events = events;
    this.#status = 0;
    this.#head = '';
    this.#tail = '';
    this.#socket.write(request, 'latin1');
  }

  close(): void {
    this.#events = undefined;
    this.#socket.destroy();
  }

  #onData(text: string): void {
    if (this.#status !== 0) {
      this.#onBody(text);
      return;
    }
    this.#head += text;
    const end = this.#head.indexOf(HEAD_END);
    if (end < 0) return;
    const head = this.#head.slice(0, end).toLowerCase();
    const body = this.#head.slice(end + HEAD_END.length);
    this.#status = Number(head.slice(9, 12));
    const length = /\r\ncontent-length: *(\d+)/.exec(head);
    this.#left = length === null ? undefined : Number(length[1]);
    if (
      !head.startsWith('http/1.1 ') ||
      (length === null && !head.includes('\r\ntransfer-encoding: chunked'))
    ) {
      this.#fail(`no answer of HTTP/1.1 with a length: ${head.slice(0, 200)}`);
    } else if (body !== '' || this.#left === 0) {
      this.#onBody(body);
    }
  }

  #onBody(text: string): void {
    const events = this.#events;
    if (events === undefined) {
      this.#fail('an answer to no question');
      return;
    }
    events.onPiece(text);
    if (this.#left === undefined) {
      this.#tail = (this.#tail + text).slice(-LAST_CHUNK.length);
      if (this.#tail !== LAST_CHUNK) return;
    } else {
      this.#left -= text.length;
      if (this.#left > 0) return;
    }
    this.#events = undefined;
    events.onEnd(this.#status);
  }

  #fail(reason: string): void {
    const events = this.#events;
    this.#events = undefined;
    this.#socket.destroy();
    events?.onFail(reason);
  }
}
