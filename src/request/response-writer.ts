/**
 * Writes a response that comes in pieces to a client that may read slower than they come (back-pressure).
 * Made by Delivery and Replay; listener thread.
 *
 *     open ⇄ blocked (pieces wait, the worker gets no credit) → ended (the rest is being written) → left
 *                                                                 └─→ lingering (see #lingers) ───↗
 *
 * Facts of µWebSockets.js (µWS) 20.41 that this file is built around, all of them tried:
 *
 * - `write` returns false if the socket takes no more, and µWS keeps the rest. A small write inside of a cork
 * returns true even if the flush after it fails: only the next write shows that.
 * - While an `onWritable` handler is set, µWS writes what it keeps only with a further write or an empty
 * cork.
 * - `onWritable` is called when a third of the kernel's buffer is free: minutes apart for a slow client,
 * since that buffer grows to megabytes. The kernel takes bytes earlier, so every sweep tries to write to a
 * blocked response.
 * - Once a write has failed, `onWritable` is called again, even if a later write has sent what was kept.
 * - A failed flush sets a timer that cuts the connection after 8 to 12 s; only the next `onWritable` ends it.
 * `pause` and `resume`, one right after the other, restart it, also if nothing failed. (`pause` alone would
 * also stop the notice that the client has gone.) So this file restarts the timer every few seconds, and cuts
 * clients itself.
 * - One cork holds 16 KiB. A write for which the rest of the cork is too small sends what is corked, at least
 * the line with the chunk's size, and then the bytes. If the socket does not take the first of the two, µWS
 * keeps that, **loses the bytes** and returns false as ever (`uncork` in AsyncSocket.h;
 * https://github.com/uNetworking/uWebSockets.js/issues/1249), and the client reads the next chunk as the lost
 * one's body. The socket must be full just then: seen once in some 10 GB that pausing clients read on
 * loopback. So no cork here holds more than fits.
 *
 * Must hold: a client that reads at any speed, with pauses of any length, gets every byte once and in order,
 * and the worker gets credits only for bytes that the socket has taken. Of a connection that ends, the last
 * KiB at most is lost if a client that never was slow first pauses there, for LINGER_MS
 * (test/unit/request/response-writer.test.ts, test/unit/request/answer-framing.test.ts,
 * test/e2e/slow-readers.test.ts).
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { Clock } from '../core/clock.js';
import { SSE_KEEP_ALIVE } from '../protocol/sse.js';
import { writeLastChunk } from './response.js';

/** A stream that was silent for so long gets a comment, so that proxies on the way keep it open. */
const KEEP_ALIVE_MS = 15_000;
/** How often the timer of µWS is restarted. It cuts after 8 s at the earliest, and a sweep may be late. */
export const TOUCH_MS = 4_000;
/**
 * Bytes of one write. The rest of the cork's 16 KiB is for the chunk's lines and the head: some 500 bytes,
 * and 1,330 with CORS and what Messages adds.
 */
const WRITE_BYTES_MAX = 14 * 1024;
/** The same for a client that has been slow: µWS keeps at most two, so progress is seen soon. */
const SLOW_WRITE_BYTES_MAX = 8 * 1024;
/** Frames that came at once are joined up to this size; a longer frame is worth a system call of its own. */
const JOINED_BYTES_MAX = 8 * 1024;
/** Bytes that are written along with the end. Few: µWS and its timer have what the socket does not take. */
const LAST_BYTES_MAX = 1024;
/**
 * Bytes of the queue that are written to try a blocked socket. Few: µWS keeps them if the socket takes
 * nothing.
 */
const PROBE_BYTES = 64;
/**
 * How long a connection that ends stays open after a long response, if no write is known to have failed: time
 * for what the last one may have left with µWS. Most clients close it at once.
 */
const LINGER_MS = 5_000;
const NOTHING = new Uint8Array(0);
/**
 * Where frames are joined. All responses use it, because its content is written or copied before the next
 * use. Memory for each response took 1 µs.
 */
const JOINED = new Uint8Array(2 * JOINED_BYTES_MAX);

export interface ResponseOwner {
  readonly isStream: boolean;
  readonly endsConnection: boolean;
  /** Writes the head, inside the cork of the first write. `sendsClose`: with `connection: close`. */
  writeHead(sendsClose: boolean): void;
  /** `bytes` of the response have left: the worker may get credits for them. */
  onTaken(bytes: number): void;
  /** The response has ended, and the kernel has it, except what one small write may leave with µWS. */
  onLeft(): void;
}

