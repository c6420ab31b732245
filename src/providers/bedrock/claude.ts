/**
 * Claude on Bedrock in Anthropic's own protocol, for requests to the Messages door: InvokeModel accepts the
 * body except for a few members, and its stream wraps Anthropic's events in messages of Amazon's event
 * stream. bedrock.ts calls it. Upstream worker.
 *
 * Follows Amazon Bedrock User Guide, "Anthropic Claude Messages API" and "Monitor your token usage by
 * counting tokens"; API Reference, "InvokeModel", "InvokeModelWithResponseStream", "CountTokens", 2026-11.
 *
 * Must hold: Anthropic's events reach the caller byte for byte (test/unit/providers/bedrock/claude.test.ts).
 */
import { isRecord, parsedJson } from '../../core/json.js';
import { cloudBodyOf } from '../anthropic/cloud-body.js';
import { ProviderError, type PassedCall, type ProviderStream, type UnsignedCall } from '../provider.js';
import { eventOf, FrameReader } from './frames.js';

const VERSION = 'bedrock-2023-05-31';
/**
 * Beta features that Bedrock has. Bedrock refuses the whole request for any other name, and coding agents
 * send names that only Anthropic's own service has. Operators add newer ones with the setting `betas`.
 */
const BETAS =
  /^(?:compact|computer-use|context-1m|context-management|dev-full-thinking|effort|fine-grained-tool-streaming|interleaved-thinking|output-128k|token-efficient-tools|tool-examples|tool-search-tool)-\d{4}-\d\d-\d\d$/;

export type Operation = 'invoke' | 'invoke-with-response-stream' | 'count-tokens';

export interface ClaudeRequest {
  readonly model: string;
  readonly operation: Operation;
  readonly body: string;
}

/** The request to Bedrock for a call of the Messages door. */
export function claudeRequest(
  { settings }: UnsignedCall,
  body: string | Uint8Array,
  { door, stream, betas }: PassedCall,
): ClaudeRequest {
  const callersBetas = betas
    .split(',')
    .filter((name) => BETAS.test(name.trim()))
    .join(',');
  if (door !== 'count_tokens') {
    const operation = stream ? 'invoke-with-response-stream' : 'invoke';
    return { operation, ...cloudBodyOf(body, VERSION, settings.betas, callersBetas, 'stream') };
  }
  // CountTokens wants the body of InvokeModel, in which max_tokens is required.
  const invoked = cloudBodyOf(body, VERSION, settings.betas, callersBetas, 'stream', ['max_tokens', '1']);
  const counted = { input: { invokeModel: { body: Buffer.from(invoked.body).toString('base64') } } };
  return { model: invoked.model, operation: 'count-tokens', body: JSON.stringify(counted) };
}

/** The response of CountTokens in the form of Anthropic's `count_tokens`. */
export function readCount(body: Buffer): string {
  const counted = parsedJson(body.toString());
  const tokens = isRecord(counted) ? counted.inputTokens : undefined;
  if (!Number.isSafeInteger(tokens)) throw ProviderError.invalid('no inputTokens');
  return JSON.stringify({ input_tokens: tokens });
}

/** A fast path: Anthropic writes the type first in nearly all events. */
const TYPE = /^\{"type":"(\w+)"/;

/** Unwraps Anthropic's events, and writes them as server-sent events. */
export class ClaudeStream implements ProviderStream {
  /** Events of the chunk that is being read. */
  #out = '';
  readonly #frames = new FrameReader((headers, bytes, start, end) => {
    const event = eventOf(headers, bytes.toString('utf8', start, end));
    // Messages without bytes, from later versions, are ignored.
    if (typeof event.bytes === 'string') this.#out += sseOf(Buffer.from(event.bytes, 'base64').toString());
  });

  push(chunk: Uint8Array): string {
    this.#out = '';
    this.#frames.push(chunk);
    return this.#out;
  }

  /**
   * Checks Amazon's framing only. upstream/passed-stream-reader.ts checks that Anthropic's message is whole.
   */
  end(): string {
    if (!this.#frames.isBetweenMessages) throw ProviderError.invalid('the stream ended inside of a message');
    return '';
  }
}

function sseOf(json: string): string {
  let type = TYPE.exec(json)?.[1];
  let data = json;
  if (type === undefined || json.includes('\n')) {
    const event = parsedJson(json);
    if (!isRecord(event) || typeof event.type !== 'string')
      throw ProviderError.invalid('a chunk is no event');
    type = event.type;
    // A line break would end the event's line; outside of strings it means nothing.
    data = json.replaceAll(/[\r\n]/g, ' ');
  }
  return `event: ${type}\ndata: ${data}\n\n`;
}
