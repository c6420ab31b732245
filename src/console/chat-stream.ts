/**
 * A chat call of the playground, and its response as it comes (server-sent events). playground-page.tsx calls
 * `chat`; admin/playground.ts relays the call. Browser.
 *
 * Must hold: a call ends when its page is left, because the call is charged. A wrong API key, which gets a
 * 401, ends no console session: session.ts first asks whether the session is over
 * (test/e2e/console-pages.test.ts, test/e2e/console.test.ts).
 */
import { PLAYGROUND_PATH } from '../admin/addresses.js';
import { ApiError, jsonOf, notFromGateway, send, textOf } from './api.js';

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

/** What is known of a call so far, beyond the glossary's outcome. A field is absent until it is known. */
export interface CallProgress {
  /** The text of the response; empty before the first token. */
  readonly text: string;
  readonly status?: number;
  readonly headers?: readonly (readonly [string, string])[];
  /** Milliseconds since the call was sent, as `totalMs`. */
  readonly firstTokenMs?: number;
  /** Present if the call is over, whether it went well or failed. */
  readonly totalMs?: number;
  /** Why the call failed, in words. */
  readonly error?: string;
}

/** A chat completion: a chunk of a stream, with `delta`, or a whole response, with `message`. */
interface Completion {
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string | null };
    readonly message?: { readonly content?: string | null };
  }[];
  readonly error?: { readonly message?: string };
}

/**
 * Calls `onProgress` with the outcome so far, whenever more of the outcome is known. Resolves when the
 * response is complete or has failed; never rejects. `leaving`: aborted to cancel the call.
 */
export async function chat(
  key: string,
  request: ChatRequest,
  onProgress: (outcome: CallProgress) => void,
  leaving: AbortSignal,
): Promise<void> {
  const startMs = performance.now();
  let outcome: CallProgress = { text: '' };
  const updateOutcome = (fields: Partial<CallProgress>): void => {
    outcome = { ...outcome, ...fields };
    onProgress(outcome);
  };
  const onCompletion = ({ choices, error }: Completion): void => {
    const [choice] = choices ?? [];
    const newText = choice?.delta?.content ?? choice?.message?.content ?? '';
    const isFirst = newText !== '' && outcome.firstTokenMs === undefined;
    updateOutcome({
      text: outcome.text + newText,
      ...(isFirst ? { firstTokenMs: performance.now() - startMs } : {}),
      ...(error === undefined ? {} : { error: error.message ?? 'The stream ended with an error.' }),
    });
  };
  try {
    const response = await send('POST', PLAYGROUND_PATH, { key, request }, leaving);
    updateOutcome({ status: response.status, headers: headersOf(response) });
    if (!request.stream) onCompletion(await jsonOf<Completion>(response));
    else if (isEventStream(response)) await readEvents(response, onCompletion);
    else throw notFromGateway();
    updateOutcome({ totalMs: performance.now() - startMs });
  } catch (error) {
    const status = error instanceof ApiError && error.status > 0 ? { status: error.status } : {};
    updateOutcome({ ...status, totalMs: performance.now() - startMs, error: errorTextOf(error) });
  }
}

/** An ApiError stands for an error response, or for none. Any other error came within a response. */
function errorTextOf(error: unknown): string {
  return error instanceof ApiError ? error.message : `The answer broke off: ${textOf(error)}`;
}

/** Returns the headers that the playground shows: `content-type`, and those that begin with `x-`. */
function headersOf(response: Response): [string, string][] {
  return [...response.headers].filter(([name]) => name.startsWith('x-') || name === 'content-type');
}

const isEventStream = ({ headers }: Response): boolean =>
  headers.get('content-type')?.startsWith('text/event-stream') === true;

/** Rejects if the stream breaks off. The gateway sends each event's data as one line of JSON. */
async function readEvents(response: Response, onEvent: (chunk: Completion) => void): Promise<void> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  /** The line whose end has not come yet. */
  let unfinished = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    unfinished += value;
    const lines = unfinished.split('\n');
    // `split` gives at least one text.
    unfinished = lines.pop()!;
    for (const line of lines) {
      const data = /^data: ?(.*)$/.exec(line.trimEnd())?.[1];
      if (data !== undefined && data !== '[DONE]') onEvent(JSON.parse(data) as Completion);
    }
  }
}