export class ResponseWriter {
  readonly #res: HttpResponse;
  readonly #clock: Clock;
  readonly #owner: ResponseOwner;
  /** What the socket did not take, oldest first. Credits bound it to one window. */
  readonly #queue: Uint8Array[] = [];
  /** Set once the response has ended: the bytes after the queue. */
  #last: Uint8Array | undefined;
  /** Frames that wait for the next one, which follows at once, to be written with one system call. */
  #joined: Uint8Array[] = [];
  #joinedBytes = 0;
  #begun = false;
  #blocked = false;
  #wasSlow = false;
  /** A write has failed since the last call of `onWritable`, so another call follows. */
  #awaitsWritable = false;
  #left = false;
  /**
   * All is written, the head said `connection: close`, and µWS may keep some of the last write, which would
   * be lost with the connection. So the connection stays open until the client closes it, the socket has room
   * again, or the time for both is over.
   */
  #lingers = false;
  /** Bytes of the response, except those of its last write. */
  #sentBytes = 0;
  /** The head said `connection: close`. */
  #sentClose = false;
  #gone = false;
  /** The connection is cut at the end: by that the client sees that the response is not whole. */
  #cuts = false;
  /** Bytes that µWS may keep because the socket was full. They have left once a later write succeeds. */
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

  /** Whether the client's socket is full. */
  get isBlocked(): boolean {
    return this.#blocked;
  }

  /**
   * Writes a frame; frames of a stream are whole events. With `more` another write or the end follows at
   * once.
   */
  write(bytes: Uint8Array, more = false): void {
    if (more && !this.#blocked && this.#joinedBytes + bytes.length <= JOINED_BYTES_MAX) {
      this.#joined.push(bytes);
      this.#joinedBytes += bytes.length;
    } else {
      this.#write(this.#join(bytes));
    }
  }

  /** Writes the frames that wait for another one. */
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

