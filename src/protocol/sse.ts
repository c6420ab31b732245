/**
 * Server-sent events (SSE): writes events for clients, and splits the bytes that upstreams send into events.
 * The stream readers of upstream/ and providers/ have one SseSplitter for each stream; doors and writers of
 * chat completions call the functions that write. Pure; any thread.
 *
 *     const events = splitter.push(chunk);            whole events; mostly the chunk itself, nothing copied
 *     if (events === undefined)                       an unfinished event exceeds its bound: give up
 *     latin1EventFrom(events, text, start) …          look at each event, and relay or drop it
 *     const lastEvent = splitter.end();               at the end of the upstream's response; mostly empty
 *
 * Must hold: unless push() gives up, what push() and end() return, joined, are the bytes that went in,
 * however they were cut. Two things differ: a byte-order mark at the start is left out, and end() closes an
 * event that the upstream left open (test/unit/protocol/sse.test.ts). An event includes its blank line.
 *
 * Lines end in LF, CRLF or CR (https://html.spec.whatwg.org/multipage/server-sent-events.html). One case
 * cannot be decided at the end of a chunk: after a LF a CR may be a blank line, or the first half of a CRLF.
 * The event then stays _held_, as does any event whose end has not come: the splitter keeps it for later.
 */
import { asBuffer } from '../core/bytes.js';
import { errorBody, type ErrorRecord } from '../core/errors.js';
import { SSE_EVENT_BYTES_MAX } from '../core/limits.js';

const LF = 10;
const CR = 13;
const SPACE = 32;
const COLON = 58;
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
const DATA_NAME = Buffer.from('data');
const DATA_START = 'data:';
const EVENT_LINE_START = 'event:';
const NO_BYTES = Buffer.alloc(0);

/**
 * How many bytes are searched for the LF of a line; a longer line is read byte by byte. Without the bound,
 * lines that end in CR alone would cost the square of their number.
 */
const ONE_LINE_BYTES_MAX = 4 * 1024;

/** The largest buffer that is kept for the next held event; a larger one is freed. */
const HELD_BYTES_KEPT = 4 * 1024;

/** The data of the event that ends a stream. */
export const SSE_DONE_DATA = '[DONE]';
/** The last event of a stream that ended well. */
export const SSE_DONE = sseEvent(SSE_DONE_DATA);
/** A comment that tells the client, and proxies on the way, that the stream is alive. */
export const SSE_KEEP_ALIVE = ': keep-alive\n\n';

/**
 * One event, with an `event:` line if it has a `type`. `data` must have no line break, which would end its
 * line: neither JSON.stringify nor `jsonText` writes one.
 */
export function sseEvent(data: string, type?: string): string {
  return type === undefined ? `data: ${data}\n\n` : `event: ${type}\ndata: ${data}\n\n`;
}

/** The event that ends a stream that failed after its first byte: `data: {"error":{…}}`. */
export function errorEvent(record: ErrorRecord): string {
  return sseEvent(errorBody(record));
}

/** Whether `bytes` end with the blank line of an event, so that a comment may follow. LF CR counts as one. */
export function endsEvent(bytes: Uint8Array): boolean {
  const end = bytes.length;
  const lastByte = bytes[end - 1];
  if (lastByte !== LF && lastByte !== CR) return false;
  const byteBefore = bytes[lastByte === LF && bytes[end - 2] === CR ? end - 3 : end - 2];
  return byteBefore === LF || byteBefore === CR;
}

/**
 * The end of the last whole event within `bytes[0..length)`; 0 if there is none. `bytes` starts at an event,
 * and none ends at or before `noEndUntil`. Costs nothing if `bytes` ends with an event.
 */
function lastEventEnd(bytes: Uint8Array, length: number, noEndUntil: number): number {
  for (let end = length; end > noEndUntil; end--) {
    const lastByte = bytes[end - 1];
    if (lastByte !== LF && lastByte !== CR) continue;
    const lineEnd = lastByte === LF && end >= 2 && bytes[end - 2] === CR ? end - 2 : end - 1;
    if (lineEnd === 0) return end;
    const byteBefore = bytes[lineEnd - 1];
    if (byteBefore !== LF && byteBefore !== CR) continue;
    // LF CR at the very end: the CR is most likely the first half of a CRLF.
    if (lastByte === CR && end === length && byteBefore === LF) continue;
    return end;
  }
  return 0;
}

/**
 * Cuts one stream of bytes between events. After end(), or after push() has returned undefined, the stream is
 * over for its reader: what is pushed then would be read as if an event began with it.
 */
export class SseSplitter {
  /** The start of an event whose end has not come: `#held[0..#heldBytes)`. */
  #held: Buffer = NO_BYTES;
  #heldBytes = 0;
  #isAtStart = true;
  readonly #eventBytesMax: number;

  constructor(eventBytesMax = SSE_EVENT_BYTES_MAX) {
    this.#eventBytesMax = eventBytesMax;
  }

  /** Size of the buffer for the held event, which readers with a high bound count against a memory budget. */
  get bufferBytes(): number {
    return this.#held.length;
  }

