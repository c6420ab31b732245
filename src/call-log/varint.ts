/**
 * Writes the variable-length numbers of the call log (varints): 7 bits a byte, low ones first.
 * block-builder.ts calls it; call-block.ts reads them. Pure.
 *
 * Must hold: numbers are read as they were written, up to 2^53 (test/unit/call-log/plain-calls.test.ts).
 */
const TWO_28 = 2 ** 28;

/** Writes at `start` and returns the position after the number. */
export function putNumber(bytes: Uint8Array, start: number, value: number): number {
  let rest = value | 0;
  if (rest !== value || rest < 0) return putOther(bytes, start, value);
  let at = start;
  for (; rest > 0x7f; rest >>= 7) bytes[at++] = (rest & 0x7f) | 0x80;
  bytes[at++] = rest;
  return at;
}

/** Writes a number beyond 31 bits, or the whole part of a fraction. A negative number, a bug, becomes 0. */
function putOther(bytes: Uint8Array, start: number, value: number): number {
  const whole = value > 0 ? Math.min(Math.floor(value), Number.MAX_SAFE_INTEGER) : 0;
  if (whole < TWO_28) return putNumber(bytes, start, whole);
  const high = Math.floor(whole / TWO_28);
  const low = whole - high * TWO_28;
  bytes[start] = (low & 0x7f) | 0x80;
  bytes[start + 1] = ((low >> 7) & 0x7f) | 0x80;
  bytes[start + 2] = ((low >> 14) & 0x7f) | 0x80;
  bytes[start + 3] = (low >> 21) | 0x80;
  return putNumber(bytes, start + 4, high);
}
