/**
 * What the gateway has to know of a chat-completion request; everything else of the body passes through untouched.
 * Plain record: it crosses from the counter pool to a listener for large bodies. Any thread.
 */
import type { RoutingMember } from '../core/routing-members.js';

import type { Span } from './chat-scan.js';

/** The members in which a request bounds its output. */
export type OutputTokensField = 'max_tokens' | 'max_completion_tokens';

export interface ChatCall {
  readonly model: string;
  readonly stream: boolean;
  /** Whether the client asked for the usage chunk of a stream (`stream_options.include_usage`). */
  readonly includeUsage: boolean;
  /** `max_completion_tokens` or `max_tokens`, the larger where both were given; undefined where neither was. */
  readonly outputTokensMax: number | undefined;
  /** Which of the two that was; undefined where neither was given. */
  readonly outputTokensField: OutputTokensField | undefined;
  /** `n`, 1 where it was not given. */
  readonly choices: number;
  /** Those of ROUTING_MEMBERS that were given. */
  readonly routingMembers: readonly RoutingMember[];
  /** The body as it goes upstream but for the model's name: byte for byte the client's, except that a stream asks for usage. */
  readonly body: string;
  /** Each character of `body` is a byte of its UTF-8. */
  readonly bodyIsAscii: boolean;
  /** In the place of `body`, which is then empty, for a body of some KB: its UTF-8, in memory of its own. */
  readonly largeBody: Uint8Array | undefined;
  /** UTF-8 length of what the client sent: no tokenizer makes more tokens of a prompt than it has bytes. */
  readonly bodyBytes: number;
  /** Where the value of `model` (with its quotes) stands in `body` or, in bytes, in `largeBody`. */
  readonly modelStart: number;
  readonly modelEnd: number;
  /** Where, by the same measure, the values of the two fields stand; both places are 0 where it was not given. */
  readonly maxTokens: Span;
  readonly maxCompletionTokens: Span;
  /** And the brace that closes the body. */
  readonly bodyEnd: number;
}
