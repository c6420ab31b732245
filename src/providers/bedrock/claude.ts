/**
 * Claude on Bedrock in Anthropic's own protocol, for requests to Messages: InvokeModel takes the body as it
 * is but for a few members, and its stream brings Anthropic's events inside of messages of Amazon's event
 * stream. bedrock.ts uses it. Upstream worker.
 *
 * Followed: Amazon Bedrock User Guide, "Anthropic Claude Messages API" and "Monitor your token usage by
 * counting tokens"; API Reference, "InvokeModel", "InvokeModelWithResponseStream", "CountTokens", 2026-11.
 */
import { isRecord, parsedJson } from '../../core/json.js';
import { cloudBodyOf } from '../anthropic/cloud-body.js';
import { ProviderError, type PassedCall, type ProviderCall, type ProviderStream } from '../provider.js';
import { eventOf, FrameReader } from './frames.js';

const VERSION = 'bedrock-2023-05-31';
/**
 * Features in trial that Bedrock knows. It refuses the whole request for any other, and coding agents name
 * some that only Anthropic's own service has. Operators add newer ones with `betas`.
 */
const BETAS =
  /^(?:compact|computer-use|context-1m|context-management|dev-full-thinking|effort|fine-grained-tool-streaming|interleaved-thinking|output-128k|token-efficient-tools|tool-examples|tool-search-tool)-\d{4}-\d\d-\d\d$/;

export type Operation = 'invoke' | 'invoke-with-response-stream' | 'count-tokens';

export interface ClaudeRequest {
  readonly model: string;
  readonly operation: Operation;
  readonly body: string;
}

export function claudeRequest(
  { settings }: ProviderCall,
  body: string | Uint8Array,
  { door, stream, betas }: PassedCall,
): ClaudeRequest {
  const given = betas
    .split(',')
    .filter((name) => BETAS.test(name.trim()))
    .join(',');
  if (door !== 'count_tokens') {
    const operation = stream ? 'invoke-with-response-stream' : 'invoke';
    return { operation, ...cloudBodyOf(body, VERSION, settings.betas, given, 'stream') };
  }
  // It wants what InvokeModel would get, which has a bound.
  const invoked = cloudBodyOf(body, VERSION, settings.betas, given, 'stream', ['max_tokens', '1']);
  const counted = { input: { invokeModel: { body: Buffer.from(invoked.body).toString('base64') } } };
  return { model: invoked.model, operation: 'count-tokens', body: JSON.stringify(counted) };
}

/** The response of CountTokens as Anthropic's. */
export function readCount(body: Buffer): string {
  const counted = parsedJson(body.toString());
  const tokens = isRecord(counted) ? counted.inputTokens : undefined;
  if (!Number.isSafeInteger(tokens)) throw ProviderError.invalid('no inputTokens');
  return JSON.stringify({ input_tokens: tokens });
}

/** Nearly all events, as Anthropic writes them. */
const TYPE = /^\{"type":"(\w+)"/;

/** Anthropic's events as server-sent events, byte for byte. */
export class ClaudeStream implements ProviderStream {
  /** What is being read. */
  #out = '';
  readonly #frames = new FrameReader((headers, bytes, start, end) => {
    const event = eventOf(headers, bytes.toString('utf8', start, end));
    // Events of other types are for later versions.
    if (typeof event.bytes === 'string') this.#out += sseOf(Buffer.from(event.bytes, 'base64').toString());
  });

  push(chunk: Uint8Array): string {
    this.#out = '';
    this.#frames.push(chunk);
    return this.#out;
  }

  /** Whether the message was whole its reader knows. */
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
