/**
 * Writes a response that comes in pieces to a client that may read slower than the pieces come
 * (back-pressure). delivery.ts and replay.ts make a ResponseWriter for each such response; listener thread.
 *
 *     open ⇄ blocked (pieces wait, the worker gets no credit) → ended (the queue is written) → delivered
 *                                                                 └─→ lingering (#isLingering) ──↗
 *
 * _Ended_: `end` or `cut` was called. _Delivered_: the kernel has the response, so `onDelivered` is called.
 * _Gone_: the connection has ended.
 *
 * Facts of µWebSockets.js (µWS) 20.41 that this file relies on, all of them tried:
 *
 * - `write` returns false if the socket takes no more, and µWS keeps the bytes that were not taken. A small
 * write inside of a cork returns true even if the flush after the cork fails: only the next write shows the
 * failure.
 * - While an `onWritable` handler is set, µWS writes what it keeps only with a further write or an empty
 * cork.
 * - `onWritable` is called when a third of the kernel's buffer is free: minutes apart for a slow client,
 * since that buffer grows to megabytes. The kernel takes bytes earlier, so every sweep tries to write to a
 * blocked response.
 * - Once a write has failed, `onWritable` is called again, even if a later write has sent what was kept.
 * - A failed flush sets a timer that cuts the connection after 8 to 12 s; only the next `onWritable` ends it.
 * `pause` and `resume`, one right after the other, restart it, even if nothing failed. (`pause` alone would
 * also stop the notice that the client has gone.) So this file restarts the timer every few seconds, and cuts
 * clients itself.
 * - One cork holds 16 KiB. A write that does not fit into the space left sends what is corked, at least the
 * line with the chunk's size, and then the bytes. If the socket does not take what was corked, µWS keeps it,
 * **loses the bytes** and returns false all the same (`uncork` in AsyncSocket.h;
 * https://github.com/uNetworking/uWebSockets.js/issues/1249), and the client reads the next chunk as the lost
 * one's body. The socket must be full just then: seen once in some 10 GB that pausing clients read on
 * loopback. So no cork here holds more than fits.
 *
 * Must hold: a client that reads at any speed, with pauses of any length, gets every byte once and in order,
 * and the worker gets credits only for bytes that the socket has taken. There is one exception: on a
 * connection that ends, a client that was never slow and then pauses for LINGER_MS may lose the last KiB.
 * Once the connection is gone, no method of the response is called, because µWS has freed it. Further tests:
 * test/unit/request/answer-framing.test.ts, test/e2e/slow-readers.test.ts.
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { Clock } from '../core/clock.js';
import { endsEvent, SSE_KEEP_ALIVE } from '../protocol/sse.js';
import { writeLastChunk } from './response.js';

/** A stream that was silent for this time gets a comment, so that proxies keep it open. */
const KEEP_ALIVE_MS = 15_000;
/**
 * How often the timer of µWS is restarted. µWS cuts after 8 s at the earliest, and a sweep may be late.
 * intake.ts does the same for bodies.
 */
export const UWS_TIMER_RESTART_MS = 4_000;
/**
 * Bytes of one write. The remainder of the cork's 16 KiB is for the chunk's lines and the head: some 500
 * bytes, and 1,330 with CORS and the headers of the messages door.
 */
const WRITE_BYTES_MAX = 14 * 1024;
/** Bytes of one write to a client that has been slow. Few, so that it soon shows what the socket takes. */
const SLOW_WRITE_BYTES_MAX = 8 * 1024;
/** Frames that come at once are joined up to this size; a longer frame is worth a system call of its own. */
const JOINED_BYTES_MAX = 8 * 1024;
/** Bytes that are written along with the end. Few, because µWS alone keeps what the socket does not take. */
const LAST_BYTES_MAX = 1024;
/** Bytes of the queue that try a blocked socket. Few, because µWS keeps them if the socket takes nothing. */
const PROBE_BYTES = 64;
/**
 * How long a connection that ends stays open after a long response, if no write is known to have failed. In
 * that time µWS sends what it may have kept of the last write. Most clients close the connection at once.
 */
const LINGER_MS = 5_000;
const EMPTY = new Uint8Array(0);
/**
 * Where frames are joined, for all responses of the thread: what is joined is written or copied before the
 * next use. A buffer for each response took 1 µs more.
 */
const JOIN_BUFFER = new Uint8Array(2 * JOINED_BYTES_MAX);

