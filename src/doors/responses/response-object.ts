/**
 * The `response` object of the Responses API, made of a chat completion and of members that the object
 * repeats from the request; and the types and ids of the output items. response-stream.ts uses this file, for
 * events and for a response that is not streamed. responses-door.ts knows our ids again, in the listener or a
 * counter thread. Pure; upstream worker.
 *
 * Must hold: the object has every member of OpenAI's reference, because clients validate it
 * (test/unit/doors/responses/response-stream.test.ts, 'a response in full'). `isOwnReasoningId` knows all
 * ids that were ever made, because clients send old ones back (same file, 'reasoning that comes back …').
 */
import { isRecord, type Members, membersOf } from '../../core/json.js';
import type { DoorCall } from '../door.js';
import { isCutBy } from '../finish-reason.js';
import type { ToolCallSoFar } from '../tool-call-pieces.js';

/** The members that are known from the first chunk on. */
export interface ResponseHead {
  readonly id: string;
  readonly createdSeconds: number;
  readonly model: string;
}

/** The head, from a chat completion or the first chunk of one. */
export function headOf({ created, model }: Members, call: DoorCall): ResponseHead {
  return {
    id: `resp_${call.requestId}`,
    createdSeconds: typeof created === 'number' && created > 0 ? created : Math.floor(call.nowMs / 1_000),
    // Azure's first chunk, with the filter results of the prompt, has an empty model.
    model: typeof model === 'string' && model !== '' ? model : call.model,
  };
}

/** Status of a response, and the members that depend on it. */
export interface ResponseState {
  readonly status: 'in_progress' | 'completed' | 'incomplete';
  readonly reason?: 'max_output_tokens' | 'content_filter' | undefined;
  readonly output: readonly object[];
  /** `usage` of the chat completion. */
  readonly usage?: unknown;
  readonly serviceTier?: unknown;
}

/** Why a chat completion that ends by `finishReason` is an incomplete response; undefined if it is whole. */
export function incompleteReasonOf(finishReason: unknown): ResponseState['reason'] {
  if (isCutBy(finishReason)) return 'max_output_tokens';
  return finishReason === 'content_filter' ? 'content_filter' : undefined;
}

/** Members of the request that the response repeats, with the reference's defaults for absent ones. */
const REPEATED: readonly (readonly [name: string, defaultValue: unknown])[] = [
  ['instructions', null],
  ['max_output_tokens', null],
  ['max_tool_calls', null],
  ['metadata', {}],
  ['parallel_tool_calls', true],
  ['prompt_cache_key', null],
  ['safety_identifier', null],
  ['temperature', null],
  ['tool_choice', 'auto'],
  ['tools', []],
  ['top_logprobs', 0],
  ['top_p', null],
  ['truncation', 'disabled'],
  ['user', null],
];

/** Returns the object, for JSON.stringify. `usage` is null until the end, and if no usage was reported. */
export function responseObject(head: ResponseHead, { body }: DoorCall, state: ResponseState): object {
  const { status, reason, output, usage, serviceTier } = state;
  const reasoning = membersOf(body.reasoning);
  return {
    id: head.id,
    object: 'response',
    created_at: head.createdSeconds,
    status,
    background: false,
    error: null,
    incomplete_details: reason === undefined ? null : { reason },
    model: head.model,
    output,
    previous_response_id: null,
    reasoning: { effort: reasoning.effort ?? null, summary: reasoning.summary ?? null },
    service_tier: serviceTier ?? body.service_tier ?? 'auto',
    store: false,
    text: { format: { type: 'text' }, ...membersOf(body.text) },
    usage: usageOf(usage),
    ...Object.fromEntries(REPEATED.map(([name, defaultValue]) => [name, body[name] ?? defaultValue])),
  };
}

/** Null if none was reported. In both forms of usage the prompt includes cached tokens. */
function usageOf(usage: unknown): object | null {
  if (!isRecord(usage)) return null;
  const prompt = membersOf(usage.prompt_tokens_details);
  const completion = membersOf(usage.completion_tokens_details);
  const input = countOf(usage.prompt_tokens);
  const output = countOf(usage.completion_tokens);
  return {
    input_tokens: input,
    input_tokens_details: {
      cached_tokens: countOf(prompt.cached_tokens),
      cache_write_tokens: countOf(prompt.cache_write_tokens),
    },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: countOf(completion.reasoning_tokens) },
    total_tokens: input + output,
  };
}

function countOf(value: unknown): number {
  return typeof value === 'number' ? value : 0;
}

/** The id of an output item that is made here, such as `rs_r1_0`. `index`: the item's in the output. */
export function itemIdOf(prefix: string, requestId: string, index: number): string {
  return `${prefix}_${requestId}_${index}`;
}

/** Matches what `itemIdOf` makes for reasoning. OpenAI's own ids have no second `_`. */
const OWN_REASONING_ID = /^rs_.+_\d+$/;

/** Whether the id of a reasoning item was made here, so that no provider has the item stored. */
export function isOwnReasoningId(id: string): boolean {
  return OWN_REASONING_ID.test(id);
}

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

/** An output item, and its index in the output. */
export interface PlacedItem {
  readonly index: number;
  readonly item: Record<string, unknown> & { readonly id: string; readonly type: string };
}

/** An output item that is being written. */
interface OpenItem extends PlacedItem {
  /**
   * Adds the missing members to `item`, and returns the texts of the item's last events before
   * response.output_item.done. `status` is added too, but not to reasoning, which has none. Called once.
   */
  readonly close: (status: ItemStatus) => string;
}

export interface OpenReasoning extends OpenItem {
  text: string;
  /** Blocks that the provider has signed, for `encrypted_content` (encrypted-content.ts). */
  readonly blocks: unknown[];
  /** The last part of `text`, for which no signed block has come yet. */
  unsigned: string;
}

/** A part of the message that is being written. */
export interface OpenPart {
  readonly type: 'output_text' | 'refusal';
  readonly index: number;
  text: string;
  readonly logprobs: unknown[];
}

export interface OpenMessage extends OpenItem {
  /** The parts as the item has them at its end. */
  readonly content: object[];
  part: OpenPart | undefined;
}

export interface OpenToolCall extends OpenItem, ToolCallSoFar {
  /** Whether response.output_item.added was written, which waits for the call's name from the upstream. */
  isAdded: boolean;
}

/** How the types of a tool call's events begin: `.delta` or `.done` follows. */
export function eventTypeStartOf({ item }: OpenToolCall): string {
  return item.type === 'function_call'
    ? 'response.function_call_arguments'
    : 'response.custom_tool_call_input';
}

/** The members by which an event names the open part of a message. The message must have an open part. */
export function partPositionOf({ item, index, part }: OpenMessage): object {
  return { item_id: item.id, output_index: index, content_index: part!.index };
}

/** The part as the client gets it. It is a copy, so later pieces do not change it. */
export function outputPartOf({ type, text, logprobs }: OpenPart): object {
  return type === 'output_text'
    ? { type, annotations: [], logprobs: [...logprobs], text }
    : { type, refusal: text };
}
