/**
 * Translates a stream of Gemini's `streamGenerateContent?alt=sse` into chunks of a chat completion. gemini.ts
 * and vertex/vertex.ts make one GeminiStream for each stream; translated-call.ts calls `push` and `end`.
 * Upstream worker.
 *
 * Follows https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent (v1beta), read
 * 2026-11. Each event is a response with the new parts; a function call is whole in one part. Usage is in
 * each event (stream-usage.ts). No event marks the end: the stream ends with the body.
 *
 * Must hold: memory is bounded. A stream keeps the event that is not whole yet, the template and one event
 * that matches it, the last usage (StreamUsage), and counters for each candidate
 * (test/unit/providers/gemini/stream.test.ts, test/unit/providers/long-events.test.ts). An event that
 * text-template.ts reads without a parse means what the parsed event would mean.
 */
import { isUtf8 } from 'node:buffer';
import { exactJson } from '../../core/exact-json.js';
import { isRecord } from '../../core/json.js';
import { UPSTREAM_RESPONSE_BYTES_MAX } from '../../core/limits.js';
import { forEachData, SseSplitter } from '../../protocol/sse.js';
import { ChunkWriter, type FinishReason, type TextMember } from '../chat-writer.js';
import { ProviderError, type UnsignedCall, type ProviderStream } from '../provider.js';
import type { ProviderUsage } from '../provider-usage.js';
import { throwIfError } from './errors.js';
import {
  audioIdOf,
  finishOf,
  idOf,
  imageOf,
  indexOf,
  isBlocked,
  logprobsOf,
  mediaOf,
  modelOf,
  partsOf,
  signatureMember,
  toolCallOf,
} from './response.js';
import { StreamUsage } from './stream-usage.js';
import { TextTemplate } from './text-template.js';

interface CandidateState {
  calls: number;
  images: number;
  finish: FinishReason | undefined;
  /** Whether the chunk with the finish reason was written. False again if a part comes after all. */
  isClosed: boolean;
}

export class GeminiStream implements ProviderStream {
  readonly #call: UnsignedCall;
  /** An event may be as long as a whole response, because an image comes in one event. */
  readonly #splitter = new SseSplitter(UPSTREAM_RESPONSE_BYTES_MAX);
  /** By index of the candidate (`indexOf`), which is below CHOICES_MAX. */
  readonly #candidates = new Map<number, CandidateState>();
  /** Made of the last parsed event with text alone; events that match it are not parsed. */
  readonly #textTemplate = new TextTemplate();
  #writer: ChunkWriter | undefined;
  readonly #reportsUsageEarly: boolean;
  /** The candidate's index and the delta's member for events that match the template. */
  #templateIndex = 0;
  #templateMember: TextMember = 'content';
  readonly #usage = new StreamUsage();

  constructor(call: UnsignedCall) {
    this.#call = call;
    const { stream_options: options } = call.body;
    this.#reportsUsageEarly = isRecord(options) && options.continuous_usage_stats === true;
  }

  get bufferBytes(): number {
    return this.#splitter.bufferBytes;
  }

  get usageSoFar(): ProviderUsage | undefined {
    return this.#usage.last;
  }

  push(bytes: Uint8Array): string {
    const events = this.#splitter.push(bytes);
    if (events === undefined) throw ProviderError.invalid('an event is too long');
    return this.#chunksOf(events);
  }

  end(): string {
    let chunks = this.#chunksOf(this.#splitter.end());
    const writer = this.#writer;
    if (writer === undefined || this.#candidates.size === 0) throw ProviderError.invalid('an empty stream');
    for (const [index, { finish, isClosed }] of this.#candidates) {
      if (finish === undefined) throw ProviderError.invalid('the stream ended before its end');
      if (!isClosed) chunks += writer.finish(finish, index);
    }
    return chunks + this.#usageChunk(writer) + writer.done();
  }

  /** All candidates that the request asks for have finished. Google may send fewer. */
  get #isWhole(): boolean {
    const { n } = this.#call.body;
    if (this.#candidates.size < (typeof n === 'number' ? n : 1)) return false;
    for (const { finish } of this.#candidates.values()) if (finish === undefined) return false;
    return true;
  }

  #usageChunk(writer: ChunkWriter): string {
    const usage = this.#usage.next();
    return usage === undefined ? '' : writer.usage(usage);
  }

  #chunksOf(events: Buffer): string {
    if (events.length === 0) return '';
    if (!isUtf8(events)) throw ProviderError.invalid('an event is no UTF-8');
    let chunks = '';
    forEachData(events, (data) => {
      if (data !== '') chunks += this.#chunkByTemplate(data) ?? this.#chunksOfEvent(data);
    });
    return chunks;
  }

  /** The chunk for an event that matches the template; undefined for any other. */
  #chunkByTemplate(data: string): string | undefined {
    const text = this.#textTemplate.textIn(data);
    if (text === undefined || this.#candidates.get(this.#templateIndex)?.isClosed !== false) return undefined;
    this.#usage.matchedEvent(data, text !== '');
    // `!`: the template is learned of a parsed event, which made the writer.
    return text === '' ? '' : this.#writer!.piece(this.#templateMember, text, this.#templateIndex);
  }

