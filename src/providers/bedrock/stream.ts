/**
 * A stream of ConverseStream as the chunks of a chat completion. Upstream worker; one object for each stream.
 *
 *     messageStart → (contentBlockStart → contentBlockDelta … → contentBlockStop) … → messageStop → metadata
 *
 * Blocks of text have no contentBlockStart. Events of other names are for later versions, and ignored.
 * Followed: Amazon Bedrock API Reference, "ConverseStream" and "ConverseStreamOutput", 2026-11.
 */
import { isRecord, parsedJson } from '../../core/json.js';
import { SSE_EVENT_BYTES_MAX } from '../../core/limits.js';
import { ChunkWriter } from '../chat-writer.js';
import { ProviderError, type ProviderCall, type ProviderStream } from '../provider.js';
import { failureOf } from './errors.js';
import { FrameReader, type Headers } from './frames.js';
import { publicName } from './models.js';
import { finishOf, redactedBlock, usageOf, type ThinkingBlock } from './response.js';
import { ANSWER_TOOL, answersByTool } from './tools.js';

/** What the block that is open calls: one of the caller's tools, the tool for JSON, or nothing of ours. */
type OpenTool = 'tool' | 'answer' | 'none';

export class ConverseStream implements ProviderStream {
  readonly #writer: ChunkWriter;
  readonly #frames = new FrameReader((headers, payload) => this.#message(headers, payload));
  readonly #answers: boolean;
  /** Events of the chunk that is being read. */
  #out = '';
  #tools = 0;
  #openTool: OpenTool = 'none';
  /** Of the thinking block that is open. */
  #signature = '';
  /** What the model says beside Converse's usage. */
  #modelFields: unknown;
  #isStopped = false;

  constructor(call: ProviderCall) {
    const created = Math.floor(call.nowMs / 1000);
    this.#writer = new ChunkWriter(`chatcmpl-${call.requestId}`, publicName(call.model), created);
    this.#answers = answersByTool(call);
  }

  push(chunk: Uint8Array): string {
    this.#out = '';
    this.#frames.push(chunk);
    return this.#out;
  }

  end(): string {
    if (!this.#isStopped || !this.#frames.isBetweenMessages) {
      throw ProviderError.invalid('the stream ended before the message did');
    }
    return this.#writer.done();
  }

  #message(headers: Headers, payload: Buffer): void {
    const type = headers.get(':message-type');
    if (type === 'error') {
      throw new ProviderError(
        failureOf(headers.get(':error-code') ?? '', headers.get(':error-message') ?? ''),
      );
    }
    const body = parsedJson(payload.toString('utf8'));
    if (type === 'exception') {
      const { message } = isRecord(body) ? body : ({} as Record<string, unknown>);
      const text = typeof message === 'string' ? message : '';
      throw new ProviderError(failureOf(headers.get(':exception-type') ?? '', text));
    }
    if (type !== 'event' || !isRecord(body)) throw ProviderError.invalid('a message is no event');
    this.#event(headers.get(':event-type'), body);
  }

  #event(type: string | undefined, event: Record<string, unknown>): void {
    switch (type) {
      case 'contentBlockDelta':
        if (isRecord(event.delta)) this.#delta(event.delta);
        break;
      case 'contentBlockStart':
        if (isRecord(event.start)) this.#start(event.start);
        break;
      case 'contentBlockStop':
        this.#stop();
        break;
      case 'messageStart':
        this.#out += this.#writer.role();
        break;
      case 'messageStop':
        this.#isStopped = true;
        this.#modelFields = event.additionalModelResponseFields;
        this.#out += this.#writer.finish(finishOf(event.stopReason, this.#tools > 0));
        break;
      case 'metadata': {
        const usage = usageOf(event.usage, this.#modelFields);
        if (usage !== undefined) this.#out += this.#writer.usage(usage);
        break;
      }
      default:
    }
  }

  #start({ toolUse, reasoningContent }: Record<string, unknown>): void {
    this.#openTool = 'none';
    // The reference has no such start, but Claude's redacted thinking has been seen to come in it.
    if (isRecord(reasoningContent)) this.#reasoning(reasoningContent);
    if (!isRecord(toolUse) || toolUse.type === 'server_tool_use') return;
    const { toolUseId, name } = toolUse;
    if (typeof toolUseId !== 'string' || typeof name !== 'string') {
      throw ProviderError.invalid('a tool call has no name or id');
    }
    if (this.#answers && name === ANSWER_TOOL) {
      this.#openTool = 'answer';
      return;
    }
    this.#openTool = 'tool';
    this.#out += this.#writer.toolStart(this.#tools, toolUseId, name);
    this.#tools += 1;
  }

  #delta({ text, toolUse, reasoningContent }: Record<string, unknown>): void {
    if (typeof text === 'string') this.#out += this.#writer.text(text);
    else if (isRecord(toolUse)) {
      const { input } = toolUse;
      if (typeof input !== 'string') throw ProviderError.invalid("a tool's input is no string");
      if (this.#openTool === 'answer') this.#out += this.#writer.text(input);
      else if (this.#openTool === 'tool') this.#out += this.#writer.toolArguments(this.#tools - 1, input);
    } else if (isRecord(reasoningContent)) this.#reasoning(reasoningContent);
  }

  #reasoning({ text, signature, redactedContent }: Record<string, unknown>): void {
    if (typeof text === 'string') this.#out += this.#writer.reasoning(text);
    else if (typeof redactedContent === 'string') this.#thinking(redactedBlock(redactedContent));
    else if (typeof signature === 'string') {
      this.#signature += signature;
      if (this.#signature.length > SSE_EVENT_BYTES_MAX)
        throw ProviderError.invalid('a signature is too long');
    }
  }

  #stop(): void {
    this.#openTool = 'none';
    if (this.#signature === '') return;
    this.#thinking({ type: 'thinking', thinking: '', signature: this.#signature });
    this.#signature = '';
  }

  /** Its text went out as `reasoning_content`. */
  #thinking(block: ThinkingBlock): void {
    this.#out += this.#writer.delta(JSON.stringify({ thinking_blocks: [block] }));
  }
}
