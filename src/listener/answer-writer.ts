/**
 * Writes an answer that comes in pieces to a socket that may be slower than they come. Listener thread.
 *
 *     open ⇄ blocked (pieces queue, no credit goes back) → ended (the rest is leaving) → left
 *
 * Facts of µWS 20.41 that this file is built around, all of them tried:
 *
 * - `write` is false where the socket takes no more; what it did not take, µWS keeps. A small write inside of a cork is
 *   true even if the flush after it fails, so only the next write tells.
 * - What µWS keeps leaves along with a further write or an empty cork, not by itself while a handler for "writable" is set.
 * - "Writable" comes when a third of the kernel's buffer is free: minutes apart for a slow reader, since that buffer grows
 *   to megabytes. The kernel takes bytes earlier than that, so a blocked answer is tried at every sweep.
 * - A failed flush sets a timer that cuts the connection after 8 to 12 s; only the next "writable" ends it. `pause` and
 *   `resume`, one right after the other, start it anew, also where nothing failed. (`pause` alone would also stop the
 *   notice that the client has gone.) So a long answer is touched every few seconds, and who cuts a reader is this file.
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { Clock } from '../core/clock.js';
import { SSE_KEEP_ALIVE } from '../protocol/sse.js';

/** Below the 8 s after which µWS cuts at the earliest, with room for a late sweep. */
const TOUCH_MS = 4_000;
/** Written at once to a reader that has been slow: what µWS keeps stays small, so that progress is seen soon. */
const SLOW_WRITE_BYTES_MAX = 16 * 1024;
/** Tries whether a blocked socket takes bytes; µWS keeps it where not, so it is small. */
const PROBE_BYTES = 64;

export interface AnswerOwner {
  readonly isStream: boolean;
  /** Status and headers, inside the cork of the first write. */
  writeHead(): void;
  /** So many bytes of the answer have left: credits go back for them. */
  onTaken(bytes: number): void;
  /** The answer has been ended, all of it taken by the kernel but for what one small write may leave with µWS. */
  onLeft(): void;
}

export class AnswerWriter {
  readonly #res: HttpResponse;
  readonly #clock: Clock;
  readonly #owner: AnswerOwner;
  /** What the socket had no room for, oldest first: one window at most, which the credits bound. */
  readonly #queue: Uint8Array[] = [];
  #begun = false;
  #blocked = false;
  #wasSlow = false;
  #ended = false;
  #left = false;
  /** Bytes that µWS keeps because the socket was full: they have left when a later write succeeds. */
  #keptBytes = 0;
  /** When the socket last took something. */
  #progressMs: number;
  #touchedMs: number;

  constructor(res: HttpResponse, clock: Clock, owner: AnswerOwner) {
    this.#res = res;
    this.#clock = clock;
    this.#owner = owner;
    this.#progressMs = this.#touchedMs = clock.monotonicMs();
    res.onWritable(() => this.#onWritable());
  }

  /** One frame of the answer; for a stream it holds whole events. */
  write(bytes: Uint8Array): void {
    // A frame is a view of all that came with it, for other calls too: one that stays longer must not hold on to them.
    if (this.#blocked) this.#queue.push(bytes.slice());
    else this.#send(bytes, bytes.length);
  }

  /** The last bytes; `onLeft` follows, at once if the client is not slow, unless the client goes first. */
  end(bytes: Uint8Array): void {
    this.#ended = true;
    if (this.#blocked) {
      if (bytes.length > 0) this.#queue.push(bytes.slice());
      return;
    }
    // One system call for both. Not `end(bytes)`: that would leave what the socket does not take to µWS and its timer.
    let taken = true as boolean;
    this.#res.cork(() => {
      if (bytes.length > 0) taken = this.#res.write(bytes);
      if (taken) this.#res.end();
    });
    this.#blocked = this.#wasSlow = !taken;
    if (!this.#blocked) this.#leave();
  }

  /**
   * Called about once a second: tries a blocked socket again, gives a sign of life after `keepAliveMs` of silence. False
   * where the client has taken nothing for `idleMsMax`: cut it.
   */
  onSweep(nowMs: number, keepAliveMs: number, idleMsMax: number): boolean {
    const idleMs = nowMs - this.#progressMs;
    if (this.#blocked) this.#probe();
    else if (this.#owner.isStream && idleMs >= keepAliveMs) this.#send(SSE_KEEP_ALIVE, 0);
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
    // A comment is in place where no queued piece of an event must come before it. A whole answer knows none: with
    // nothing queued more of it is on its way, and that is the next try.
    if (this.#queue.length > 0) this.#sendHead(PROBE_BYTES);
    else if (this.#owner.isStream) this.#send(SSE_KEEP_ALIVE, 0);
    else this.#res.cork(() => undefined);
    this.#pump();
  }

  /** Writes the queue as far as the socket takes it, and then the end if it is there. */
  #pump(): void {
    while (!this.#blocked && this.#queue.length > 0)
      this.#sendHead(this.#wasSlow ? SLOW_WRITE_BYTES_MAX : Infinity);
    if (this.#blocked || !this.#ended || this.#left) return;
    this.#res.cork(() => this.#res.end());
    this.#leave();
  }

  /** Read anew after a write, with which the answer may have left. */
  #hasLeft(): boolean {
    return this.#left;
  }

  #leave(): void {
    this.#left = true;
    this.#owner.onLeft();
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
      if (!this.#begun) {
        this.#begun = true;
        this.#owner.writeHead();
      }
      this.#blocked = !this.#res.write(bytes);
    });
    this.#keptBytes += creditBytes;
    if (this.#blocked) {
      this.#wasSlow = true;
    } else {
      this.#progressMs = this.#clock.monotonicMs();
      this.#giveBack();
    }
  }

  #giveBack(): void {
    const bytes = this.#keptBytes;
    this.#keptBytes = 0;
    if (bytes > 0) this.#owner.onTaken(bytes);
  }
}