export interface ResponseOwner {
  readonly isStream: boolean;
  /** Whether the connection ends with the response. Read once, as the head is written. */
  readonly endsConnection: boolean;
  /** Writes the head, inside the cork of the first write. `sendsClose`: with `connection: close`. */
  writeHead(sendsClose: boolean): void;
  /** The socket has taken `bytes` of the response: the worker may get credits for them. */
  onTaken(bytes: number): void;
  /**
   * The response has ended, and the kernel has it, except what one small write may leave with µWS. Called at
   * most once, and not if the client leaves before.
   */
  onDelivered(): void;
}

export class ResponseWriter {
  readonly #res: HttpResponse;
  readonly #clock: Clock;
  readonly #owner: ResponseOwner;
  /** Pieces that the socket did not take, oldest first. The worker's credits bound their bytes. */
  readonly #queue: Uint8Array[] = [];
  /** Set once the response has ended: the bytes after the queue. */
  #lastBytes: Uint8Array | undefined;
  /** Frames that wait for the next frame, which follows at once, to be written with one system call. */
  #unwritten: Uint8Array[] = [];
  #unwrittenBytes = 0;
  #hasBegun = false;
  #isBlocked = false;
  /** Whether a comment may come now: what was sent does not end within an event. */
  #isBetweenEvents = true;
  /** Whether any write has failed so far. */
  #wasSlow = false;
  /** Whether a write has failed since `onWritable` was last called, so that µWS calls it again. */
  #awaitsWritable = false;
  #isDelivered = false;
  /**
   * Whether all is written, and the connection, which is to end, stays open for what µWS may keep of the last
   * write: until the client closes it, the socket takes bytes again, or `onSweep` finds that it takes too
   * long.
   */
  #isLingering = false;
  /** Bytes that were sent, without the last write. */
  #sentBytes = 0;
  /** Whether the head said `connection: close`. */
  #sentClose = false;
  /** Whether the connection has ended. */
  #isGone = false;
  /** Whether `cut` was called: a cut connection shows the client that the response is not whole. */
  #cutsAtEnd = false;
  /** Written bytes without a credit yet: µWS may keep them, until a later write succeeds. */
  #uncreditedBytes = 0;
  /** When the socket last took something, and when the timer of µWS was last restarted. Monotonic. */
  #progressMs: number;
  #timerRestartedMs: number;