  /**
   * Returns the events that are whole with `chunk`, perhaps none. The result shares the memory of `chunk`, or
   * has memory that later calls do not change. Copies nothing if the chunk ends with an event, else only the
   * cut events.
   *
   * Returns undefined if more than `eventBytesMax` bytes would be held. Whole events before them are lost
   * too. The bound is one of memory: an event that `chunk` completes may exceed it, by at most the chunk.
   */
  push(chunk: Uint8Array): Buffer | undefined {
    if (this.#heldBytes > 0) return this.#pushAfterHeld(chunk);
    const end = lastEventEnd(chunk, chunk.length, 0);
    const bytes = asBuffer(chunk);
    if (end === chunk.length) return this.#withoutByteOrderMark(bytes);
    this.#hold(chunk, end);
    return this.#dropIfTooLong() ? undefined : this.#withoutByteOrderMark(bytes.subarray(0, end));
  }

  /**
   * Returns the held event, closed with a blank line, or no bytes. Some providers leave out the last blank
   * line, so the caller must check that the data is whole.
   */
  end(): Buffer {
    if (this.#heldBytes === 0) return NO_BYTES;
    const held = this.#held.subarray(0, this.#heldBytes);
    this.#heldBytes = 0;
    const lastByte = held[held.length - 1];
    // After LF CR the event lacks only the LF of a blank line's CRLF.
    const isLineClosed = lastByte === LF || (lastByte === CR && held[held.length - 2] === LF);
    return this.#withoutByteOrderMark(Buffer.concat([held, Buffer.from(isLineClosed ? '\n' : '\n\n')]));
  }

  #pushAfterHeld(chunk: Uint8Array): Buffer | undefined {
    const heldBefore = this.#heldBytes;
    this.#hold(chunk, 0);
    // No event ends within the bytes held before, unless these end in LF CR and the CR was a blank line.
    const end = lastEventEnd(this.#held, this.#heldBytes, heldBefore - 1);
    const events = this.#release(end);
    return this.#dropIfTooLong() ? undefined : this.#withoutByteOrderMark(events);
  }

  /** Returns whether the held event exceeds its bound. Then it frees the event: the stream is given up. */
  #dropIfTooLong(): boolean {
    if (this.#heldBytes <= this.#eventBytesMax) return false;
    this.#held = NO_BYTES;
    this.#heldBytes = 0;
    return true;
  }

  /** Removes and returns the held bytes before `end`. Frees a large buffer, as the stream may pause now. */
  #release(end: number): Buffer {
    if (end === 0) return NO_BYTES;
    const held = this.#held.subarray(0, this.#heldBytes);
    this.#heldBytes -= end;
    if (this.#held.length > HELD_BYTES_KEPT) {
      this.#held = Buffer.from(held.subarray(end));
      return held.subarray(0, end);
    }
    const events = Buffer.from(held.subarray(0, end));
    held.copyWithin(0, end);
    return events;
  }

  /** Holds `chunk[start..)`. The buffer doubles, so that a long event is not copied for every chunk. */
  #hold(chunk: Uint8Array, start: number): void {
    const bytes = this.#heldBytes + chunk.length - start;
    if (bytes > this.#held.length) {
      const grown = Buffer.allocUnsafe(Math.max(bytes, 2 * this.#held.length));
      this.#held.copy(grown, 0, 0, this.#heldBytes);
      this.#held = grown;
    }
    this.#held.set(start === 0 ? chunk : chunk.subarray(start), this.#heldBytes);
    this.#heldBytes = bytes;
  }

  /** Leaves out the byte-order mark at the start of the stream. */
  #withoutByteOrderMark(events: Buffer): Buffer {
    if (!this.#isAtStart || events.length === 0) return events;
    this.#isAtStart = false;
    const isMarked = events.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK);
    return isMarked ? events.subarray(BYTE_ORDER_MARK.length) : events;
  }
}

/**
 * How the bytes of data become characters. `latin1` makes one of each byte: so positions in the text are
 * those of the bytes, and bytes that are no UTF-8 stay what they are.
 */
type DataEncoding = 'utf8' | 'latin1';

interface StreamEvent {
  /** Where the next event starts. */
  readonly end: number;
  /** The data lines, joined with LF. Undefined if there are none, as in a comment or a lone `event:`. */
  readonly data: string | undefined;
}

/**
 * Returns the event at `start` of `events`, which are whole; undefined at the end of `events`. Takes 0.3 µs
 * for one data line of 260 bytes that ends in LF, 1 µs for any other.
 */
function eventFrom(events: Buffer, start: number, encoding: DataEncoding): StreamEvent | undefined {
  return oneLineEventInBytes(events, start, encoding) ?? anyEventInBytes(events, start, encoding);
}

/**
 * As `eventFrom`, with the data as Latin-1, for upstream/event-reader.ts. `text` is all of `events` as
 * Latin-1, or undefined if the caller does not have it; with `text` one line takes 0.1 µs.
 */
export function latin1EventFrom(
  events: Buffer,
  text: string | undefined,
  start: number,
): StreamEvent | undefined {
  const oneLine = text === undefined ? undefined : oneLineEventInText(text, start);
  return oneLine ?? eventFrom(events, start, 'latin1');
}

/**
 * The event at `start` of `text`, which are whole events in either encoding, if it is one data line that ends
 * in LF, perhaps after an `event:` line; else undefined, also for a line with a CR, because a CR ends a line.
 */
function oneLineEventInText(text: string, start: number): StreamEvent | undefined {
  let lineStart = start;
  let lineEnd = lineEndIn(text, start);
  if (lineEnd > 0 && text.startsWith(EVENT_LINE_START, start)) {
    if (text.slice(start, lineEnd).includes('\r')) return undefined;
    lineStart = lineEnd + 1;
    lineEnd = lineEndIn(text, lineStart);
  }
  if (lineEnd < 0 || text.charCodeAt(lineEnd + 1) !== LF || !text.startsWith(DATA_START, lineStart))
    return undefined;
  const valueStart = lineStart + DATA_START.length;
  const data = text.slice(text.charCodeAt(valueStart) === SPACE ? valueStart + 1 : valueStart, lineEnd);
  return data.includes('\r') ? undefined : { end: lineEnd + 2, data };
}

/** Position of the next LF; -1 if none is within ONE_LINE_BYTES_MAX. */
function lineEndIn(text: string, start: number): number {
  const length = text.slice(start, start + ONE_LINE_BYTES_MAX).indexOf('\n');
  return length < 0 ? -1 : start + length;
}

/** As `oneLineEventInText`, without an `event:` line. `indexOf` costs a tenth of reading byte by byte. */
function oneLineEventInBytes(events: Buffer, start: number, encoding: DataEncoding): StreamEvent | undefined {
  const length = events.subarray(start, start + ONE_LINE_BYTES_MAX).indexOf(LF);
  const lineEnd = start + length;
  if (length < 0 || events[lineEnd + 1] !== LF) return undefined;
  const data = dataOf(events, start, lineEnd, encoding);
  return data === undefined || data.includes('\r') ? undefined : { end: lineEnd + 2, data };
}

/** The event, with any lines; undefined at the end of `events`. */
function anyEventInBytes(events: Buffer, start: number, encoding: DataEncoding): StreamEvent | undefined {
  let data: string | undefined;
  let position = start;
  while (position < events.length) {
    let lineEnd = position;
    while (lineEnd < events.length && events[lineEnd] !== LF && events[lineEnd] !== CR) lineEnd++;
    const nextLine = lineEnd + (events[lineEnd] === CR && events[lineEnd + 1] === LF ? 2 : 1);
    if (lineEnd === position) return { end: nextLine, data };
    const value = dataOf(events, position, lineEnd, encoding);
    if (value !== undefined) data = data === undefined ? value : `${data}\n${value}`;
    position = nextLine;
  }
  return undefined;
}

/**
 * Calls `visit` with the data of each event that has data. `events` are whole and UTF-8: the caller
 * (providers/gemini/stream.ts) has checked the encoding. All events are decoded at once. From the first event
 * on that is not one data line, they are read as bytes.
 */
export function forEachData(events: Buffer, visit: (data: string) => void): void {
  const text = events.toString();
  let start = 0;
  let event = oneLineEventInText(text, start);
  while (event?.data !== undefined) {
    visit(event.data);
    start = event.end;
    event = oneLineEventInText(text, start);
  }
  if (start === text.length) return;
  forEachEvent(start === 0 ? events : Buffer.from(text.slice(start)), (_start, _end, data) => {
    if (data !== undefined) visit(data);
  });
}

/** `data` as in StreamEvent. */
type VisitEvent = (start: number, end: number, data: string | undefined) => void;

/**
 * Calls `visit` for each of `events`, which are whole, in order. The spans `[start, end)` leave no gap and
 * reach to the end of `events`. The data is decoded as UTF-8. Called by chat-text.ts and door-call.ts of
 * upstream/, and by providers/anthropic/stream.ts.
 */
export function forEachEvent(events: Buffer, visit: VisitEvent): void {
  let start = 0;
  let event = eventFrom(events, start, 'utf8');
  while (event !== undefined) {
    visit(start, event.end, event.data);
    start = event.end;
    event = eventFrom(events, start, 'utf8');
  }
}

/**
 * The value of the line `[start, end)` if the name of its field is `data`, else undefined. A line is a name,
 * and perhaps a colon, one space that does not count, and the value. Without a colon the value is empty.
 */
function dataOf(events: Buffer, start: number, end: number, encoding: DataEncoding): string | undefined {
  const nameEnd = start + DATA_NAME.length;
  if (nameEnd > end || (nameEnd < end && events[nameEnd] !== COLON)) return undefined;
  for (let index = 0; index < DATA_NAME.length; index++) {
    if (events[start + index] !== DATA_NAME[index]) return undefined;
  }
  const afterColon = nameEnd + 1;
  if (afterColon >= end) return '';
  return events.toString(encoding, events[afterColon] === SPACE ? afterColon + 1 : afterColon, end);
}
