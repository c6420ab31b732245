/**
 * Streams as tests read them: events, the text they carry, and a live reader.
 */
import { request as httpRequest, type Agent, type ClientRequest, type IncomingMessage } from 'node:http';
import { wordNumbers } from '#src/mock/mock-completion.js';

/** What is read of a chunk. */
export interface Chunk {
  readonly object?: string;
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string };
    readonly finish_reason?: string | null;
  }[];
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number } | null;
  readonly error?: { readonly message: string; readonly type: string; readonly code: string };
}

/** Data of the events of a stream, comments left out. */
export function eventData(body: string): string[] {
  return body
    .split(/\r?\n\r?\n/)
    .filter((event) => event.startsWith('data: '))
    .map((event) => event.slice('data: '.length));
}

export const isDone = (data: string): boolean => data === '[DONE]';

const chunksIn = (events: readonly string[]): Chunk[] =>
  events.filter((data) => !isDone(data)).map((data) => JSON.parse(data) as Chunk);

/** The JSON events of a stream. */
export const chunksOf = (body: string): Chunk[] => chunksIn(eventData(body));

/** The text of all chunks. */
export const textOf = (chunks: readonly Chunk[]): string =>
  chunks.map((chunk) => chunk.choices?.[0]?.delta?.content ?? '').join('');

/** Whether the words of a text are those of `count` chunks of the mock, each once and in order. */
export function isWholeText(text: string, count: number): boolean {
  const numbers = wordNumbers(text);
  return numbers.length === count && numbers.every((number, index) => number === index);
}

/** Whether a stream has all `count` chunks of the mock and its end. */
export function isWholeStream(body: string, count: number): boolean {
  const events = eventData(body);
  return events.at(-1) === '[DONE]' && isWholeText(textOf(chunksIn(events)), count);
}

/** A stream whose body is read by the caller. */
export interface OpenStream {
  readonly outgoing: ClientRequest;
  readonly incoming: IncomingMessage;
}

/**
 * Sends a chat call and resolves with its response's headers; nothing of the body is read yet. Rejects where
 * the status is not 200, naming it with the body: who waits for a part of a stream would wait forever.
 */
export function openStream(
  port: number,
  key: string,
  body: object,
  agent: Agent | false = false,
): Promise<OpenStream> {
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest({
      host: '127.0.0.1',
      port,
      method: 'POST',
      path: '/v1/chat/completions',
      agent,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    });
    outgoing.once('response', (incoming) => {
      if (incoming.statusCode === 200) resolve({ outgoing, incoming });
      else
        readRest(incoming).then(
          (text) => reject(new Error(`answered ${incoming.statusCode}: ${text}`)),
          reject,
        );
    });
    outgoing.once('error', reject);
    outgoing.end(JSON.stringify(body));
  });
}

/** The rest of a stream's text; rejects where the connection breaks. */
export async function readRest(incoming: IncomingMessage): Promise<string> {
  let text = '';
  incoming.setEncoding('utf8');
  for await (const part of incoming) text += part as string;
  return text;
}
