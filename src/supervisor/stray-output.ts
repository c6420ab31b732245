/**
 * Logs what a gateway writes to standard error. gateway-process.ts calls it for each process, in the
 * supervisor process.
 *
 * Must hold: every line of the log stays JSON, and the log stays bounded, however much is written: one entry
 * a PAUSE_MS at most, of at most BURST_CHARS_MAX characters. What is left out is counted.
 */
import type { Readable } from 'node:stream';
import type { Log } from '../telemetry/log.js';

/** A stack trace arrives in several writes. Text within this time of the first gets into the same entry. */
const BURST_MS = 100;
/** Characters that an entry has at most. A stack trace has some 2 KB. */
const BURST_CHARS_MAX = 8 * 1024;
/** The least time from one entry to the next: LMDB writes a line for every failed commit. */
const PAUSE_MS = 1_000;

/**
 * Logs the stream until it ends: messages of native libraries (LMDB's `Write error`), last messages of V8 and
 * Node. What is written between two entries becomes one entry, and is all that is kept in memory.
 */
export function logStrayOutput(stream: Readable, pid: number, log: Log): void {
  let burst = '';
  let droppedChars = 0;
  let timer: NodeJS.Timeout | undefined;
  let loggedAtMs = -Infinity;
  const flush = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (burst === '') return;
    loggedAtMs = performance.now();
    const dropped = droppedChars === 0 ? {} : { droppedChars };
    log.warn('a gateway wrote to standard error', { gateway: pid, text: burst.trimEnd(), ...dropped });
    burst = '';
    droppedChars = 0;
  };
  stream.setEncoding('utf8');
  stream.on('data', (text: string) => {
    const keptText = text.slice(0, BURST_CHARS_MAX - burst.length);
    burst += keptText;
    droppedChars += text.length - keptText.length;
    timer ??= setTimeout(flush, Math.max(BURST_MS, loggedAtMs + PAUSE_MS - performance.now()));
  });
  stream.once('end', flush);
  // A killed process breaks its pipe. GatewayProcess reports the exit.
  stream.on('error', flush);
}
