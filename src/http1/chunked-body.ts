/**
 * Reads a chunked body (RFC 9112, 7.1). Each Http1Parser (parser.ts) has one ChunkedBody, for one body after
 * the other. No I/O; upstream worker.
 *
 *     1a;extension CRLF  <26 bytes> CRLF   …   0 CRLF   trailer: value CRLF   CRLF
 *
 * One read may bring many chunks, each an event of a stream. Their payloads are moved together within the
 * read buffer, so that all later work is done once a read and not once a chunk.
 *
 * Must hold (test/unit/http1/parser.test.ts, test/fuzz/http1-answers.test.ts): the payload, the end and the
 * error do not depend on how the bytes are cut. What another reader could take for another body is an error:
 * lines end in CRLF, a size has digits alone. What the server may send besides payload is bounded.
 */

/** Of all chunks of a body together. Providers send neither, and a server could send them for ever. */
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

export class ChunkedBody {
  /** The payload that the last call of `decode` found, `bytes[payloadStart..payloadEnd)`. */
  payloadStart = 0;
  payloadEnd = 0;
  /** What is wrong with the bytes, for the log. Nothing more is read then. The payload before it is good. */
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

  /** Reads a size line that has come whole, without an extension and not of size 0; else one byte. */
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
