/**
 * What a scanner finds in one pass over a request's body, whichever door the body came by. chat-scan.ts and
 * doors/member-scan.ts are the scanners; request-bytes.ts makes a ChatCall of the result. Types; any thread.
 *
 * Must hold: spans are in bytes and exact, because request-bytes.ts and chat-call.ts splice there
 * (test/unit/protocol/request-bytes.test.ts).
 */
import type { RoutingMember } from '../core/routing-members.js';
import type { OutputTokensField } from './chat-call.js';
import type { ChatRequest } from './chat-schema.js';

/** Positions in the body, in bytes. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** The span of a member that is not in the body. No value is at the start of a body. */
export const NOWHERE: Span = { start: 0, end: 0 };

export interface BodyScan {
  readonly bytes: Buffer;
  readonly request: Pick<
    ChatRequest,
    'model' | 'stream' | 'stream_options' | 'max_tokens' | 'max_completion_tokens' | 'n'
  >;
  readonly routingMembers: readonly RoutingMember[];
  /**
   * The spans of the values of these members, or NOWHERE. `maxTokens` is that of the door's own output bound,
   * whatever its name is.
   */
  readonly model: Span;
  readonly maxTokens: Span;
  readonly maxCompletionTokens: Span;
  readonly streamOptions: Span;
  readonly includeUsage: Span;
  /** `stream_options` has members. */
  readonly hasStreamOptions: boolean;
  /** Position of the brace that closes the body. */
  readonly end: number;
  /** The member that bounds the output. */
  readonly outputTokensName: OutputTokensField;
  /** The least bound to which the gateway may lower it. */
  readonly outputTokensMin: number;
  /** A stream reports its usage only if `stream_options` asks for it. */
  readonly asksForUsage: boolean;
}
