/**
 * An incremental parser of HTTP/1.1 responses, one for each connection (connection.ts). It has no callbacks:
 * after each `push` the connection reads from its fields what the bytes brought, in the order head, body,
 * error or end. No I/O; upstream worker.
 *
 * Must hold: the result does not depend on how the bytes are cut into pieces.
 */
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
  /** Bytes came after the response, which belong to no request. */
  hasExcess = false;
  /** Where the excess begins in the bytes of the last `push`. */
  excessStart = 0;
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
    this.hasExcess = false;
    this.hasBegun = false;
    this.#headPart = '';
    this.#tail = '';
    this.#informationalHeads = 0;
    this.#bytesToCome = 0;
  }

  /**
   * Reads `bytes[0..length)`, and may move the payloads of chunks within them. Must not be called once
   * `isOver` or `error` is set.
   */
  push(bytes: Buffer, length: number): void {
    this.hasBegun = true;
    this.bodyStart = 0;
    this.bodyEnd = 0;
    let offset = 0;
    while (this.head === undefined && this.error === undefined && offset < length)
      offset = this.#readHead(bytes, offset, length);
    if (this.head === undefined) return;
    if (!this.isOver) offset = this.#readBody(this.head, bytes, offset, length);
    this.excessStart = offset;
    this.hasExcess = offset < length;
  }

  /** The server has closed: the end of a body framed by `close`, and an error before any other end. */
  close(): void {
    if (this.head?.framing === 'close') this.isOver = true;
    else this.error = 'closed before its end';
  }

  /** Reads one head, or a part of it, from `offset` on. Returns the offset after what was read. */
  #readHead(bytes: Buffer, offset: number, length: number): number {
    // Mostly the whole head has come at once. Bytes of the buffer after `length` are of an older read, and do
    // not count.
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

/**
 * Bytes of the extensions of all chunks of a body together, and of its trailers. Providers use neither, and a
 * server could send them for ever.
 */
const EXTENSIONS_BYTES_MAX = 16 * 1024;
const TRAILERS_BYTES_MAX = 16 * 1024;
/** Enough for any length that a number holds exactly, with leading zeros. */
const SIZE_DIGITS_MAX = 16;
/** `#readSizeLine` reads a size of up to so many digits at once: it is below 2^32. */
const SHORT_SIZE_DIGITS_MAX = 8;

const TAB = 9;
const LF = 10;
const CR = 13;
const SEMICOLON = 59;
const COLON = 58;
const DELETE = 127;

// The steps of a chunked body: what the next byte belongs to. LAST_LF is the LF of the empty line at the end.
const SIZE = 0;
const EXTENSION = 1;
const SIZE_LF = 2;
const DATA = 3;
const DATA_CR = 4;
const DATA_LF = 5;
const TRAILER_START = 6;
const TRAILER_NAME = 7;
const TRAILER_VALUE = 8;
const TRAILER_LF = 9;
const LAST_LF = 10;
const OVER = 11;

