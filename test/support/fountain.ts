/**
 * An upstream in the test's own process that streams as fast as it is read and waits as long as it is paused:
 * for tests with hundreds of paused streams, which the mock would cut after 10 s.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Scope } from './mock.js';

const EVENT_TEXT_CHARS = 25_000;

const chunk = (text: string): Buffer =>
  Buffer.from(
    `data: ${JSON.stringify({
      id: 'c',
      object: 'chat.completion.chunk',
      created: 1,
      model: 'm',
      choices: [{ index: 0, delta: { content: text }, finish_reason: null }],
    })}\n\n`,
  );

const EVENT = chunk('w'.repeat(EVENT_TEXT_CHARS));
const WHOLE = JSON.stringify({
  id: 'c',
  object: 'chat.completion',
  created: 1,
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 },
});

export interface Fountain {
  readonly url: string;
  /** Streams that have not ended. */
  readonly open: number;
  readonly sentBytes: number;
}

/** Streams have `streamBytes` and no usage; calls without `stream` get a small answer at once. */
export async function startFountain(t: Scope, streamBytes: number): Promise<Fountain> {
  const state = { url: '', open: 0, sentBytes: 0 };
  const pour = (response: ServerResponse): void => {
    let leftBytes = streamBytes;
    state.open += 1;
    response.on('close', () => (state.open -= 1));
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const write = (): void => {
      while (leftBytes > 0) {
        leftBytes -= EVENT.length;
        state.sentBytes += EVENT.length;
        if (!response.write(EVENT)) return;
      }
      response.end('data: [DONE]\n\n');
    };
    response.on('drain', write);
    write();
  };
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      if (Buffer.concat(parts).includes('"stream":true')) pour(response);
      else response.writeHead(200, { 'content-type': 'application/json' }).end(WHOLE);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  state.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return state;
}
