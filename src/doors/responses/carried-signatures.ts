/**
 * What providers sign and want back with the next turn, in the `encrypted_content` of reasoning items, which
 * clients send back unread: Anthropic's and Bedrock's blocks of thinking, Gemini's signatures of calls.
 * request-items.ts reads it, response-stream.ts writes it. Pure; upstream worker.
 *
 * It is base64 of JSON behind a mark. Content without the mark is another service's, and is left out: no
 * upstream here could read it. What is in it was said by the caller's own model and goes to the provider of
 * the caller's choice, which checks its signatures; so it is not encrypted again.
 */
import { isRecord, parsedJson } from '../../core/json.js';

const MARK = 'tollgate-1:';

export interface Carried {
  /** `thinking_blocks` of a message, with their texts. */
  readonly blocks?: readonly unknown[];
  /** `extra_content` of the call that follows. */
  readonly extra?: unknown;
}

export function encryptedContent(carried: Carried): string {
  return MARK + Buffer.from(JSON.stringify(carried)).toString('base64');
}

/** Undefined for content that another service wrote. */
export function carriedIn(content: unknown): Carried | undefined {
  if (typeof content !== 'string' || !content.startsWith(MARK)) return undefined;
  const value = parsedJson(Buffer.from(content.slice(MARK.length), 'base64').toString());
  if (!isRecord(value)) return undefined;
  return {
    ...(Array.isArray(value.blocks) && { blocks: value.blocks as unknown[] }),
    ...(isRecord(value.extra) && { extra: value.extra }),
  };
}