  constructor(res: HttpResponse, clock: Clock, owner: ResponseOwner) {
    this.#res = res;
    this.#clock = clock;
    this.#owner = owner;
    this.#progressMs = this.#timerRestartedMs = clock.monotonicMs();
    res.onWritable(() => this.#onWritable());
  }

  /** Whether the client's socket is full. */
  get isBlocked(): boolean {
    return this.#isBlocked;
  }

  /** Whether all that was written ends with whole events. False if the last bytes are part of an event. */
  get endsEvent(): boolean {
    const last = this.#unwritten.at(-1) ?? this.#queue.at(-1);
    return last === undefined ? this.#isBetweenEvents : endsEvent(last);
  }

  /**
   * Writes a frame: whole events of a stream, or a part of its last ones, which may be long. With `hasNext`
   * another `write`, `flush` or `end` must follow before `bytes` become invalid.
   */
  write(bytes: Uint8Array, hasNext = false): void {
    if (hasNext && !this.#isBlocked && this.#unwrittenBytes + bytes.length <= JOINED_BYTES_MAX) {
      this.#unwritten.push(bytes);
      this.#unwrittenBytes += bytes.length;
    } else {
      this.#write(this.#takeUnwritten(bytes));
    }
  }

  /** Writes the frames that wait for another frame. */
  flush(): void {
    if (this.#unwritten.length > 0) this.#write(this.#takeUnwritten(EMPTY));
  }

  /** Returns the frames that wait, joined with `bytes`. The result is valid until frames are joined again. */
  #takeUnwritten(bytes: Uint8Array): Uint8Array {
    if (this.#unwritten.length === 0) return bytes;
    const joined =
      bytes.length === 0 && this.#unwritten.length === 1
        ? this.#unwritten[0]!
        : joinFrames(this.#unwritten, this.#unwrittenBytes, bytes);
    this.#unwritten = [];
    this.#unwrittenBytes = 0;
    return joined;
  }

  /** Sends the bytes, or queues what the socket does not take: a copy of it, unless the bytes are stable. */
  #write(bytes: Uint8Array, isStable = false): void {
    let start = 0;
    while (!this.#isBlocked && start < bytes.length) {
      const end = Math.min(bytes.length, start + WRITE_BYTES_MAX);
      this.#send(start === 0 && end === bytes.length ? bytes : bytes.subarray(start, end), end - start);
      start = end;
    }
    if (start < bytes.length) this.#queue.push(isStable ? bytes.subarray(start) : bytes.slice(start));
  }

  /**
   * Writes the last bytes. `onDelivered` follows, at once unless the client is slow, or the response is long
   * and its connection ends (#isLingering). `isStable`: the bytes never change, so those that have to wait
   * are not copied. A frame is not stable: it is a view of shared memory, which the worker overwrites.
   */
  end(bytes: Uint8Array, isStable = false): void {
    const allBytes = this.#takeUnwritten(bytes);
    // If all of the response is written at once, the socket is empty.
    const lastBytesMax =
      this.#hasBegun || allBytes.length > WRITE_BYTES_MAX ? LAST_BYTES_MAX : WRITE_BYTES_MAX;
    const lastStart = Math.max(0, allBytes.length - lastBytesMax);
    if (lastStart > 0) this.#write(allBytes.subarray(0, lastStart), isStable);
    const lastPiece = lastStart === 0 ? allBytes : allBytes.subarray(lastStart);
    // If the client was slow, `#pump` may have to keep these bytes for a later turn.
    this.#lastBytes = (this.#isBlocked || this.#wasSlow) && !isStable ? lastPiece.slice() : lastPiece;
    this.#pump();
  }

  /** In place of `end`: closes the connection once the client has what was written. */
  cut(): void {
    this.#cutsAtEnd = true;
    this.end(EMPTY);
  }

  /**
   * Called about once a second: tries a blocked socket again, and sends a keep-alive comment to a silent
   * stream. Returns false if the client has taken nothing for `idleMsMax`: then the owner cuts it.
   */
  onSweep(nowMs: number, idleMsMax: number): boolean {
    const idleMs = nowMs - this.#progressMs;
    if (this.#isLingering) {
      this.#retryKept();
      if (idleMs >= (this.#awaitsWritable ? idleMsMax : LINGER_MS)) this.#onDelivered();
    } else if (this.#isBlocked) {
      this.#probe();
    } else if (this.#owner.isStream && this.#isBetweenEvents && idleMs >= KEEP_ALIVE_MS) {
      this.#send(SSE_KEEP_ALIVE, 0);
    }
    if (this.#isDelivered) return true;
    // The probe may just have written something.
    if (this.#isBlocked && nowMs - this.#progressMs >= idleMsMax) return false;
    if (nowMs - this.#timerRestartedMs >= UWS_TIMER_RESTART_MS) {
      this.#timerRestartedMs = nowMs;
      this.#res.pause();
      this.#res.resume();
    }
    return true;
  }

  /** The socket takes bytes again. */
  #onWritable(): boolean {
    this.#progressMs = this.#clock.monotonicMs();
    this.#awaitsWritable = false;
    if (this.#isLingering) {
      // A third of the kernel's buffer is free, and µWS keeps less than one write.
      this.#retryKept();
      this.#onDelivered();
    }
    if (!this.#isBlocked) return true;
    this.#isBlocked = false;
    if (this.#queue.length === 0) {
      this.#retryKept();
      this.#creditTaken();
    }
    this.#pump();
    return true;
  }

  /** Makes µWS try to send what it keeps. */
  #retryKept(): void {
    this.#res.cork(() => undefined);
  }

  /** Tests by a small write whether the blocked socket takes bytes again. */
  #probe(): void {
    // A comment may come only between events, so not while pieces are queued or last bytes wait. If no bytes
    // wait within an event, or in a response that is no stream, the next piece is the next try.
    const lastBytes = this.#lastBytes;
    if (this.#queue.length > 0) {
      this.#sendQueued(PROBE_BYTES);
    } else if (lastBytes !== undefined && lastBytes.length > 0) {
      // No comment, because the last bytes may begin within an event: `end` cuts its bytes anywhere.
      this.#sendByteOf(lastBytes);
    } else if (this.#owner.isStream && this.#isBetweenEvents) {
      this.#send(SSE_KEEP_ALIVE, 0);
    } else {
      this.#retryKept();
    }
    this.#pump();
  }

  /** Writes what the socket takes of the queue, and then the end if `end` was called. */
  #pump(): void {
    while (!this.#isBlocked && this.#queue.length > 0)
      this.#sendQueued(this.#wasSlow ? SLOW_WRITE_BYTES_MAX : WRITE_BYTES_MAX);
    let lastBytes = this.#lastBytes;
    if (this.#isBlocked || lastBytes === undefined || this.#isDelivered) return;
    // The last write may have filled the socket without showing it. A non-streamed response has no comments
    // to try the socket with. So its last bytes are kept until one of them shows that the socket takes more.
    if (this.#wasSlow && !this.#owner.isStream && lastBytes.length > 1) {
      if (!this.#sendByteOf(lastBytes)) return;
      lastBytes = lastBytes.subarray(1);
    }
    // One system call for the last bytes and the end. `end(bytes)` would leave what the socket does not take
    // to µWS and its timer. The cast, because the compiler does not see that the callback runs within `cork`.
    let isTaken = true as boolean;
    this.#res.cork(() => {
      this.#begin();
      if (lastBytes.length > 0) isTaken = this.#res.write(lastBytes);
      if (!isTaken || this.#cutsAtEnd) return;
      if (this.#sentClose) writeLastChunk(this.#res);
      else this.#res.end();
    });
    if (!isTaken) {
      this.#isBlocked = this.#wasSlow = this.#awaitsWritable = true;
      this.#lastBytes = EMPTY;
    } else if (this.#sentClose && !this.#cutsAtEnd && (this.#wasSlow || this.#sentBytes > WRITE_BYTES_MAX)) {
      this.#isLingering = true;
      this.#lastBytes = undefined;
      this.#progressMs = this.#clock.monotonicMs();
    } else {
      this.#onDelivered();
    }
  }

  /** The response is delivered. Ends the connection, if the head said so. */
  #onDelivered(): void {
    this.#isLingering = false;
    this.#isDelivered = true;
    this.#owner.onDelivered();
    if (!this.#sentClose && !this.#cutsAtEnd) return;
    // Later, because µWS uses the connection after its callback.
    setImmediate(() => {
      if (!this.#isGone) this.#res.close();
    });
  }

  /** The connection has ended. If the writer only lingered, the client has all: `onDelivered` follows. */
  onGone(): void {
    this.#isGone = true;
    if (this.#isLingering) this.#onDelivered();
  }

  /** Sends at most `bytesMax` of the queue's first piece. The queue must not be empty. */
  #sendQueued(bytesMax: number): void {
    const firstPiece = this.#queue[0]!;
    if (firstPiece.length > bytesMax) this.#queue[0] = firstPiece.subarray(bytesMax);
    else this.#queue.shift();
    const bytes = firstPiece.subarray(0, bytesMax);
    this.#send(bytes, bytes.length);
  }

  /**
   * Tries the socket with one byte: each sweep may need another byte for its try, for minutes. Returns
   * whether the socket takes more.
   */
  #sendByteOf(lastBytes: Uint8Array): boolean {
    this.#lastBytes = lastBytes.subarray(1);
    this.#send(lastBytes.subarray(0, 1), 0);
    return !this.#isBlocked;
  }

  /** Writes. The worker gets credits for `creditBytes` once the socket has taken `bytes`; 0 for a comment. */
  #send(bytes: Uint8Array | string, creditBytes: number): void {
    this.#res.cork(() => {
      this.#begin();
      this.#isBlocked = !this.#res.write(bytes);
    });
    this.#isBetweenEvents = typeof bytes === 'string' || endsEvent(bytes);
    this.#uncreditedBytes += creditBytes;
    this.#sentBytes += bytes.length;
    if (this.#isBlocked) {
      this.#wasSlow = this.#awaitsWritable = true;
    } else {
      this.#progressMs = this.#clock.monotonicMs();
      this.#creditTaken();
    }
  }

  /** Writes the head before the first bytes. Called inside of a cork. */
  #begin(): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    this.#sentClose = this.#owner.endsConnection;
    this.#owner.writeHead(this.#sentClose);
  }

  #creditTaken(): void {
    const bytes = this.#uncreditedBytes;
    this.#uncreditedBytes = 0;
    if (bytes > 0) this.#owner.onTaken(bytes);
  }
}

/** Joins frames. The result is valid until frames are joined again. */
function joinFrames(frames: readonly Uint8Array[], framesBytes: number, last: Uint8Array): Uint8Array {
  if (framesBytes + last.length > JOIN_BUFFER.length) return Buffer.concat([...frames, last]);
  let offset = 0;
  for (const frame of frames) {
    JOIN_BUFFER.set(frame, offset);
    offset += frame.length;
  }
  JOIN_BUFFER.set(last, offset);
  return JOIN_BUFFER.subarray(0, offset + last.length);
}
