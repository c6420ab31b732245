/**
 * Reads the head of the HTTP/1.1 response to a POST (RFC 9112): status, framing of the body, whether the
 * connection may be kept. parser.ts calls it, and bounds its length. Pure; upstream worker.
 *
 * Must hold: a head that another reader could read differently is rejected (response smuggling): lines end in
 * CRLF, no folding, no control characters, one length or chunks and never both, no transfer coding but
 * chunked (test/unit/http1/head.test.ts).
 */

/** How the body ends: there is none, after its length, with the last chunk, or when the server closes. */
type Framing = 'empty' | 'length' | 'chunked' | 'close';

/** Most header lines of a head. Providers send some 30. */
const HEADERS_MAX = 256;
/** The shortest header line: `a:` and CRLF. */
const HEADER_BYTES_MIN = 4;
/** A length below 10^15 bytes, which a number still holds exactly. */
const LENGTH_PATTERN = /^\d{1,15}$/;
const STATUS_LINE = /^HTTP\/1\.[01] [1-9]\d\d(?: [\t -~\x80-\xff]*)?\r\n/;
/**
 * Matches the whole head, so that `\nname:` in it is always the start of a header line. No two parts of the
 * pattern match the same bytes, so the time is linear.
 */
const HEAD =
  /^HTTP\/1\.[01] [1-9]\d\d(?: [\t -~\x80-\xff]*)?\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)*\r\n$/;
const SPACE = 0x20;
const TAB = 0x09;
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
  /** The server takes another request on this connection after this response. */
  readonly keepsAlive: boolean;
  readonly #text: string;
  /** `#text` in lower case, to find names in; the positions are the same, because all is Latin-1. */
  readonly #lower: string;

  constructor(
    text: string,
    lower: string,
    status: number,
    framing: Framing,
    lengthBytes: number,
    keepsAlive: boolean,
  ) {
    this.#text = text;
    this.#lower = lower;
    this.status = status;
    this.framing = framing;
    this.lengthBytes = lengthBytes;
    this.keepsAlive = keepsAlive;
  }

  /** The first header of that lower-case name: a literal of our code, because LINE_STARTS keeps each name. */
  header(name: string): string | undefined {
    return valueAt(this.#text, this.#lower, name, 0)?.value;
  }

  /** How long the server keeps the connection, if it says so. */
  get keepAliveSeconds(): number | undefined {
    const text = this.header('keep-alive');
    const seconds = text === undefined ? undefined : KEEP_ALIVE_SECONDS.exec(text.toLowerCase())?.[1];
    return seconds === undefined ? undefined : Number(seconds);
  }
}

/**
 * Parses a whole head, as Latin-1, from the status line to the empty line. Returns a text, for the log, that
 * says why the head is rejected, if it is. Costs 1 µs for 10 headers.
 */
export function parseHead(text: string): ResponseHead | string {
  if (!HEAD.test(text)) return STATUS_LINE.test(text) ? 'bad header' : 'bad status line';
  const status = Number(text.slice(STATUS_START, STATUS_END));
  const lower = text.toLowerCase();
  if (status === SWITCHING) return 'an upgrade that nobody asked for';
  // An informational head has no body, whatever it says; the final head follows.
  if (status < 200) return new ResponseHead(text, lower, status, 'empty', 0, true);
  // A shorter text cannot have more headers. The status line and the empty line are two more lines.
  if (text.length > HEADERS_MAX * HEADER_BYTES_MIN && lineCountOf(text) > HEADERS_MAX + 2)
    return `more than ${HEADERS_MAX} headers`;
  const isHttp10 = text.startsWith('HTTP/1.0');
  // Also an HTTP/1.0 server that offers to keep the connection is left: its `keep-alive` is no standard.
  const keepsAlive = !isHttp10 && !saysClose(text, lower);
  const length = valueAt(text, lower, 'content-length', 0);
  const coding = valueAt(text, lower, 'transfer-encoding', 0);
  if (length !== undefined && coding !== undefined) return 'a length and a transfer coding';
  if (coding !== undefined) {
    if (isHttp10) return 'a transfer coding in HTTP/1.0';
    if (coding.value.toLowerCase() !== 'chunked') return 'a transfer coding but chunked';
    if (valueAt(text, lower, 'transfer-encoding', coding.end) !== undefined) return 'two transfer codings';
  }
  if (length !== undefined) {
    if (!LENGTH_PATTERN.test(length.value)) return 'a length that is none';
    if (valueAt(text, lower, 'content-length', length.end) !== undefined) return 'two lengths';
  }
  const framing = framingOf(status, coding !== undefined, length?.value);
  const lengthBytes = framing === 'length' ? Number(length!.value) : 0;
  return new ResponseHead(text, lower, status, framing, lengthBytes, keepsAlive && framing !== 'close');
}

function framingOf(status: number, isChunked: boolean, length: string | undefined): Framing {
  // These have no body, whatever length they name.
  if (status === NO_CONTENT || status === NOT_MODIFIED) return 'empty';
  if (isChunked) return 'chunked';
  if (length === undefined) return 'close';
  return Number(length) === 0 ? 'empty' : 'length';
}

function lineCountOf(text: string): number {
  let count = 0;
  for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', at + 1)) count++;
  return count;
}

function saysClose(text: string, lower: string): boolean {
  let found = valueAt(text, lower, 'connection', 0);
  while (found !== undefined) {
    const options = found.value.toLowerCase();
    // The usual value first, because `split` costs more.
    if (options !== 'keep-alive' && options.split(/[,\s]+/).includes('close')) return true;
    found = valueAt(text, lower, 'connection', found.end);
  }
  return false;
}

/** `\nname:` by name. Kept for ever, because V8 takes three times as long to find a newly made string. */
const LINE_STARTS = new Map<string, string>();

/** Returns the value of the first header of that name after `from`, and the position of its line's CRLF. */
function valueAt(
  text: string,
  lower: string,
  name: string,
  from: number,
): { readonly value: string; readonly end: number } | undefined {
  let lineStart = LINE_STARTS.get(name);
  if (lineStart === undefined) LINE_STARTS.set(name, (lineStart = `\n${name}:`));
  const start = lower.indexOf(lineStart, from);
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