/** By byte: 1 if the name of a trailer may have it (RFC 9110, token), else 0. */
const TOKEN_BYTES = Uint8Array.from({ length: 256 }, (_, byte) =>
  /[!#$%&'*+.^_`|~0-9A-Za-z-]/.test(String.fromCharCode(byte)) ? 1 : 0,
);

/**
 * Reads a chunked body (RFC 9112, 7.1), however its bytes are cut:
 *
 *     1a;extension CRLF  <26 bytes> CRLF   …   0 CRLF   trailer: value CRLF   CRLF
 *
 * One read may bring many chunks, each an event of a stream. Their payloads are moved together within the
 * read buffer, so that all later work is done once a read and not once a chunk.
 */
class ChunkedBody {
  /** The payload that the last call of `decode` found, `bytes[payloadStart..payloadEnd)`. */
  payloadStart = 0;
  payloadEnd = 0;
  /** As `Http1Parser.error`. The payload before the error is good. */
  error: string | undefined;
  #step = SIZE;
  /** While digits come: the chunk's size so far. Afterwards: how much of the chunk is still to come. */
  #sizeBytes = 0;
  /** How many digits of the size line have come; 0 at the beginning of a size line. */
  #digits = 0;
  #extensionsBytes = 0;
  #trailersBytes = 0;

  /** Begins another body. */
  reset(): void {
    this.error = undefined;
    this.#step = SIZE;
    this.#sizeBytes = 0;
    this.#digits = 0;
    this.#extensionsBytes = 0;
    this.#trailersBytes = 0;
  }

  get isOver(): boolean {
    return this.#step === OVER;
  }

  /** Reads `bytes[offset..end)`, and moves payloads within it. Returns `end`, or where the body ends. */
  decode(bytes: Uint8Array, offset: number, end: number): number {
    this.payloadStart = offset;
    this.payloadEnd = offset;
    while (offset < end && this.#step !== OVER && this.error === undefined) {
      if (this.#step === DATA) {
        const pieceEnd = Math.min(end, offset + this.#sizeBytes);
        this.#addPayload(bytes, offset, pieceEnd);
        this.#sizeBytes -= pieceEnd - offset;
        offset = pieceEnd;
        if (this.#sizeBytes === 0) offset = this.#readDataEnd(bytes, offset, end);
      } else if (this.#step === SIZE && this.#digits === 0) {
        offset = this.#readSizeLine(bytes, offset, end);
      } else {
        this.#readByte(bytes[offset]!);
        offset++;
      }
    }
    return offset;
  }

  /**
   * Reads a whole size line if the whole line has come, without an extension, as nearly always; else one
   * byte. Returns the next offset. The last chunk, of size 0, is read byte by byte.
   */
  #readSizeLine(bytes: Uint8Array, offset: number, end: number): number {
    const digitsEnd = Math.min(end - 2, offset + SHORT_SIZE_DIGITS_MAX);
    let size = 0;
    let next = offset;
    for (; next < digitsEnd; next++) {
      const digit = hexDigitOf(bytes[next]!);
      if (digit === undefined) break;
      size = size * 16 + digit;
    }
    if (size > 0 && next <= end - 2 && bytes[next] === CR && bytes[next + 1] === LF) {
      this.#sizeBytes = size;
      this.#step = DATA;
      return next + 2;
    }
    this.#readByte(bytes[offset]!);
    return offset + 1;
  }

  /** Reads the line end after a chunk if the whole line end has come. Returns the next offset. */
  #readDataEnd(bytes: Uint8Array, offset: number, end: number): number {
    this.#digits = 0;
    const hasCome = offset + 1 < end && bytes[offset] === CR && bytes[offset + 1] === LF;
    this.#step = hasCome ? SIZE : DATA_CR;
    return hasCome ? offset + 2 : offset;
  }

  /** Moves the payload `bytes[start..end)` to the end of the payloads of this call of `decode`. */
  #addPayload(bytes: Uint8Array, start: number, end: number): void {
    if (this.payloadEnd === this.payloadStart) {
      this.payloadStart = start;
      this.payloadEnd = end;
      return;
    }
    bytes.copyWithin(this.payloadEnd, start, end);
    this.payloadEnd += end - start;
  }

  #readByte(byte: number): void {
    switch (this.#step) {
      case SIZE:
        this.#readSize(byte);
        return;
      case EXTENSION:
        if (byte === CR) this.#step = SIZE_LF;
        else if (!isText(byte)) this.error = 'bad chunk extension';
        else if (++this.#extensionsBytes > EXTENSIONS_BYTES_MAX) this.error = 'chunk extensions too long';
        return;
      case SIZE_LF:
        this.#expect(byte, LF, this.#sizeBytes === 0 ? TRAILER_START : DATA);
        return;
      case DATA_CR:
        this.#expect(byte, CR, DATA_LF);
        return;
      case DATA_LF:
        this.#expect(byte, LF, SIZE);
        return;
      case LAST_LF:
        this.#expect(byte, LF, OVER);
        return;
      default:
        this.#readTrailer(byte);
    }
  }

  #readSize(byte: number): void {
    const digit = hexDigitOf(byte);
    if (digit !== undefined) {
      // `#sizeBytes` is 0 at the first digit: the chunk before was read to its end.
      this.#sizeBytes = this.#sizeBytes * 16 + digit;
      if (++this.#digits > SIZE_DIGITS_MAX || this.#sizeBytes > Number.MAX_SAFE_INTEGER)
        this.error = 'chunk size too long';
    } else if (this.#digits === 0) {
      this.error = 'bad chunk size';
    } else if (byte === CR) {
      this.#step = SIZE_LF;
    } else if (byte === SEMICOLON) {
      this.#step = EXTENSION;
    } else {
      this.error = 'bad chunk size';
    }
  }

  /** Also reads the CR of the empty line at the end, which comes in place of a trailer. */
  #readTrailer(byte: number): void {
    if (++this.#trailersBytes > TRAILERS_BYTES_MAX) this.error = 'trailers too long';
    else if (this.#step === TRAILER_LF) this.#expect(byte, LF, TRAILER_START);
    else if (this.#step === TRAILER_VALUE) {
      if (byte === CR) this.#step = TRAILER_LF;
      else if (!isText(byte)) this.error = 'bad trailer';
    } else if (this.#step === TRAILER_START && byte === CR) this.#step = LAST_LF;
    else if (this.#step === TRAILER_NAME && byte === COLON) this.#step = TRAILER_VALUE;
    else if (TOKEN_BYTES[byte] === 1) this.#step = TRAILER_NAME;
    else this.error = 'bad trailer';
  }

  /** Goes on to `nextStep` if the byte is the expected one, else sets `error`. */
  #expect(byte: number, expectedByte: number, nextStep: number): void {
    if (byte === expectedByte) this.#step = nextStep;
    else this.error = 'bad end of a line or chunk';
  }
}

/** The value of `0` to `9` (48 to 57), `A` to `F` and `a` to `f` (97 to 102); undefined for other bytes. */
function hexDigitOf(byte: number): number | undefined {
  if (byte >= 48 && byte <= 57) return byte - 48;
  // Makes a letter lower case. The operation changes other bytes too, but none to a letter from a to f.
  const lower = byte | 0x20;
  return lower >= 97 && lower <= 102 ? lower - 97 + 10 : undefined;
}

/** Whether an extension or the value of a trailer may have the byte: all but control characters. */
function isText(byte: number): boolean {
  return (byte >= 32 && byte !== DELETE) || byte === TAB;
}
