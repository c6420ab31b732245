/**
 * A chat call of the playground, and its response as it comes (server-sent events). playground-page.tsx uses
 * it. Browser.
 *
 * Must hold: a call ends when its page is left, because it is charged, and a wrong API key ends no console
 * session (test/e2e/console-pages.test.ts, test/e2e/console.test.ts).
 */
import { ApiError, send, textOf } from './api.js';

export interface Message {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

export interface ChatRequest {
  readonly model: string;
  readonly messages: readonly Message[];
  readonly stream: boolean;
  readonly max_tokens?: number;
  readonly temperature?: number;
  readonly stream_options?: { readonly include_usage: boolean };
}

/** The progress of a call. */
export interface Outcome {
  readonly text: string;
  readonly status?: number;
  readonly headers?: readonly (readonly [string, string])[];
  readonly firstTokenMs?: number;
  readonly totalMs?: number;
  /** Why the call failed, in words. */
  readonly error?: string;
}

interface Chunk {
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string | null };
    readonly message?: { readonly content?: string | null };
  }[];
  readonly error?: { readonly message?: string };
}

/**
 * Calls `onProgress` with all that is known so far, whenever there is more. Resolves when the response is
 * complete or has failed; never rejects. `leaving` cancels the call, so that it costs no more.
 */
export async function chat(
  key: string,
  request: ChatRequest,
  onProgress: (outcome: Outcome) => void,
  leaving: AbortSignal,
): Promise<void> {
  const start = performance.now();
  let outcome: Outcome = { text: '' };
  const add = (news: Partial<Outcome>): void => {
    outcome = { ...outcome, ...news };
    onProgress(outcome);
  };
  const onChunk = ({ choices, error }: Chunk): void => {
    const [choice] = choices ?? [];
    const piece = choice?.delta?.content ?? choice?.message?.content ?? '';
    const isFirst = piece !== '' && outcome.firstTokenMs === undefined;
    add({
      text: outcome.text + piece,
      ...(isFirst ? { firstTokenMs: performance.now() - start } : {}),
      ...(error === undefined ? {} : { error: error.message ?? 'The stream ended with an error.' }),
    });
  };
  try {
    const response = await send('POST', '/admin/playground', { key, request }, leaving);
    add({ status: response.status, headers: headersOf(response) });
    if (request.stream) await readEvents(response, onChunk);
    else onChunk((await response.json()) as Chunk);
    add({ totalMs: performance.now() - start });
  } catch (error) {
    const status = error instanceof ApiError && error.status > 0 ? { status: error.status } : {};
    add({ ...status, totalMs: performance.now() - start, error: errorTextOf(error) });
  }
}

function errorTextOf(error: unknown): string {
  return error instanceof ApiError ? error.message : `The answer broke off: ${textOf(error)}`;
}

function headersOf(response: Response): [string, string][] {
  return [...response.headers].filter(([name]) => name.startsWith('x-') || name === 'content-type');
}

async function readEvents(response: Response, onChunk: (chunk: Chunk) => void): Promise<void> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split('\n');
    rest = lines.pop()!;
    for (const line of lines) {
      const data = /^data: ?(.*)$/.exec(line.trimEnd())?.[1];
      if (data !== undefined && data !== '[DONE]') onChunk(JSON.parse(data) as Chunk);
    }
  }
}
