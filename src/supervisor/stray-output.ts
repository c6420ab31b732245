/**
 * What a gateway writes to standard error beside its log: native libraries (LMDB's `Write error`), V8's and Node's last words.
 * Each burst becomes one entry of the log, so that every line of the log stays JSON. Supervisor process.
 */
import type { Readable } from 'node:stream';
import type { Log } from '../telemetry/log.js';

/** A stack trace comes in several writes; what follows within this time is the same burst. */
const BURST_MS = 100;
/** Of a burst: a stack trace has some 2 KB. */
const TEXT_CHARS_MAX = 8 * 1024;
/** LMDB writes a line for every failed commit: of a burst a second, as many are told as a reader wants. */
const PAUSE_MS = 1_000;

/** Logs what `stream` brings until it ends. Holds at most one burst. */
export function logStrayOutput(stream: Readable, pid: number, log: Log): void {
  let text = '';
  let dropped = 0;
  let timer: NodeJS.Timeout | undefined;
  let toldAtMs = -Infinity;
  const tell = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (text === '') return;
    toldAtMs = performance.now();
    const cut = dropped === 0 ? {} : { droppedChars: dropped };
    log.warn('a gateway wrote to standard error', { gateway: pid, text: text.trimEnd(), ...cut });
    text = '';
    dropped = 0;
  };
  stream.setEncoding('utf8');
  stream.on('data', (piece: string) => {
    const kept = piece.slice(0, TEXT_CHARS_MAX - text.length);
    text += kept;
    dropped += piece.length - kept.length;
    timer ??= setTimeout(tell, Math.max(BURST_MS, toldAtMs + PAUSE_MS - performance.now()));
  });
  stream.once('end', tell);
  // The pipe of a process that was killed: its exit is told by itself.
  stream.on('error', tell);
}
