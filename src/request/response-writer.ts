/**
 * Writes a response that comes in pieces to a socket that may be slower than they come. Listener thread.
 *
 *     open ⇄ blocked (pieces queue, no credit goes back) → ended (the rest is leaving) → left
 *
 * Facts of µWS 20.41 that this file is built around, all of them tried:
 *
 * - `write` is false where the socket takes no more; what it did not take, µWS keeps. A small write inside of
 *   a cork is
 *   true even if the flush after it fails, so only the next write tells.
 * - What µWS keeps leaves along with a further write or an empty cork, not by itself while a handler for
 *   "writable" is set.
 * - "Writable" comes when a third of the kernel's buffer is free: minutes apart for a slow reader, since that
 *   buffer grows
 *   to megabytes. The kernel takes bytes earlier than that, so a blocked answer is tried at every sweep.
 * - A failed flush sets a timer that cuts the connection after 8 to 12 s; only the next "writable" ends it.
 *   `pause` and
 *   `resume`, one right after the other, start it anew, also where nothing failed. (`pause` alone would also stop the
 *   notice that the client has gone.) So a long response is touched every few seconds, and who cuts a reader is this file.
 * - One cork holds 16 KiB. A write that its rest has no room for sends what is corked, the line with the
 *   chunk's size at
 *   least, and then the bytes. Where the socket refuses the first of the two, µWS keeps that, **loses the bytes** and is
 *   false as ever (`uncork` in AsyncSocket.h; https://github.com/uNetworking/uWebSockets.js/issues/1249), and the client reads the
 *   next chunk as the lost one's body. The socket must be full just then: seen once in some 10 GB that pausing clients
 *   read on loopback. So no cork here holds more than fits.
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { Clock } from '../core/clock.js';
import { SSE_KEEP_ALIVE } from '../protocol/sse.js';
import { writeLastChunk } from './response.js';

/** A stream that has been silent for so long gets a comment, before proxies on the way take it for dead. */
const KEEP_ALIVE_MS = 15_000;
/** Below the 8 s after which µWS cuts at the earliest, with room for a late sweep. */
export const TOUCH_MS = 4_000;
/**
 * Written at once. The rest of µWS's cork of 16 KiB is for the head, some 500 bytes, and the lines around the
 * chunk.
 */
const WRITE_BYTES_MAX = 15 * 1024;
/**
 * To a reader that has been slow: what µWS keeps, two of them at most, stays small, so that progress is seen
 * soon.
 */
const SLOW_WRITE_BYTES_MAX = 8 * 1024;
/**
 * Frames that came at once are copied together up to here; a longer one is worth a system call of its own.
 */
const JOINED_BYTES_MAX = 8 * 1024;
/**
 * Written along with the end. What the socket does not take of it is left to µWS and its timer, so it is
 * small.
 */
const LAST_BYTES_MAX = 1024;
/** Tries whether a blocked socket takes bytes; µWS keeps it where not, so it is small. */
const PROBE_BYTES = 64;
const NOTHING = new Uint8Array(0);
/**
 * Where frames are joined: one for all responses, for what is in it is written or copied before the next.
 * Memory of its own for each took 1 µs.
 */
const JOINED = new Uint8Array(2 * JOINED_BYTES_MAX);

export interface ResponseOwner {
  readonly isStream: boolean;
  /** Whether a response that begins now ends its connection. */
  readonly endsConnection: boolean;
  /**
   * Status and headers, inside the cork of the first write; `tellsClose` where they say that the connection
   * ends.
   */
  writeHead(tellsClose: boolean): void;
  /** So many bytes of the response have left: credits go back for them. */
  onTaken(bytes: number): void;
  /**
   * The response has been ended, all of it taken by the kernel but for what one small write may leave with
   * µWS.
   */
  onLeft(): void;
}

