/**
 * The codec of `encrypted_content`, in which a client carries signed reasoning from one turn to the next:
 * thinking blocks of Anthropic and Bedrock, signatures of Gemini's calls. response-stream.ts writes it into
 * reasoning items, request-items.ts reads it from the next request. Pure; upstream worker.
 *
 * The content is a prefix, and JSON in base64. Content without the prefix is another service's, and is left
 * out because no upstream here could read it. It is not encrypted: the caller's own model wrote it, and the
 * provider checks its signatures.
 *
 * Must hold: clients store the content, so the form after this prefix never changes; another form gets
 * another prefix (test/unit/doors/responses/carried-signatures.test.ts).
 */
import { isRecord, parsedJson } from '../../core/json.js';

const PREFIX = 'tollgate-1:';

export interface Carried {
  /** `thinking_blocks` of a message, with their texts. */
  readonly blocks?: readonly unknown[];
  /** `extra_content` of the call that follows. */
  readonly extra?: unknown;
}

export function encryptedContent(carried: Carried): string {
  return PREFIX + Buffer.from(JSON.stringify(carried)).toString('base64');
}

/** Decodes the content; undefined if another service wrote it. */
export function carriedIn(content: unknown): Carried | undefined {
  if (typeof content !== 'string' || !content.startsWith(PREFIX)) return undefined;
  const value = parsedJson(Buffer.from(content.slice(PREFIX.length), 'base64').toString());
  if (!isRecord(value)) return undefined;
  return {
    ...(Array.isArray(value.blocks) && { blocks: value.blocks as unknown[] }),
    ...(isRecord(value.extra) && { extra: value.extra }),
  };
}
