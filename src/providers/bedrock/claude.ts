/**
 * Claude on Bedrock in Anthropic's own protocol, for requests to the Messages door: InvokeModel accepts the
 * caller's body except for a few members, and its stream wraps Anthropic's events in messages of Amazon's
 * event stream. bedrock.ts calls these functions for passed calls. Upstream worker.
 *
 * Follows Amazon Bedrock API Reference, "InvokeModel", "InvokeModelWithResponseStream" and "CountTokens";
 * User Guide, "Anthropic Claude Messages API" and "Monitor your token usage by counting tokens", 2026-11.
 *
 * Must hold: Anthropic's events reach the caller byte for byte, but for line breaks outside of strings.
 */
import { isRecord, membersOf, parsedJson } from '../../core/json.js';
import { sseEvent } from '../../protocol/sse.js';
import { cloudBodyOf, knownBetasOf } from '../anthropic/anthropic.js';
import { ProviderError, type PassedCall, type ProviderStream, type UnsignedCall } from '../provider.js';
import { eventOf, FrameReader } from './frames.js';

/** The version of Anthropic's protocol on Bedrock, which the body must name. */
const CLAUDE_VERSION = 'bedrock-2023-05-31';
const KNOWN_BETA =
  /^(?:compact|computer-use|context-1m|context-management|dev-full-thinking|effort|fine-grained-tool-streaming|interleaved-thinking|output-128k|token-efficient-tools|tool-examples|tool-search-tool)-\d{4}-\d\d-\d\d$/;

type Operation = 'invoke' | 'invoke-with-response-stream' | 'count-tokens';

interface ClaudeRequest {
  readonly model: string;
  readonly operation: Operation;
  readonly body: string;
}

/** The request to Bedrock for a call of the Messages door or of its `count_tokens`. */
export function claudeRequest(
  { settings }: UnsignedCall,
  body: string | Uint8Array,
  { door, stream, betas }: PassedCall,
): ClaudeRequest {
  const callersBetas = knownBetasOf(betas, (name) => KNOWN_BETA.test(name));
  const form = { version: CLAUDE_VERSION, betas: settings.betas, callersBetas, alsoRemoved: 'stream' };
  if (door !== 'count_tokens') {
    const operation = stream ? 'invoke-with-response-stream' : 'invoke';
    return { operation, ...cloudBodyOf(body, form) };
  }
  // CountTokens wants the body of InvokeModel, in which max_tokens is required.
  const added = ['max_tokens', outputTokensMin] as const;
  const counted = cloudBodyOf(body, { ...form, added });
  const countRequest = { input: { invokeModel: { body: Buffer.from(counted.body).toString('base64') } } };
  return { model: counted.model, operation: 'count-tokens', body: JSON.stringify(countRequest) };
}

/**
 * The least `max_tokens` of a body, as JSON text: more than the thinking budget. `members`: those of the
 * body, each as `"name":value`.
 */
function outputTokensMin(members: readonly string[]): string {
  const member = members.find((text) => text.startsWith('"thinking"'));
  const body = member === undefined ? undefined : parsedJson(`{${member}}`);
  const { budget_tokens: budget } = membersOf(membersOf(body).thinking);
  return Number.isSafeInteger(budget) ? `${(budget as number) + 1}` : '1';
}

/** The response of CountTokens in the form of Anthropic's `count_tokens`. */
export function readCount(body: Buffer): string {
  const { inputTokens: tokens } = membersOf(parsedJson(body.toString()));
  if (!Number.isSafeInteger(tokens)) throw ProviderError.invalid('no inputTokens');
  return JSON.stringify({ input_tokens: tokens });
}

/** A fast path: Anthropic writes the type first in nearly all events. */
const EVENT_TYPE = /^\{"type":"(\w+)"/;

/** Takes Anthropic's events out of Amazon's messages, and writes them as server-sent events. */
export class ClaudeStream implements ProviderStream {
  /** The events that `push` will return. */
  #events = '';
  readonly #frames = new FrameReader((headers, bytes, start, end) => {
    const event = eventOf(headers, bytes.toString('utf8', start, end));
    // A message without `bytes` is of a later version of Bedrock, and is ignored.
    if (typeof event.bytes === 'string') this.#events += sseOf(Buffer.from(event.bytes, 'base64').toString());
  });

  push(bytes: Uint8Array): string {
    this.#events = '';
    this.#frames.push(bytes);
    return this.#events;
  }

  /** Checks that Amazon's last message is whole; upstream/passed-stream-reader.ts, Anthropic's events. */
  end(): string {
    if (!this.#frames.isBetweenMessages) throw ProviderError.invalid('the stream ended inside of a message');
    return '';
  }
}

/** The event with its type, as in Anthropic's own stream. Throws a ProviderError if `json` has no type. */
function sseOf(json: string): string {
  let type = EVENT_TYPE.exec(json)?.[1];
  let data = json;
  if (type === undefined || json.includes('\n') || json.includes('\r')) {
    const event = parsedJson(json);
    // A type with a line break would add lines to the event.
    if (!isRecord(event) || typeof event.type !== 'string' || !/^\w+$/.test(event.type))
      throw ProviderError.invalid('a chunk is no event');
    type = event.type;
    // A line break, also a CR alone, would end the event's line; outside of strings it means nothing.
    data = json.replaceAll(/[\r\n]/g, ' ');
  }
  return sseEvent(data, type);
}
