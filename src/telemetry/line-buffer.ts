/**
 * Bytes of log lines and of spans, put together piece by piece: a piece that is the same in many lines is copied, never encoded again. Any
 * thread; ASCII alone.
 *
 * Half of the time of the same lines as strings: V8 makes a chain of a string that is put together of parts, and to flatten it takes
 * longer than to make it (measured, 420 characters of 17 parts).
 */

/** Grows for a batch that is longer; see `take`. */
const FIRST_BYTES = 64 * 1024;
const DIGIT_ZERO = 48;

export class LineBuffer {
  #bytes = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  bytes(piece: Uint8Array): void {
    this.#budget(piece.length);
    this.#bytes.set(piece, this.#length);
    this.#length += piece.length;
  }

  /** For short text; characters beyond ASCII are not to be in it. */
  ascii(text: string): void {
    this.#budget(text.length);
    const bytes = this.#bytes;
    const start = this.#length;
    for (let at = 0; at < text.length; at += 1) bytes[start + at] = text.charCodeAt(at);
    this.#length = start + text.length;
  }

  /** A number as JSON has it; fast where it is a whole one below 2^31, by arithmetic of 32-bit integers. */
  number(value: number): void {
    const whole = value | 0;
    if (whole !== value || whole < 0) {
      this.ascii(String(value));
      return;
    }
    let digits = 1;
    for (let rest = whole; rest >= 10; rest = (rest / 10) | 0) digits += 1;
    this.#budget(digits);
    const bytes = this.#bytes;
    const start = this.#length;
    for (let at = start + digits - 1, rest = whole; at >= start; at -= 1, rest = (rest / 10) | 0)
      bytes[at] = DIGIT_ZERO + (rest % 10);
    this.#length = start + digits;
  }

  /** A whole number from 0 below 10^`digits`, with zeros before it; `digits` is 9 at most. */
  padded(value: number, digits: number): void {
    this.#budget(digits);
    const bytes = this.#bytes;
    const start = this.#length;
    for (let at = start + digits - 1, rest = value | 0; at >= start; at -= 1, rest = (rest / 10) | 0)
      bytes[at] = DIGIT_ZERO + (rest % 10);
    this.#length = start + digits;
  }

  /** Shows all that was put in, which is only readable until `visit` returns, and is empty then; not at all where nothing was. */
  drain(visit: (bytes: Buffer) => void): void {
    if (this.#length === 0) return;
    const bytes = this.#bytes.subarray(0, this.#length);
    this.#length = 0;
    visit(bytes);
  }

  #budget(bytes: number): void {
    const wanted = this.#length + bytes;
    if (wanted <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(wanted, this.#bytes.length * 2));
    larger.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = larger;
  }
}
