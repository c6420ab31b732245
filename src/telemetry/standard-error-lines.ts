/**
 * Lines of calls on standard error, between those of events. Main thread of a gateway process.
 */
import { isPretty, lineFormat } from './log.js';
import { standardError, WHOLE_BYTES_MAX } from './standard-error.js';

const NEWLINE = 0x0a;

export class StandardErrorLines {
  readonly #format = isPretty() ? lineFormat() : undefined;

  /** Writes as many lines at once as are written whole, so that those of other threads come between and not within; a copy, which may wait. */
  appendBytes(lines: Buffer): void {
    const format = this.#format;
    const bytes = format === undefined ? Buffer.from(lines) : formatted(lines, format);
    for (let start = 0; start < bytes.length;) {
      const last = bytes.subarray(0, start + WHOLE_BYTES_MAX).lastIndexOf(NEWLINE);
      // One that is longer goes by itself.
      const end = (last >= start ? last : bytes.indexOf(NEWLINE, start)) + 1;
      const piece = bytes.subarray(start, end);
      standardError().write(piece, linesIn(piece));
      start = end;
    }
  }

  close(): void {
    standardError().flush();
  }
}

function formatted(lines: Buffer, format: (line: string) => string): Buffer {
  const texts = lines.toString('latin1').split('\n').slice(0, -1);
  return Buffer.from(texts.map((line) => format(`${line}\n`)).join(''));
}

function linesIn(bytes: Buffer): number {
  let lines = 0;
  for (let at = bytes.indexOf(NEWLINE); at !== -1; at = bytes.indexOf(NEWLINE, at + 1)) lines += 1;
  return lines;
}
