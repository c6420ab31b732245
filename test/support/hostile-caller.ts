/**
 * Callers of a chat call over bare sockets who read, read slowly, stop reading, leave at a byte, close their half, or repeat the call.
 */
import { connect } from 'node:net';
import { WORD, type Script } from './billed-upstream.js';
import { TEST_MODEL } from './gateway.js';
import { oneOf, type Random } from './random.js';

export const CALLER_KINDS = [
  'reads',
  'slow',
  'stalls',
  'never reads',
  'leaves',
  'half-closes',
  'repeats',
] as const;

export interface Caller {
  readonly kind: (typeof CALLER_KINDS)[number];
  /** It does not wait for the end. */
  readonly leaves: boolean;
  readonly stream: boolean;
  /** Of the answer with its head, after which it does what it does. */
  readonly atBytes: number;
  readonly stallMs: number;
  /** Idempotency-Key. */
  readonly key: string | undefined;
}

export interface Received {
  readonly words: number;
  /** The last event is an error, or the answer is one. */
  readonly hasError: boolean;
  /** The answer came to its end. */
  readonly isWhole: boolean;
}

/** A caller gives up so long after its last byte. */
const PATIENCE_MS = 15_000;
const SLOW_READ_MS = 4;

export function drawCaller(random: Random, script: Script): Caller {
  const kind = oneOf(random, CALLER_KINDS);
  const answerBytes = 600 + script.events * (200 + script.padding + WORD.length * script.wordsPerEvent);
  return {
    kind,
    leaves: kind === 'leaves' || kind === 'half-closes' || kind === 'never reads',
    stream: random() < 0.85,
    atBytes: Math.floor(random() * answerBytes),
    stallMs: 200 + Math.floor(random() * 1_400),
    key: kind === 'repeats' || random() < 0.1 ? `key-${Math.floor(random() * 1e9)}` : undefined,
  };
}

/** Makes the call; a caller who repeats makes it again, and what it gets then counts as received only if the first got less. */
export async function callAs(caller: Caller, port: number, key: string, prompt: string): Promise<Received> {
  const first = await once(caller, port, key, prompt);
  if (caller.kind !== 'repeats' || !first.isWhole || first.hasError) return first;
  const again = await once(caller, port, key, prompt);
  // Of an answer that was too long to be kept a repeat is refused.
  if (again.words !== first.words && !again.hasError)
    throw new Error(`the repeat got ${again.words} words, not ${first.words}`);
  return first;
}

function once(caller: Caller, port: number, key: string, prompt: string): Promise<Received> {
  const body = JSON.stringify({
    model: TEST_MODEL,
    messages: [{ role: 'user', content: prompt }],
    stream: caller.stream,
  });
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let bytes = 0;
    let didIt = false;
    const socket = connect({ host: '127.0.0.1', port });
    const timer = setTimeout(() => socket.destroy(), PATIENCE_MS);
    const actAt = (): void => {
      if (didIt || bytes < caller.atBytes) return;
      didIt = true;
      if (caller.kind === 'leaves') socket.destroy();
      else if (caller.kind === 'half-closes') socket.end();
      else if (caller.kind === 'stalls') {
        socket.pause();
        setTimeout(() => socket.resume(), caller.stallMs);
      } else if (caller.kind === 'never reads') socket.pause();
    };
    socket.on('data', (part) => {
      parts.push(part);
      bytes += part.length;
      timer.refresh();
      actAt();
      if (isOver(part, parts)) {
        socket.destroy();
      } else if (caller.kind === 'slow') {
        socket.pause();
        setTimeout(() => socket.resume(), SLOW_READ_MS);
      }
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      clearTimeout(timer);
      resolve(receivedOf(Buffer.concat(parts)));
    });
    const keyed = caller.key === undefined ? '' : `idempotency-key: ${caller.key}\r\n`;
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${key}\r\n${keyed}` +
        `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
    // From its first byte on it reads nothing, and leaves only when it is cut: a paused socket does not hear of that.
    if (caller.kind === 'never reads') setTimeout(() => socket.destroy(), 2_200);
  });
}

const CHUNKED = 'transfer-encoding: chunked';
const HEAD_END = '\r\n\r\n';

/** The last piece ends the answer. */
function isOver(last: Buffer, parts: readonly Buffer[]): boolean {
  const end = last.subarray(-7).toString('latin1');
  if (end.endsWith('0\r\n\r\n')) return true;
  if (parts.length > 4) return false;
  const text = Buffer.concat(parts).toString('latin1');
  const headEnd = text.indexOf(HEAD_END);
  const length = /content-length: (\d+)/i.exec(text.slice(0, headEnd))?.[1];
  return headEnd > 0 && length !== undefined && text.length >= headEnd + 4 + Number(length);
}

function receivedOf(bytes: Buffer): Received {
  const text = bytes.toString('latin1');
  const headEnd = text.indexOf(HEAD_END);
  const head = text.slice(0, Math.max(0, headEnd)).toLowerCase();
  const rest = headEnd < 0 ? '' : text.slice(headEnd + HEAD_END.length);
  const body = head.includes(CHUNKED) ? dechunked(rest) : rest;
  return {
    words: body.split(WORD).length - 1,
    hasError: body.includes('"error":{'),
    isWhole: head.includes(CHUNKED) ? rest.endsWith('0\r\n\r\n') : headEnd > 0,
  };
}

/** As far as it has come. */
function dechunked(text: string): string {
  const pieces: string[] = [];
  for (let at = 0; ;) {
    const lineEnd = text.indexOf('\r\n', at);
    const size = lineEnd < 0 ? Number.NaN : Number.parseInt(text.slice(at, lineEnd), 16);
    if (Number.isNaN(size) || size === 0) return pieces.join('');
    pieces.push(text.slice(lineEnd + 2, lineEnd + 2 + size));
    at = lineEnd + 2 + size + 2;
  }
}
