/**
 * What the pass over a request's body finds, whichever door the body came by. The scanners make it
 * (chat-scan.ts, doors/member-scan.ts), request-bytes.ts makes a ChatCall of it. Types; any thread.
 */
import type { RoutingMember } from '../core/routing-members.js';
import type { OutputTokensField } from './chat-call.js';
import type { ChatRequest } from './chat-schema.js';

/** Positions in the body, in bytes. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** The span of a member that was not given: no value is at the start of a body. */
export const NOWHERE: Span = { start: 0, end: 0 };

export interface BodyScan {
  readonly bytes: Buffer;
  readonly request: Pick<
    ChatRequest,
    'model' | 'stream' | 'stream_options' | 'max_tokens' | 'max_completion_tokens' | 'n'
  >;
  readonly routingMembers: readonly RoutingMember[];
  /**
   * The span of that member's value, or NOWHERE. `maxTokens` is the span of the door's own output bound,
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
  /** The least that it may be lowered to. */
  readonly outputTokensMin: number;
  /** A stream reports its usage only if `stream_options` asks for it. */
  readonly asksForUsage: boolean;
}
