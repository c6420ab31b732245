/**
 * Callers of chat calls over bare sockets who read, read slowly, stop reading, leave at a byte, close their
 * half, or repeat a call; and who keep their connection for the next one.
 */
import { connect, type Socket } from 'node:net';
import { WORD, type Script } from './billed-upstream.js';
import { TEST_MODEL } from './gateway.js';
import { pick, type Random } from './random.js';

const STAYING_KINDS = ['reads', 'slow', 'stalls', 'repeats'] as const;
/**
 * The last two leave before a byte of the response can have come: within the request, and right behind it.
 */
const LEAVING_KINDS = ['never reads', 'leaves', 'half-closes', 'leaves within', 'leaves behind'] as const;

export interface Caller {
  readonly kind: (typeof STAYING_KINDS)[number] | (typeof LEAVING_KINDS)[number];
  /** It does not wait for the end. */
  readonly leaves: boolean;
  readonly stream: boolean;
  /** Of the response with its head, or of the request, after which it does what it does. */
  readonly atBytes: number;
  readonly stallMs: number;
  /** Idempotency-Key. */
  readonly key: string | undefined;
}

export interface Received {
  readonly words: number;
  /** The last event is an error, or the response is one. */
  readonly hasError: boolean;
  /** The response came to its end. */
  readonly isWhole: boolean;
  /** It is a whole response, or a stream with `[DONE]`. */
  readonly isGood: boolean;
}

/** A caller gives up so long after its last byte. */
const PATIENCE_MS = 15_000;
const SLOW_READ_MS = 4;

/** `staysOn`: it makes another call on its connection, so it waits for this one's end. */
export function drawCaller(random: Random, script: Script, staysOn = false): Caller {
  const kind = pick(random, staysOn ? STAYING_KINDS : [...STAYING_KINDS, ...LEAVING_KINDS]);
  const answerBytes = 600 + script.events * (200 + script.padding + WORD.length * script.wordsPerEvent);
  return {
    kind,
    leaves: !(STAYING_KINDS as readonly string[]).includes(kind),
    stream: random() < 0.85,
    atBytes: Math.floor(random() * (kind === 'leaves within' ? 400 : answerBytes)),
    stallMs: 200 + Math.floor(random() * 1_400),
    key: kind === 'repeats' || random() < 0.1 ? `key-${Math.floor(random() * 1e9)}` : undefined,
  };
}

/** One connection of a caller at a time; a new one where the last was closed. */
export class HostileConnection {
  readonly #port: number;
  #socket: Socket | undefined;
  /** Calls that were made on a connection that had served another. */
  kept = 0;

  constructor(port: number) {
    this.#port = port;
  }

  close(): void {
    this.#socket?.destroy();
  }

  /**
   * Makes the call; a caller who repeats makes it again, and what it gets then counts as received only if the
   * first got less.
   */
  async call(caller: Caller, key: string, prompt: string, choices: number): Promise<Received> {
    const first = await this.#once(caller, key, prompt, choices);
    if (caller.kind !== 'repeats' || !first.isWhole || first.hasError) return first;
    const again = await this.#once(caller, key, prompt, choices);
    // Of a response that was too long to be kept a repeat is refused.
    if (again.words !== first.words && !again.hasError)
      throw new Error(`the repeat got ${again.words} words, not ${first.words}`);
    return first;
  }

  #once(caller: Caller, key: string, prompt: string, choices: number): Promise<Received> {
    const request = requestOf(caller, key, prompt, choices);
    const isKept = this.#socket?.writable === true && !this.#socket.destroyed;
    if (isKept) this.kept++;
    const socket = isKept ? this.#socket! : connect({ host: '127.0.0.1', port: this.#port });
    this.#socket = socket;
    socket.removeAllListeners('data').removeAllListeners('error').removeAllListeners('close');
    return new Promise((resolve) => {
      const parts: Buffer[] = [];
      let bytes = 0;
      let didIt = false;
      const end = (): void => {
        clearTimeout(timer);
        socket.removeAllListeners('data').removeAllListeners('close').resume();
        resolve(receivedOf(Buffer.concat(parts)));
      };
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
        if (isOver(parts)) {
          if (caller.leaves) socket.destroy();
          end();
        } else if (caller.kind === 'slow') {
          socket.pause();
          setTimeout(() => socket.resume(), SLOW_READ_MS);
        }
      });
      socket.on('error', () => undefined);
      socket.on('close', end);
      if (caller.kind === 'leaves within')
        socket.write(request.slice(0, caller.atBytes), () => socket.destroy());
      else if (caller.kind === 'leaves behind') socket.write(request, () => socket.destroy());
      else socket.write(request);
      // From its first byte on it reads nothing, and leaves only when it is cut: a paused socket does not
      // hear of that.
      if (caller.kind === 'never reads') setTimeout(() => socket.destroy(), 2_200);
    });
  }
}

function requestOf(caller: Caller, key: string, prompt: string, choices: number): string {
  const body = JSON.stringify({
    model: TEST_MODEL,
    messages: [{ role: 'user', content: prompt }],
    stream: caller.stream,
    ...(choices > 1 && { n: choices }),
  });
  const keyed = caller.key === undefined ? '' : `idempotency-key: ${caller.key}\r\n`;
  return (
    `POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${key}\r\n${keyed}` +
    `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  );
}

const CHUNKED = 'transfer-encoding: chunked';
const HEAD_END = '\r\n\r\n';

/** Bytes of the last chunk and what may stand before it. */
const TAIL_BYTES = 7;

/** The last piece ends the response. */
function isOver(parts: readonly Buffer[]): boolean {
  let tail = parts.at(-1)!.subarray(-TAIL_BYTES);
  for (let at = parts.length - 2; at >= 0 && tail.length < TAIL_BYTES; at--)
    tail = Buffer.concat([parts[at]!, tail]).subarray(-TAIL_BYTES);
  if (tail.toString('latin1').endsWith('\r\n0\r\n\r\n')) return true;
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
  const length = /content-length: (\d+)/.exec(head)?.[1];
  const isStream = head.includes('text/event-stream');
  const isWhole = head.includes(CHUNKED)
    ? rest.endsWith('0\r\n\r\n')
    : headEnd > 0 && (length === undefined || rest.length >= Number(length));
  const hasError = body.includes('"error":{');
  return {
    words: body.split(WORD).length - 1,
    hasError,
    isWhole,
    isGood: !hasError && (isStream ? body.endsWith('data: [DONE]\n\n') : isWhole),
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
