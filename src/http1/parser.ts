/**
 * Reads the responses of one connection, one at a time, from the pieces that its socket brings. It calls nobody: what a piece brought
 * stands in its fields, in the order head, body, problem or end. Pure; upstream worker.
 */
import { ChunkedBody } from './chunks.js';
import { HeadError, parseHead, type ResponseHead } from './head.js';

/** Of one head. Providers send some 2 KB. */
const HEAD_BYTES_MAX = 64 * 1024;
/** Informational answers (102, 103) before the one that counts; 32 are more than anybody has a use for. */
const INTERIM_HEADS_MAX = 32;

const HEAD_END = '\r\n\r\n';
/** Searched for in bytes as bytes: a text is converted each time. */
const HEAD_END_BYTES = Buffer.from(HEAD_END);
/** Such a head would never end. */
const LONE_LF = /(?:^|[^\r])\n/;

export class Http1Parser {
  /** Of the response that counts, once it has come. */
  head: ResponseHead | undefined;
  /** What the last piece brought of the body, with its framing taken out: `bytes[bodyStart..bodyEnd)`. */
  bodyStart = 0;
  bodyEnd = 0;
  /** The response is whole. */
  isOver = false;
  /** What is wrong; nothing is read any more. The body before it is good. */
  problem: string | undefined;
  /** More has come than the response: nobody can say to what it belongs. */
  hasExcess = false;
  /** Where it begins in the last piece. */
  excessStart = 0;
  /** A byte of the response, or of an informational one before it, has come. */
  hasBegun = false;
  readonly #chunks = new ChunkedBody();
  /** The part of a head that was cut. */
  #held = '';
  #interimHeads = 0;
  /** Of a body with a length. */
  #bytesLeft = 0;

  /** Awaits another response. */
  begin(): void {
    this.head = undefined;
    this.isOver = false;
    this.problem = undefined;
    this.hasExcess = false;
    this.hasBegun = false;
    this.#held = '';
    this.#interimHeads = 0;
    this.#bytesLeft = 0;
  }

  /** Reads `bytes[0..length)`; may change the order of what follows a chunk's size in them. Not to be called after the end or a problem. */
  push(bytes: Buffer, length: number): void {
    this.hasBegun = true;
    this.bodyStart = 0;
    this.bodyEnd = 0;
    let at = 0;
    while (this.head === undefined && this.problem === undefined && at < length)
      at = this.#readHead(bytes, at, length);
    if (this.head === undefined) return;
    if (!this.isOver) at = this.#readBody(this.head, bytes, at, length);
    this.excessStart = at;
    this.hasExcess = at < length;
  }

  /** The other side has closed: the end of a body that has none else, a problem before any other. */
  close(): void {
    if (this.head?.framing === 'close') this.isOver = true;
    else this.problem = 'closed before its end';
  }

  #readHead(bytes: Buffer, at: number, length: number): number {
    // In the buffer there may be older bytes after `length`.
    const found = this.#held === '' ? bytes.indexOf(HEAD_END_BYTES, at) : -1;
    if (found !== -1 && found + HEAD_END.length <= length) {
      const end = found + HEAD_END.length;
      this.#takeHead(bytes.toString('latin1', at, end));
      return end;
    }
    const before = this.#held.length;
    const held = this.#held + bytes.toString('latin1', at, Math.min(length, at + HEAD_BYTES_MAX));
    const heldEnd = held.indexOf(HEAD_END, Math.max(0, before - HEAD_END.length));
    if (heldEnd === -1) {
      this.#hold(held);
      return length;
    }
    const end = heldEnd + HEAD_END.length;
    this.#held = '';
    this.#takeHead(held.slice(0, end));
    return at + end - before;
  }

  #hold(text: string): void {
    this.#held = text;
    if (text.length >= HEAD_BYTES_MAX) this.problem = `a head above ${HEAD_BYTES_MAX} bytes`;
    else if (LONE_LF.test(text)) this.problem = 'a line that does not end in CRLF';
  }

  #takeHead(text: string): void {
    if (text.length > HEAD_BYTES_MAX) {
      this.problem = `a head above ${HEAD_BYTES_MAX} bytes`;
      return;
    }
    const head = parseHead(text);
    if (head instanceof HeadError) this.problem = head.message;
    else if (head.status >= 200) this.#begin(head);
    else if (++this.#interimHeads > INTERIM_HEADS_MAX) this.problem = 'informational answers without end';
  }

  #begin(head: ResponseHead): void {
    this.head = head;
    this.#bytesLeft = head.lengthBytes;
    this.isOver = head.framing === 'empty';
    if (head.framing === 'chunked') this.#chunks.reset();
  }

  #readBody({ framing }: ResponseHead, bytes: Buffer, at: number, length: number): number {
    this.bodyStart = at;
    if (framing === 'chunked') {
      const end = this.#chunks.decode(bytes, at, length);
      this.bodyStart = this.#chunks.payloadStart;
      this.bodyEnd = this.#chunks.payloadEnd;
      this.problem = this.#chunks.problem;
      this.isOver = this.#chunks.isOver;
      return end;
    }
    const end = framing === 'length' ? Math.min(length, at + this.#bytesLeft) : length;
    this.bodyEnd = end;
    if (framing === 'length') {
      this.#bytesLeft -= end - at;
      this.isOver = this.#bytesLeft === 0;
    }
    return end;
  }
}