  #write(bytes: Uint8Array, stays = false): void {
    let start = 0;
    while (!this.#blocked && start < bytes.length) {
      const end = Math.min(bytes.length, start + WRITE_BYTES_MAX);
      this.#send(start === 0 && end === bytes.length ? bytes : bytes.subarray(start, end), end - start);
      start = end;
    }
    if (start < bytes.length) this.#queue.push(stays ? bytes.subarray(start) : bytes.slice(start));
  }

  /**
   * Writes the last bytes. `onLeft` follows, at once unless the client is slow, or the response is long and
   * its connection ends (see #lingers). What has to wait is copied, because a frame is a view of shared
   * memory, unless the bytes stay as they are (`stays`).
   */
  end(bytes: Uint8Array, stays = false): void {
    const all = this.#join(bytes);
    // If all of the response is written at once, the socket is empty.
    const lastBytesMax = this.#begun || all.length > WRITE_BYTES_MAX ? LAST_BYTES_MAX : WRITE_BYTES_MAX;
    const lastStart = Math.max(0, all.length - lastBytesMax);
    if (lastStart > 0) this.#write(all.subarray(0, lastStart), stays);
    const last = lastStart === 0 ? all : all.subarray(lastStart);
    // The byte that `#pump` tries may show that a client which was slow still is.
    this.#last = (this.#blocked || this.#wasSlow) && !stays ? last.slice() : last;
    this.#pump();
  }

  /** In place of `end`: closes the connection once the client has what was written. */
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
    if (this.#lingers) {
      this.#sendKept();
      if (idleMs >= (this.#awaitsWritable ? idleMsMax : LINGER_MS)) this.#leave();
    } else if (this.#blocked) {
      this.#probe();
    } else if (this.#owner.isStream && idleMs >= KEEP_ALIVE_MS) {
      this.#send(SSE_KEEP_ALIVE, 0);
    }
    if (this.#hasLeft()) return true;
    // The probe may just have written something.
    if (this.#blocked && nowMs - this.#progressMs >= idleMsMax) return false;
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
    this.#awaitsWritable = false;
    if (this.#lingers) {
      // A third of the kernel's buffer is free, and µWS keeps less than one write.
      this.#sendKept();
      this.#leave();
    }
    if (!this.#blocked) return true;
    this.#blocked = false;
    if (this.#queue.length === 0) {
      this.#sendKept();
      this.#giveBack();
    }
    this.#pump();
    return true;
  }

  /** Has µWS try to send what it keeps. */
  #sendKept(): void {
    this.#res.cork(() => undefined);
  }

  /** Tries whether the socket has taken what µWS keeps. */
  #probe(): void {
    // A comment may stand only between events, so not while pieces are queued or last bytes wait. A
    // non-streamed response has no comments: if nothing of it waits, the next piece is the next try.
    const last = this.#last;
    if (this.#queue.length > 0) {
      this.#sendHead(PROBE_BYTES);
    } else if (last !== undefined && last.length > 0) {
      // They may begin within an event: `end` cuts its bytes anywhere.
      this.#sendByteOf(last);
    } else if (this.#owner.isStream) {
      this.#send(SSE_KEEP_ALIVE, 0);
    } else {
      this.#sendKept();
    }
    this.#pump();
  }

  /** Writes what the socket takes of the queue, and then the end if `end` was called. */
  #pump(): void {
    while (!this.#blocked && this.#queue.length > 0)
      this.#sendHead(this.#wasSlow ? SLOW_WRITE_BYTES_MAX : WRITE_BYTES_MAX);
    let last = this.#last;
    if (this.#blocked || last === undefined || this.#left) return;
    // A write may have found a full socket unseen. A non-streamed response has no comments to try it with, so
    // its last bytes are kept until one of them shows that it takes more.
    if (this.#wasSlow && !this.#owner.isStream && last.length > 1) {
      if (!this.#sendByteOf(last)) return;
      last = last.subarray(1);
    }
    // One system call for both. Not `end(bytes)`, which leaves what the socket does not take to µWS and its
    // timer.
    let taken = true as boolean;
    this.#res.cork(() => {
      this.#begin();
      if (last.length > 0) taken = this.#res.write(last);
      if (!taken || this.#cuts) return;
      if (this.#sentClose) writeLastChunk(this.#res);
      else this.#res.end();
    });
    if (!taken) {
      this.#blocked = this.#wasSlow = this.#awaitsWritable = true;
      this.#last = NOTHING;
    } else if (this.#sentClose && !this.#cuts && (this.#wasSlow || this.#sentBytes > WRITE_BYTES_MAX)) {
      this.#lingers = true;
      this.#last = undefined;
      this.#progressMs = this.#clock.monotonicMs();
    } else {
      this.#leave();
    }
  }

  /** A method, because a write just before may have set it. */
  #hasLeft(): boolean {
    return this.#left;
  }

  #leave(): void {
    this.#lingers = false;
    this.#left = true;
    this.#owner.onLeft();
    if (!this.#sentClose && !this.#cuts) return;
    // Later, because µWS uses the connection after its callback.
    setImmediate(() => {
      if (!this.#gone) this.#res.close();
    });
  }

  /** The connection has ended. A client that was only waited for has its response, and `onLeft` follows. */
  onGone(): void {
    this.#gone = true;
    if (this.#lingers) this.#leave();
  }

  #sendHead(bytesMax: number): void {
    const head = this.#queue[0]!;
    if (head.length > bytesMax) this.#queue[0] = head.subarray(bytesMax);
    else this.#queue.shift();
    const bytes = head.subarray(0, bytesMax);
    this.#send(bytes, bytes.length);
  }

  /**
   * Tries the socket with one byte, because the last bytes may have to do for minutes of sweeps. Returns
   * whether the socket takes more.
   */
  #sendByteOf(last: Uint8Array): boolean {
    this.#last = last.subarray(1);
    this.#send(last.subarray(0, 1), 0);
    return !this.#blocked;
  }

  /** Once the socket has taken them, the worker gets credits for `creditBytes`. */
  #send(bytes: Uint8Array | string, creditBytes: number): void {
    this.#res.cork(() => {
      this.#begin();
      this.#blocked = !this.#res.write(bytes);
    });
    this.#storedBytes += creditBytes;
    this.#sentBytes += bytes.length;
    if (this.#blocked) {
      this.#wasSlow = this.#awaitsWritable = true;
    } else {
      this.#progressMs = this.#clock.monotonicMs();
      this.#giveBack();
    }
  }

  /** Called inside of a cork. */
  #begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    this.#sentClose = this.#owner.endsConnection;
    this.#owner.writeHead(this.#sentClose);
  }

  #giveBack(): void {
    const bytes = this.#storedBytes;
    this.#storedBytes = 0;
    if (bytes > 0) this.#owner.onTaken(bytes);
  }
}

/** Joins frames. The result is valid until the next call. */
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
