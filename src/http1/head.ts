/**
 * Reads the head of the HTTP/1.1 response to a POST (RFC 9112): status, framing of the body, whether the
 * connection may be kept. parser.ts calls `parseHead`, and bounds the length of its text. connection.ts and
 * call.ts read the result. Pure; upstream worker.
 *
 * Must hold: a head that another reader could read differently is rejected (response smuggling): lines end in
 * CRLF, no folding, no control characters, one length or chunks and never both, no transfer coding but
 * chunked.
 */

import type { HeaderName } from './http-client.js';

/** How the body ends: there is none, after its length, with the last chunk, or when the server closes. */
type Framing = 'empty' | 'length' | 'chunked' | 'close';

/** Most header lines of a head. Providers send some 30. */
const HEADERS_MAX = 256;
/** The shortest header line: `a:` and CRLF. */
const HEADER_BYTES_MIN = 4;
/** A length below 10^15 bytes, which a number still holds exactly. */
const LENGTH_PATTERN = /^\d{1,15}$/;
/** The first line of a head, and the rest of it. */
const STATUS_LINE = /^HTTP\/1\.[01] [1-9]\d\d(?: [\t -~\x80-\xff]*)?\r\n/;
const HEADER_LINES = /(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)*\r\n$/;
/**
 * Matches a whole head, in which `\nname:` then always is the start of a header line: `valueAt` relies on it.
 * No two parts of the pattern match the same bytes, so the time is linear.
 */
const HEAD = new RegExp(STATUS_LINE.source + HEADER_LINES.source);
const SPACE = 0x20;
const TAB = 0x09;
/** In a header `keep-alive` in lower case, such as `timeout=5, max=100`. */
const KEEP_ALIVE_SECONDS = /(?:^|[,;\s])timeout=(\d{1,9})(?:$|[,;\s])/;

const STATUS_START = 'HTTP/1.1 '.length;
const STATUS_END = STATUS_START + 3;
const SWITCHING = 101;
const NO_CONTENT = 204;
const NOT_MODIFIED = 304;

export class ResponseHead {
  readonly status: number;
  readonly framing: Framing;
  /** Bytes of the body if `framing` is `length`, else 0. */
  readonly lengthBytes: number;
  /** Whether the server takes another request on this connection after this response. */
  readonly keepsAlive: boolean;
  readonly #text: string;
  /** `#text` in lower case, to find names in. Positions are the same in both, because all is Latin-1. */
  readonly #lowered: string;

  constructor(
    text: string,
    lowered: string,
    status: number,
    framing: Framing,
    lengthBytes: number,
    keepsAlive: boolean,
  ) {
    this.#text = text;
    this.#lowered = lowered;
    this.status = status;
    this.framing = framing;
    this.lengthBytes = lengthBytes;
    this.keepsAlive = keepsAlive;
  }

