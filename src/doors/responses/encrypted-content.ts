/**
 * The `encrypted_content` of reasoning items, in which a client carries signed reasoning from one turn to the
 * next: thinking blocks of Anthropic and Bedrock, signatures of Gemini's calls. response-stream.ts writes it,
 * request-items.ts reads it in the next request. Pure; upstream worker, or counter thread if the body is
 * large.
 *
 * The content is JSON in base64, and not encrypted: the caller's own model wrote the reasoning, and the
 * provider checks its signatures.
 *
 * Must hold: clients store the content, so the form after PREFIX never changes; another form gets another
 * prefix (test/unit/doors/responses/encrypted-content.test.ts).
 */
import { isNestedTooDeeply, isRecord, parsedJson } from '../../core/json.js';

/** Content without this prefix is another service's, which no upstream here could read. */
const PREFIX = 'tollgate-1:';

interface Carried {
  /** `thinking_blocks` of a message, with their texts. */
  readonly blocks?: readonly unknown[];
  /** `extra_content` of the call that follows. */
  readonly extra?: unknown;
}

/** Encodes the content. `carried` may be empty: some clients drop a reasoning item without content. */
export function encryptedContent(carried: Carried): string {
  return PREFIX + Buffer.from(JSON.stringify(carried)).toString('base64');
}

/**
 * Decodes the content; undefined if Tollgate did not write it. A client may have changed the content: members
 * of a wrong type are left out, and the provider checks all others.
 */
export function carriedIn(content: unknown): Carried | undefined {
  if (typeof content !== 'string' || !content.startsWith(PREFIX)) return undefined;
  const text = Buffer.from(content.slice(PREFIX.length), 'base64').toString();
  const value = parsedJson(text);
  if (!isRecord(value) || isNestedTooDeeply(text, value)) return undefined;
  return {
    ...(Array.isArray(value.blocks) && { blocks: value.blocks as unknown[] }),
    ...(isRecord(value.extra) && { extra: value.extra }),
  };
}
