/**
 * An incremental parser of HTTP/1.1 responses, one for each connection (connection.ts). It has no callbacks:
 * after each `push` the connection reads from its fields what the bytes brought, in the order head, body,
 * error or end. head.ts reads heads for it, chunked-body.ts chunked bodies. No I/O; upstream worker.
 *
 * Must hold (test/unit/http1/parser.test.ts): head, body and end do not depend on how the bytes are cut into
 * pieces, nor whether there is an error; only its text may. A response ends once, whole or by an error, and
 * nothing is read after that: `push` and `close` throw.
 */
import { invariant } from '../core/errors.js';
import { ChunkedBody } from './chunked-body.js';
import { parseHead, type ResponseHead } from './head.js';

/** Bytes of one head. Providers send about 2 KB. */
const HEAD_BYTES_MAX = 64 * 1024;
/** Informational responses (102, 103) before the final one; no server needs 32. */
const INFORMATIONAL_HEADS_MAX = 32;

const HEAD_END = '\r\n\r\n';
/** HEAD_END as bytes, because `indexOf` of a buffer converts a string at each search. */
const HEAD_END_BYTES = Buffer.from(HEAD_END);
/**
 * A head with such a line end is rejected at once. Otherwise a head of such lines alone, which has no
 * HEAD_END, would be waited for. The flag `g` makes `test` search from `lastIndex`.
 */
const LONE_LF = /(?<!\r)\n/g;

export class Http1Parser {
  /** The head of the final response, once it has come. */
  head: ResponseHead | undefined;
  /** The part of the body that the last `push` brought, without its framing: `bytes[bodyStart..bodyEnd)`. */
  bodyStart = 0;
  bodyEnd = 0;
  /** The response is whole. */
  isOver = false;
  /** What is wrong with the bytes, for the log. Nothing more is read then. The body before it is good. */
  error: string | undefined;
  /** Where bytes of the last `push` begin that came after the whole response, and belong to no request. */
  excessStart: number | undefined;
  /** A byte of the response, or of an informational one before it, has come. */
  hasBegun = false;
  readonly #chunks = new ChunkedBody();
  /** The beginning of a head whose end has not come. */
  #headPart = '';
  /** The last characters of `#headPart`, in which HEAD_END may begin. A search of the whole would copy it. */
  #tail = '';
  #informationalHeads = 0;
  /** How many bytes are still to come of a body with a length. */
  #bytesToCome = 0;

  /** Begins the next response of the connection. Called before the first response too. */
  begin(): void {
    this.head = undefined;
    this.isOver = false;
    this.error = undefined;
    this.excessStart = undefined;
    this.hasBegun = false;
    this.#headPart = '';
    this.#tail = '';
    this.#informationalHeads = 0;
    this.#bytesToCome = 0;
  }

  /** Reads `bytes[0..length)`, and moves payloads within it. Throws if the response has ended. */
  push(bytes: Buffer, length: number): void {
    this.#mustGoOn();
    this.hasBegun = true;
    this.bodyStart = 0;
    this.bodyEnd = 0;
    let offset = 0;
    while (this.head === undefined && this.error === undefined && offset < length)
      offset = this.#readHead(bytes, offset, length);
    if (this.head === undefined) return;
    if (!this.isOver) offset = this.#readBody(this.head, bytes, offset, length);
    if (this.isOver && offset < length) this.excessStart = offset;
  }

  /** The server has closed: the end of a body framed by `close`, else an error. Throws after the end. */
  close(): void {
    this.#mustGoOn();
    if (this.head?.framing === 'close') this.isOver = true;
    else this.error = 'closed before its end';
  }

  #mustGoOn(): void {
    invariant(!this.isOver && this.error === undefined, 'nothing is read after the end of a response');
  }

  /** Reads one head, or a part of it, from `offset` on. Returns the offset after what was read. */
  #readHead(bytes: Buffer, offset: number, length: number): number {
    // Mostly the whole head has come at once. Bytes after `length` are of an older read, and do not count.
    const headEndOffset = this.#headPart === '' ? bytes.indexOf(HEAD_END_BYTES, offset) : -1;
    if (headEndOffset !== -1 && headEndOffset + HEAD_END.length <= length) {
      const bodyOffset = headEndOffset + HEAD_END.length;
      this.#readWholeHead(bytes.toString('latin1', offset, bodyOffset));
      return bodyOffset;
    }
    const piece = bytes.toString('latin1', offset, Math.min(length, offset + HEAD_BYTES_MAX));
    const searched = this.#tail + piece;
    const endInSearched = searched.indexOf(HEAD_END);
    if (endInSearched === -1) {
      this.#addToHead(piece, searched);
      return length;
    }
    const pieceEnd = endInSearched + HEAD_END.length - this.#tail.length;
    const head = this.#headPart + piece.slice(0, pieceEnd);
    this.#headPart = '';
    this.#tail = '';
    this.#readWholeHead(head);
    return offset + pieceEnd;
  }

  /** `searched` is the former tail, in which no lone LF is, and the piece. */
  #addToHead(piece: string, searched: string): void {
    LONE_LF.lastIndex = this.#tail.length;
    this.#headPart += piece;
    this.#tail = searched.slice(1 - HEAD_END.length);
    if (this.#headPart.length >= HEAD_BYTES_MAX) this.error = `a head above ${HEAD_BYTES_MAX} bytes`;
    else if (LONE_LF.test(searched)) this.error = 'a line that does not end in CRLF';
  }

  #readWholeHead(text: string): void {
    if (text.length > HEAD_BYTES_MAX) {
      this.error = `a head above ${HEAD_BYTES_MAX} bytes`;
      return;
    }
    const head = parseHead(text);
    if (typeof head === 'string') this.error = head;
    else if (head.status >= 200) this.#beginBody(head);
    else if (++this.#informationalHeads > INFORMATIONAL_HEADS_MAX)
      this.error = 'informational answers without end';
  }

  #beginBody(head: ResponseHead): void {
    this.head = head;
    this.#bytesToCome = head.lengthBytes;
    this.isOver = head.framing === 'empty';
    if (head.framing === 'chunked') this.#chunks.reset();
  }

  /** Reads the body from `offset` on. Returns the offset after what was read. */
  #readBody({ framing }: ResponseHead, bytes: Buffer, offset: number, length: number): number {
    this.bodyStart = offset;
    if (framing === 'chunked') {
      const end = this.#chunks.decode(bytes, offset, length);
      this.bodyStart = this.#chunks.payloadStart;
      this.bodyEnd = this.#chunks.payloadEnd;
      this.error = this.#chunks.error;
      this.isOver = this.#chunks.isOver;
      return end;
    }
    const end = framing === 'length' ? Math.min(length, offset + this.#bytesToCome) : length;
    this.bodyEnd = end;
    if (framing === 'length') {
      this.#bytesToCome -= end - offset;
      this.isOver = this.#bytesToCome === 0;
    }
    return end;
  }
}
