/**
 * Bodies of chat calls, and the responses that the upstream gives to them. One upstream serves all scenarios:
 * a prompt says in its first line what it is to be answered with.
 */
import { TEST_MODEL } from '../../../test/support/gateway.js';
import type { ContenderName } from '../contenders/contender.js';

/** Contenders that pass whole responses and streams on from the upstream. */
export const PROXIES: readonly ContenderName[] = [
  'direct',
  'nginx',
  'haproxy',
  'litellm-rs',
  'litellm-rs-limits',
  'tollgate',
  'any',
  'tollgate-2',
  'tollgate-4',
  'tollgate-2p',
];

/** The same, but they take no more than some hundred calls a second. */
export const SLOW_PROXIES: readonly ContenderName[] = ['portkey', 'litellm', 'litellm-limits'];

const TEXT = 'How many roads must a man walk down before you call him a man? ';
const BYTES_PER_TOKEN = 4;

export interface Tokens {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
}

export interface Prompt {
  readonly promptBytes: number;
  /** Of the response's text. */
  readonly answerBytes: number;
  readonly chunks: number;
  readonly stream: boolean;
  /** Pause of the upstream after each chunk; none where it is left out. */
  readonly chunkMs?: number;
}

/** The call's body, with a prompt of exactly `promptBytes` bytes. */
export function bodyOf({ promptBytes, answerBytes, chunks, stream, chunkMs }: Prompt): string {
  const pause = chunkMs === undefined ? '' : `&chunk_ms=${chunkMs}`;
  const steering = `x-mock: bytes=${answerBytes}&chunks=${chunks}${pause}\n`;
  const content = steering.padEnd(promptBytes, TEXT);
  return JSON.stringify({
    model: TEST_MODEL,
    messages: [{ role: 'user', content }],
    ...(stream ? { stream: true, stream_options: { include_usage: true } } : {}),
  });
}

/** What the upstream reports, and every contender has to hand on: a token for every 4 bytes, rounded up. */
export const tokensOf = ({ promptBytes, answerBytes }: Prompt): Tokens => ({
  prompt_tokens: Math.ceil(promptBytes / BYTES_PER_TOKEN),
  completion_tokens: Math.ceil(answerBytes / BYTES_PER_TOKEN),
});

/** Throws where the tokens of a response are not those of its prompt. */
export function checkTokens(prompt: Prompt, usage: Tokens | null | undefined): void {
  const wanted = tokensOf(prompt);
  if (usage?.prompt_tokens !== wanted.prompt_tokens || usage.completion_tokens !== wanted.completion_tokens) {
    throw new Error(`usage is ${JSON.stringify(usage)}, wanted ${JSON.stringify(wanted)}`);
  }
}