  /** Learns the template of a parsed event, if events that match can differ in text and counts alone. */
  #learn(data: string, candidates: readonly unknown[], event: Record<string, unknown>): void {
    const [candidate] = candidates;
    if (candidates.length !== 1 || !isRecord(candidate) || event.promptFeedback !== undefined) return;
    const parts = partsOf(candidate);
    const [part] = parts;
    if (parts.length !== 1 || !isRecord(part) || typeof part.text !== 'string') return;
    const { finishReason, logprobsResult, index = 0 } = candidate;
    // Each of these members may differ in the next event, so an event with one of them is no template.
    if ((finishReason ?? logprobsResult ?? part.thoughtSignature) !== undefined) return;
    if (!this.#textTemplate.learn(data)) return;
    this.#templateIndex = index as number;
    this.#templateMember = part.thought === true ? 'reasoning_content' : 'content';
  }

  #chunksOfEvent(data: string): string {
    // Integers of 64 bits matter in arguments of tools alone, so only such events are searched for them.
    const event = exactJson(data, 'functionCall');
    if (!isRecord(event)) throw ProviderError.invalid('an event is no JSON object');
    // The client has all of the text, so an error changes nothing.
    if (this.#isWhole && isRecord(event.error)) return '';
    throwIfError(event);
    const writer = (this.#writer ??= new ChunkWriter(
      idOf(event, this.#call),
      modelOf(event, this.#call),
      Math.floor(this.#call.nowMs / 1_000),
    ));
    this.#usage.parsedEvent(event);
    const { candidates } = event;
    // A refusal after candidates have come finishes no candidate: `end` rejects the stream if one is
    // unfinished.
    if (!Array.isArray(candidates) || candidates.length === 0) {
      if (isBlocked(event) && this.#candidates.size === 0) return this.#chunksOfRefusal(writer);
      return this.#isWhole ? this.#usageChunk(writer) : '';
    }
    let chunks = '';
    for (let position = 0; position < candidates.length; position++) {
      const candidate = (candidates as unknown[])[position];
      if (!isRecord(candidate)) throw ProviderError.invalid('a candidate is no object');
      chunks += this.#chunksOfCandidate(writer, candidate, position);
    }
    // At once, because the body may never end.
    if (this.#isWhole) chunks += this.#usageChunk(writer);
    this.#learn(data, candidates as unknown[], event);
    return chunks;
  }

  #chunksOfRefusal(writer: ChunkWriter): string {
    this.#candidates.set(0, { calls: 0, images: 0, finish: 'content_filter', isClosed: true });
    return writer.role() + writer.finish('content_filter');
  }

  /** `position`: of the candidate in its event, used if the candidate has no index. */
  #chunksOfCandidate(writer: ChunkWriter, candidate: Record<string, unknown>, position: number): string {
    const index = indexOf(candidate, position);
    let chunks = '';
    let state = this.#candidates.get(index);
    if (state === undefined) {
      state = { calls: 0, images: 0, finish: undefined, isClosed: false };
      this.#candidates.set(index, state);
      chunks = writer.role(index, this.#reportsUsageEarly ? this.#usage.last : undefined);
    }
    const logprobs = logprobsOf(candidate);
    let partChunks = logprobs === undefined ? '' : writer.delta('{}', index, JSON.stringify(logprobs));
    for (const part of partsOf(candidate))
      if (isRecord(part)) partChunks += this.#chunkOfPart(writer, part, index, state);
    if (partChunks !== '') {
      chunks += partChunks;
      state.isClosed = false;
      // A call that comes after the finish. Other finishes stay, as in `finishOf`.
      if (state.finish === 'stop' && state.calls > 0) state.finish = 'tool_calls';
      this.#usage.part();
    }
    if (typeof candidate.finishReason === 'string') {
      state.finish = finishOf(candidate.finishReason, { hasCalls: state.calls > 0 });
      if (!state.isClosed) chunks += writer.finish(state.finish, index);
      state.isClosed = true;
    }
    return chunks;
  }

  #chunkOfPart(
    writer: ChunkWriter,
    part: Record<string, unknown>,
    index: number,
    state: CandidateState,
  ): string {
    const { text, thoughtSignature, functionCall } = part;
    if (typeof text === 'string') {
      // The signature of a thought is dropped, as in response.ts.
      if (part.thought === true) return text === '' ? '' : writer.reasoning(text, index);
      const plain = text === '' ? '' : writer.text(text, index);
      if (thoughtSignature === undefined) return plain;
      return plain + writer.delta(JSON.stringify(signatureMember(part)), index);
    }
    if (isRecord(functionCall)) {
      const number = state.calls++;
      const tool = { index: number, ...toolCallOf(functionCall, part, this.#call, index, number) };
      return writer.delta(`{"tool_calls":[${JSON.stringify(tool)}]}`, index);
    }
    const media = mediaOf(part);
    if (media === undefined) return '';
    if (media.isAudio) {
      const audio = { id: audioIdOf(this.#call, index), data: media.data };
      return writer.delta(JSON.stringify({ audio }), index);
    }
    return writer.delta(JSON.stringify({ images: [imageOf(media, part, state.images++)] }), index);
  }
}