  /** The value of the first header of that name; undefined if there is none. */
  header(name: HeaderName): string | undefined {
    return valueAt(this.#text, this.#lowered, name, 0)?.value;
  }

  /** How long the server keeps the connection; undefined if the server does not say so. */
  get keepAliveSeconds(): number | undefined {
    const text = this.header('keep-alive');
    const seconds = text === undefined ? undefined : KEEP_ALIVE_SECONDS.exec(text.toLowerCase())?.[1];
    return seconds === undefined ? undefined : Number(seconds);
  }
}

/** Parses a whole head, as Latin-1. Returns why it is rejected, for the log. 1 µs for 10 headers. */
export function parseHead(text: string): ResponseHead | string {
  if (!HEAD.test(text)) return STATUS_LINE.test(text) ? 'bad header' : 'bad status line';
  const status = Number(text.slice(STATUS_START, STATUS_END));
  const lowered = text.toLowerCase();
  if (status === SWITCHING) return 'an upgrade that nobody asked for';
  // An informational head has no body, whatever it says; the final head follows on the same connection.
  if (status < 200) {
    const keepsAlive = true;
    return new ResponseHead(text, lowered, status, 'empty', 0, keepsAlive);
  }
  // A text up to that length cannot have more headers. The status line and the empty line are two more lines.
  if (text.length > HEADERS_MAX * HEADER_BYTES_MIN && lineCountOf(text) > HEADERS_MAX + 2)
    return `more than ${HEADERS_MAX} headers`;
  const isHttp10 = text.startsWith('HTTP/1.0');
  // The connection to an HTTP/1.0 server is never kept: the `keep-alive` that it may offer is no standard.
  const keepsAlive = !isHttp10 && !saysClose(text, lowered);
  const length = valueAt(text, lowered, 'content-length', 0);
  const coding = valueAt(text, lowered, 'transfer-encoding', 0);
  if (length !== undefined && coding !== undefined) return 'a length and a transfer coding';
  if (coding !== undefined) {
    if (isHttp10) return 'a transfer coding in HTTP/1.0';
    if (coding.value.toLowerCase() !== 'chunked') return 'a transfer coding but chunked';
    if (valueAt(text, lowered, 'transfer-encoding', coding.end) !== undefined) return 'two transfer codings';
  }
  if (length !== undefined) {
    if (!LENGTH_PATTERN.test(length.value)) return 'a length that is none';
    if (valueAt(text, lowered, 'content-length', length.end) !== undefined) return 'two lengths';
  }
  const framing = framingOf(status, coding !== undefined, length?.value);
  const lengthBytes = framing === 'length' ? Number(length!.value) : 0;
  return new ResponseHead(text, lowered, status, framing, lengthBytes, keepsAlive && framing !== 'close');
}

function framingOf(status: number, isChunked: boolean, length: string | undefined): Framing {
  // Responses of these statuses have no body, whatever length they name.
  if (status === NO_CONTENT || status === NOT_MODIFIED) return 'empty';
  if (isChunked) return 'chunked';
  if (length === undefined) return 'close';
  return Number(length) === 0 ? 'empty' : 'length';
}

function lineCountOf(text: string): number {
  let count = 0;
  for (let lineEnd = text.indexOf('\n'); lineEnd !== -1; lineEnd = text.indexOf('\n', lineEnd + 1)) count++;
  return count;
}

/** Whether a header `connection` (there may be several) has the option `close`. */
function saysClose(text: string, lowered: string): boolean {
  let header = valueAt(text, lowered, 'connection', 0);
  while (header !== undefined) {
    const options = header.value.toLowerCase();
    // The usual value is compared first, because `split` costs more.
    if (options !== 'keep-alive' && options.split(/[,\s]+/).includes('close')) return true;
    header = valueAt(text, lowered, 'connection', header.end);
  }
  return false;
}

/** `\nname:` by name. Kept for ever, because V8 takes three times as long to find a newly made string. */
const LINE_STARTS = new Map<HeaderName, string>();

/** The first header of that name from `from` on, and where its line's CRLF is. `text` must match HEAD. */
function valueAt(
  text: string,
  lowered: string,
  name: HeaderName,
  from: number,
): { readonly value: string; readonly end: number } | undefined {
  let lineStart = LINE_STARTS.get(name);
  if (lineStart === undefined) LINE_STARTS.set(name, (lineStart = `\n${name}:`));
  const start = lowered.indexOf(lineStart, from);
  if (start === -1) return undefined;
  const end = text.indexOf('\r', start);
  let valueStart = start + lineStart.length;
  while (isSpace(text.charCodeAt(valueStart))) valueStart++;
  let valueEnd = end;
  while (valueEnd > valueStart && isSpace(text.charCodeAt(valueEnd - 1))) valueEnd--;
  return { value: text.slice(valueStart, valueEnd), end };
}

function isSpace(code: number): boolean {
  return code === SPACE || code === TAB;
}