export class ResponseWriter {
  readonly #res: HttpResponse;
  readonly #clock: Clock;
  readonly #owner: ResponseOwner;
  /** What the socket had no room for, oldest first: one window at most, which the credits bound. */
  readonly #queue: Uint8Array[] = [];
  /** Of a response that has been ended: what comes after the queue. */
  #last: Uint8Array | undefined;
  /** What waits for the frame that follows at once: they leave with one system call. */
  #joined: Uint8Array[] = [];
  #joinedBytes = 0;
  #begun = false;
  #blocked = false;
  #wasSlow = false;
  #left = false;
  /** The head said `close`: the connection ends with the response. */
  #toldClose = false;
  #gone = false;
  /** The end is a cut connection, which tells that the response is not whole. */
  #cuts = false;
  /** Bytes that µWS keeps because the socket was full: they have left when a later write succeeds. */
  #storedBytes = 0;
  /** When the socket last took something. */
  #progressMs: number;
  #touchedMs: number;

  constructor(res: HttpResponse, clock: Clock, owner: ResponseOwner) {
    this.#res = res;
    this.#clock = clock;
    this.#owner = owner;
    this.#progressMs = this.#touchedMs = clock.monotonicMs();
    res.onWritable(() => this.#onWritable());
  }

  /**
   * One frame of the response; for a stream it holds whole events. With `more` another write, `end` or
   * `flush` follows at once.
   */
  write(bytes: Uint8Array, more = false): void {
    if (more && !this.#blocked && this.#joinedBytes + bytes.length <= JOINED_BYTES_MAX) {
      this.#joined.push(bytes);
      this.#joinedBytes += bytes.length;
    } else {
      this.#write(this.#join(bytes));
    }
  }

  /** What was to leave with a frame that followed at once leaves without it. */
  flush(): void {
    if (this.#joined.length > 0) this.#write(this.#join(NOTHING));
  }

  #join(bytes: Uint8Array): Uint8Array {
    if (this.#joined.length === 0) return bytes;
    const joined =
      bytes.length === 0 && this.#joined.length === 1
        ? this.#joined[0]!
        : joinedIn(this.#joined, this.#joinedBytes, bytes);
    this.#joined = [];
    this.#joinedBytes = 0;
    return joined;
  }

  #write(bytes: Uint8Array): void {
    let start = 0;
    while (!this.#blocked && start < bytes.length) {
      const end = Math.min(bytes.length, start + WRITE_BYTES_MAX);
      this.#send(start === 0 && end === bytes.length ? bytes : bytes.subarray(start, end), end - start);
      start = end;
    }
    // A frame is a view of all that came with it, for other calls too: one that stays longer must not hold on
    // to them.
    if (start < bytes.length) this.#queue.push(bytes.slice(start));
  }

  /** The last bytes; `onLeft` follows, at once if the client is not slow, unless the client goes first. */
  end(bytes: Uint8Array): void {
    const all = this.#join(bytes);
    // Nothing of the response is out yet, and what went before it on this connection its client has read: the
    // socket is empty.
    const lastBytesMax = this.#begun ? LAST_BYTES_MAX : WRITE_BYTES_MAX;
    const lastStart = Math.max(0, all.length - lastBytesMax);
    if (lastStart > 0) this.#write(all.subarray(0, lastStart));
    const last = lastStart === 0 ? all : all.subarray(lastStart);
    this.#last = this.#blocked ? last.slice() : last;
    this.#pump();
  }

  /**
   * In the place of `end`: the connection is closed once the client has what was written. Only after a
   * `write`.
   */
  cut(): void {
    this.#cuts = true;
    this.end(NOTHING);
  }

  /**
   * Called about once a second: tries a blocked socket again, and sends a keep-alive comment to a silent
   * stream. Returns false if the client has taken nothing for `idleMsMax`: then cut it.
   */
  onSweep(nowMs: number, idleMsMax: number): boolean {
    const idleMs = nowMs - this.#progressMs;
    if (this.#blocked) this.#probe();
    else if (this.#owner.isStream && idleMs >= KEEP_ALIVE_MS) this.#send(SSE_KEEP_ALIVE, 0);
    if (this.#hasLeft()) return true;
    if (this.#blocked && idleMs >= idleMsMax) return false;
    if (nowMs - this.#touchedMs >= TOUCH_MS) {
      this.#touchedMs = nowMs;
      this.#res.pause();
      this.#res.resume();
    }
    return true;
  }

  /** The socket takes bytes again. */
  #onWritable(): boolean {
    this.#progressMs = this.#clock.monotonicMs();
    if (!this.#blocked) return true;
    this.#blocked = false;
    if (this.#queue.length === 0) {
      this.#res.cork(() => undefined);
      this.#giveBack();
    }
    this.#pump();
    return true;
  }

  /** Tries whether the socket has taken what µWS keeps. */
  #probe(): void {
    // A comment is in place where no queued piece of an event must come before it. A whole response knows
    // none: with nothing queued more of it is on its way, and that is the next try.
    if (this.#queue.length > 0) this.#sendHead(PROBE_BYTES);
    else if (this.#owner.isStream) this.#send(SSE_KEEP_ALIVE, 0);
    else this.#res.cork(() => undefined);
    this.#pump();
  }

  /** Writes the queue as far as the socket takes it, and then the end if it is there. */
  #pump(): void {
    while (!this.#blocked && this.#queue.length > 0)
      this.#sendHead(this.#wasSlow ? SLOW_WRITE_BYTES_MAX : WRITE_BYTES_MAX);
    const last = this.#last;
    if (this.#blocked || last === undefined || this.#left) return;
    // One system call for both. Not `end(bytes)`: that would leave what the socket does not take to µWS and
    // its timer.
    let taken = true as boolean;
    this.#res.cork(() => {
      this.#begin();
      if (last.length > 0) taken = this.#res.write(last);
      if (!taken || this.#cuts) return;
      if (this.#toldClose) writeLastChunk(this.#res);
      else this.#res.end();
    });
    if (taken) {
      this.#leave();
    } else {
      this.#blocked = this.#wasSlow = true;
      this.#last = NOTHING;
    }
  }

  /** Read anew after a write, with which the response may have left. */
  #hasLeft(): boolean {
    return this.#left;
  }

  #leave(): void {
    this.#left = true;
    this.#owner.onLeft();
    if (!this.#toldClose && !this.#cuts) return;
    // Not within a callback of µWS, which goes on with the connection.
    setImmediate(() => {
      if (!this.#gone) this.#res.close();
    });
  }

  /** The connection has ended: nothing more can be done with it. */
  onGone(): void {
    this.#gone = true;
  }

  #sendHead(bytesMax: number): void {
    const head = this.#queue[0]!;
    if (head.length > bytesMax) this.#queue[0] = head.subarray(bytesMax);
    else this.#queue.shift();
    const bytes = head.subarray(0, bytesMax);
    this.#send(bytes, bytes.length);
  }

  /** `creditBytes` of the written count for the worker. */
  #send(bytes: Uint8Array | string, creditBytes: number): void {
    this.#res.cork(() => {
      this.#begin();
      this.#blocked = !this.#res.write(bytes);
    });
    this.#storedBytes += creditBytes;
    if (this.#blocked) {
      this.#wasSlow = true;
    } else {
      this.#progressMs = this.#clock.monotonicMs();
      this.#giveBack();
    }
  }

  /** Inside of a cork. */
  #begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    this.#toldClose = this.#owner.endsConnection;
    this.#owner.writeHead(this.#toldClose);
  }

  #giveBack(): void {
    const bytes = this.#storedBytes;
    this.#storedBytes = 0;
    if (bytes > 0) this.#owner.onTaken(bytes);
  }
}

/** Valid until the next. */
function joinedIn(frames: readonly Uint8Array[], framesBytes: number, last: Uint8Array): Uint8Array {
  if (framesBytes + last.length > JOINED.length) return Buffer.concat([...frames, last]);
  let at = 0;
  for (const frame of frames) {
    JOINED.set(frame, at);
    at += frame.length;
  }
  JOINED.set(last, at);
  return JOINED.subarray(0, at + last.length);
}
