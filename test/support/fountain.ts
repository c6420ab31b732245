/**
 * An upstream in the test's own process that streams as fast as it is read and waits as long as it is paused:
 * for tests with hundreds of paused streams, which the mock would cut after 10 s.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Scope } from './mock.js';

const EVENT_TEXT_CHARS = 25_000;
/** What is written at a time. */
const PIECE_BYTES = 32_768;

const chunk = (text: string): string =>
  `data: ${JSON.stringify({
    id: 'c',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'm',
    choices: [{ index: 0, delta: { content: text }, finish_reason: null }],
  })}\n\n`;

/** What a fountain gives. */
export interface Water {
  readonly streamType: string;
  readonly stream: Buffer;
  /** For calls without a stream. */
  readonly whole: string;
}

/** OpenAI's: streams of so many bytes or a little more, without usage, and whole responses. */
export function openaiWater(streamBytes: number, wholeText = 'Hello'): Water {
  const event = chunk('w'.repeat(EVENT_TEXT_CHARS));
  return {
    streamType: 'text/event-stream',
    stream: Buffer.from(`${event.repeat(Math.ceil(streamBytes / event.length))}data: [DONE]\n\n`),
    whole: JSON.stringify({
      id: 'c',
      object: 'chat.completion',
      created: 1,
      model: 'm',
      choices: [{ index: 0, message: { role: 'assistant', content: wholeText }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 },
    }),
  };
}

export interface Fountain {
  readonly origin: string;
  /** Base URL of an upstream of `provider: openai`. */
  readonly url: string;
  /** Streams that have not ended. */
  readonly open: number;
  readonly sentBytes: number;
}

/** `water`: or the bytes of a stream of OpenAI's. */
export async function startFountain(t: Scope, water: Water | number): Promise<Fountain> {
  const { stream, streamType, whole } = typeof water === 'number' ? openaiWater(water) : water;
  const state = { origin: '', url: '', open: 0, sentBytes: 0 };
  const pour = (response: ServerResponse): void => {
    let at = 0;
    state.open += 1;
    response.on('close', () => (state.open -= 1));
    response.writeHead(200, { 'content-type': streamType });
    const write = (): void => {
      while (at < stream.length) {
        const piece = stream.subarray(at, at + PIECE_BYTES);
        at += piece.length;
        state.sentBytes += piece.length;
        if (!response.write(piece)) return;
      }
      response.end();
    };
    response.on('drain', write);
    write();
  };
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      // Some providers say it in the path.
      if (/stream/i.test(request.url ?? '') || Buffer.concat(parts).includes('"stream":true')) pour(response);
      else response.writeHead(200, { 'content-type': 'application/json' }).end(whole);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  state.origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  state.url = `${state.origin}/v1`;
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return state;
}
