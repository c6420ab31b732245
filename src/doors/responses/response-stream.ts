/**
 * Translates a chat completion into the events of the Responses API, chunk by chunk, and into the `response`
 * object at the end. responses-dialect.ts makes a ResponseStream for each stream, and each whole response,
 * which counts as one large chunk. upstream/door-call.ts calls `push` and `end`. Upstream worker.
 *
 *     response.created, .in_progress      with the first chunk
 *     response.output_item.added … done   reasoning, then the message, then tool calls: an item ends when
 *                                         another kind begins; tool calls end together, with whole items of
 *                                         signatures between them (`#writeCallSignature`)
 *     response.completed, .incomplete     at the end, with the usage
 *
 * If the upstream's stream breaks off, `end` is not called, and the listener writes the door's error event.
 *
 * Must hold: the deltas of an item, joined, are its text. The ended items are the output, and each was added
 * once before it was done. Sequence numbers have no gaps, so events are returned in the order of making.
 */
import { isRecord, type Members } from '../../core/json.js';
import { sseEvent } from '../../protocol/sse.js';
import type { DoorCall, DoorStream } from '../door.js';
import { finishReasonAfter } from '../finish-reason.js';
import { textOf, thoughtsOf } from '../message-parts.js';
import {
  addPiece,
  beginsOtherToolCall,
  canSendToolCall,
  isRestOfClosedCall,
  toolCallPieceOf,
} from '../tool-call-pieces.js';
import { encryptedContent } from './encrypted-content.js';
import { namesByFlatName } from './tool-names.js';
import {
  eventTypeStartOf,
  headOf,
  incompleteReasonOf,
  itemIdOf,
  type ItemStatus,
  type OpenToolCall,
  type OpenMessage,
  type OpenPart,
  type OpenReasoning,
  outputPartOf,
  type PlacedItem,
  partPositionOf,
  responseObject,
  type ResponseHead,
  type ResponseState,
} from './response-object.js';

/** A private method that returns a text returns the events that it makes; its caller joins them in order. */
export class ResponseStream implements DoorStream {
  readonly #call: DoorCall;
  readonly #isStream: boolean;
  /**
   * The items, in the order of their `output_index`. An item is changed until it is done; events are text, so
   * a later change does not reach them.
   */
  readonly #output: object[] = [];
  #head: ResponseHead | undefined;
  #nextSequenceNumber = 0;
  // The last values that a chunk has brought, in the form of a chat completion.
  #usage: unknown;
  #serviceTier: unknown;
  #finishReason: unknown;
  /** The open items: reasoning or the message or tool calls, whose pieces may alternate. Never two kinds. */
  #reasoning: OpenReasoning | undefined;
  #message: OpenMessage | undefined;
  /** The open tool calls, by the index of their pieces; without an index, by their position in the delta. */
  readonly #openCalls = new Map<unknown, OpenToolCall>();
  readonly #closedCalls = new Map<unknown, OpenToolCall>();
  /** For tools in namespaces: name and namespace at this door, by the name in the chat completion. */
  readonly #namespaces: ReturnType<typeof namesByFlatName>;

  /** If the call is no stream, `push` and `end` return '', and `response` is read at the end. */
  constructor(call: DoorCall) {
    this.#call = call;
    this.#namespaces = namesByFlatName(call.body.tools);
    this.#isStream = call.stream;
  }

  /** `chunk`: a chunk, or a chat completion that is not streamed. */
  push(chunk: Members): string {
    const events = this.#startResponse(chunk);
    this.#usage = chunk.usage ?? this.#usage;
    this.#serviceTier = chunk.service_tier ?? this.#serviceTier;
    const choice: unknown = Array.isArray(chunk.choices) ? chunk.choices[0] : undefined;
    if (!isRecord(choice)) return events;
    this.#finishReason = finishReasonAfter(choice, this.#finishReason);
    const delta = choice.delta ?? choice.message;
    return isRecord(delta) ? events + this.#writeDelta(delta, choice.logprobs) : events;
  }

  /** Returns the last events. `#responseState` says whether response and last item are incomplete. */
  end(): string {
    // The state refers to the items themselves, so it has the changes that `#closeAll` makes below.
    const state = this.#responseState;
    const isWhole = state.reason === undefined;
    const events = this.#startResponse({}) + this.#closeAll(isWhole ? 'completed' : 'incomplete');
    return events + this.#responseEvent(isWhole ? 'response.completed' : 'response.incomplete', state);
  }

  /** The first events, if `chunk` is the first chunk; otherwise ''. */
  #startResponse(chunk: Members): string {
    if (this.#head !== undefined) return '';
    this.#head = headOf(chunk, this.#call);
    return ['response.created', 'response.in_progress']
      .map((type) => this.#responseEvent(type, { status: 'in_progress', output: [] }))
      .join('');
  }

  /** Call after `end`. */
  get response(): object {
    return responseObject(this.#head!, this.#call, this.#responseState);
  }

  get #responseState(): ResponseState {
    const reason = incompleteReasonOf(this.#finishReason);
    return {
      status: reason === undefined ? 'completed' : 'incomplete',
      reason,
      output: this.#output,
      usage: this.#usage,
      serviceTier: this.#serviceTier,
    };
  }

  #writeDelta(delta: Members, logprobs: unknown): string {
    let events = '';
    const thoughts = thoughtsOf(delta);
    if (thoughts !== '') events += this.#writeReasoning(thoughts);
    if (Array.isArray(delta.thinking_blocks))
      for (const block of delta.thinking_blocks as unknown[]) events += this.#addSignedBlock(block);
    const text = textOf(delta.content);
    const textLogprobs =
      isRecord(logprobs) && Array.isArray(logprobs.content) ? (logprobs.content as unknown[]) : [];
    if (text !== '') events += this.#writeText('output_text', text, textLogprobs);
    if (typeof delta.refusal === 'string' && delta.refusal !== '')
      events += this.#writeText('refusal', delta.refusal, []);
    if (Array.isArray(delta.tool_calls))
      (delta.tool_calls as unknown[]).forEach((piece, position) => {
        if (isRecord(piece)) events += this.#writeToolCall(piece, position);
      });
    return events;
  }

  #writeReasoning(text: string): string {
    let events = this.#openReasoning();
    const reasoning = this.#reasoning!;
    const position = { item_id: reasoning.item.id, output_index: reasoning.index, summary_index: 0 };
    if (reasoning.text === '') {
      const part = { type: 'summary_text', text: '' };
      events += this.#eventText('response.reasoning_summary_part.added', { ...position, part });
    }
    reasoning.text += text;
    reasoning.unsigned += text;
    return events + this.#eventText('response.reasoning_summary_text.delta', { ...position, delta: text });
  }

  /**
   * Adds a signed block to the open reasoning item. The text of a streamed block has come before, as
   * thoughts: so it gets the text that no earlier block has. A block after the message begins a new item.
   */
  #addSignedBlock(block: unknown): string {
    if (!isRecord(block)) return '';
    const events = this.#openReasoning();
    const reasoning = this.#reasoning!;
    const isThinking = block.type === 'thinking';
    reasoning.blocks.push(
      isThinking && block.thinking === '' ? { ...block, thinking: reasoning.unsigned } : block,
    );
    if (isThinking) reasoning.unsigned = '';
    return events;
  }

  /** Opens a reasoning item unless one is open. Returns the events for that; '' if one was open. */
  #openReasoning(): string {
    if (this.#reasoning !== undefined) return '';
    const closingEvents = this.#closeAll('completed');
    const [placed, added] = this.#addItem('rs', { type: 'reasoning', summary: [] });
    const reasoning: OpenReasoning = {
      ...placed,
      text: '',
      blocks: [],
      unsigned: '',
      close: () => {
        const { item, index, text, blocks } = reasoning;
        const position = { item_id: item.id, output_index: index, summary_index: 0 };
        const part = { type: 'summary_text', text };
        if (text !== '') item.summary = [part];
        if (blocks.length > 0) item.encrypted_content = encryptedContent({ blocks });
        // Clients such as the AI SDK send no item back without the member. The summary has the thoughts.
        else if (this.#call.thoughtsBack === true) item.encrypted_content = encryptedContent({});
        return text === ''
          ? ''
          : this.#eventText('response.reasoning_summary_text.done', { ...position, text }) +
              this.#eventText('response.reasoning_summary_part.done', { ...position, part });
      },
    };
    this.#reasoning = reasoning;
    return closingEvents + added;
  }

  #writeText(type: OpenPart['type'], text: string, logprobs: readonly unknown[]): string {
    let events = this.#openMessage();
    const message = this.#message!;
    if (message.part?.type !== type) {
      events += this.#closePart(message);
      message.part = { type, index: message.content.length, text: '', logprobs: [] };
      message.content.push(outputPartOf(message.part));
      events += this.#eventText('response.content_part.added', {
        ...partPositionOf(message),
        part: outputPartOf(message.part),
      });
    }
    message.part.text += text;
    for (const logprob of logprobs) message.part.logprobs.push(logprob);
    return type === 'output_text'
      ? events +
          this.#eventText('response.output_text.delta', { ...partPositionOf(message), delta: text, logprobs })
      : events + this.#eventText('response.refusal.delta', { ...partPositionOf(message), delta: text });
  }

  /** Opens the message unless it is open. Returns the events for that; '' if it was open. */
  #openMessage(): string {
    if (this.#message !== undefined) return '';
    const closingEvents = this.#closeAll('completed');
    const content: object[] = [];
    const item = { type: 'message', status: 'in_progress', role: 'assistant', content: [] };
    const [placed, added] = this.#addItem('msg', item);
    const message: OpenMessage = {
      ...placed,
      content,
      part: undefined,
      close: (status) => {
        const events = this.#closePart(message);
        Object.assign(message.item, { status, content });
        return events;
      },
    };
    this.#message = message;
    return closingEvents + added;
  }

  #closePart(message: OpenMessage): string {
    const { part } = message;
    if (part === undefined) return '';
    const position = partPositionOf(message);
    const wholePart = outputPartOf(part);
    message.content[part.index] = wholePart;
    const { text, logprobs } = part;
    return (
      (part.type === 'output_text'
        ? this.#eventText('response.output_text.done', { ...position, text, logprobs })
        : this.#eventText('response.refusal.done', { ...position, refusal: text })) +
      this.#eventText('response.content_part.done', { ...position, part: wholePart })
    );
  }

  /**
   * Events for a tool call, or for a piece of its arguments. `position`: in the delta. The first call ends
   * reasoning and message. A piece of another call at the index of an open call (`beginsOtherToolCall`) ends
   * all open calls: such a server sends one call after the other. Throws as `isRestOfClosedCall` does.
   */
  #writeToolCall(toolCall: Members, position: number): string {
    const piece = toolCallPieceOf(toolCall);
    const key = piece.index ?? position;
    let openCall = this.#openCalls.get(key);
    if (openCall === undefined && isRestOfClosedCall(piece, this.#closedCalls.get(key))) return '';
    let events = '';
    const isOther = openCall !== undefined && beginsOtherToolCall(piece, openCall);
    if (openCall === undefined || isOther) {
      if (this.#openCalls.size === 0 || isOther) events += this.#closeAll('completed');
      events += this.#writeCallSignature(toolCall.extra_content);
      openCall = this.#newToolCall(isRecord(toolCall.custom));
      this.#openCalls.set(key, openCall);
    }
    addPiece(openCall, piece);
    if (openCall.isAdded) return events + this.#toolCallDelta(openCall, piece.json);
    return canSendToolCall(openCall) ? events + this.#writeCallAdded(openCall) : events;
  }

  /**
   * A whole reasoning item with the signature of a tool call (Gemini's `extra_content`), which the client
   * sends back before the call. Gemini sends whole calls, so the first piece has it.
   */
  #writeCallSignature(extra: unknown): string {
    if (!isRecord(extra)) return '';
    const content = encryptedContent({ extra });
    const members = { type: 'reasoning', summary: [], encrypted_content: content };
    const [signed, added] = this.#addItem('rs', members);
    return added + this.#itemDone(signed);
  }

  /** Gives a tool call the next output index. Writes no event yet, because that event must have the name. */
  #newToolCall(isCustom: boolean): OpenToolCall {
    const textName = isCustom ? 'input' : 'arguments';
    const placed = this.#newItem(isCustom ? 'ctc' : 'fc', {
      type: isCustom ? 'custom_tool_call' : 'function_call',
      status: 'in_progress',
      call_id: '',
      name: '',
      [textName]: '',
    });
    const openCall: OpenToolCall = {
      ...placed,
      id: undefined,
      name: undefined,
      json: '',
      isAdded: false,
      close: (status) => {
        // If not added yet, the upstream has ended without the name or id for which the event waited.
        const added = openCall.isAdded ? '' : this.#writeCallAdded(openCall);
        const { item, index, json } = openCall;
        Object.assign(item, { status, [textName]: json });
        const members = { item_id: item.id, output_index: index, name: item.name, [textName]: json };
        return added + this.#eventText(`${eventTypeStartOf(openCall)}.done`, members);
      },
    };
    return openCall;
  }

  #writeCallAdded(openCall: OpenToolCall): string {
    openCall.isAdded = true;
    // If the upstream has sent no id, the client gets one that no earlier response has, because the client
    // sends all ids back in one request. Request ids differ at their ends. OpenAI's bound is 40 characters: 5
    // of `call_`, 28 of the request id, `_`, and up to 6 digits (test: 'an id that the server left out …').
    const {
      index,
      item,
      id = `call_${this.#call.requestId.slice(-28)}_${index}`,
      name = '',
      json,
    } = openCall;
    // For a tool in a namespace its own name replaces `name`.
    Object.assign(item, { call_id: id, name, ...this.#namespaces.get(name) });
    return this.#itemAdded(openCall) + this.#toolCallDelta(openCall, json);
  }

  #toolCallDelta(openCall: OpenToolCall, json: string): string {
    if (json === '') return '';
    const members = { item_id: openCall.item.id, output_index: openCall.index, delta: json };
    return this.#eventText(`${eventTypeStartOf(openCall)}.delta`, members);
  }

  /** Ends all open items. `status`: of the last item; the others are completed. */
  #closeAll(status: ItemStatus): string {
    const openItems = [this.#reasoning, this.#message, ...this.#openCalls.values()].filter(
      (item) => item !== undefined,
    );
    this.#reasoning = undefined;
    this.#message = undefined;
    for (const [key, call] of this.#openCalls) this.#closedCalls.set(key, call);
    this.#openCalls.clear();
    let events = '';
    openItems.forEach((item, position) => {
      events += item.close(position === openItems.length - 1 ? status : 'completed') + this.#itemDone(item);
    });
    return events;
  }

  #addItem(prefix: string, members: Members & { readonly type: string }): [PlacedItem, string] {
    const placed = this.#newItem(prefix, members);
    return [placed, this.#itemAdded(placed)];
  }

  /** Puts an item into the output, which gives it its index, without an event. */
  #newItem(prefix: string, members: Members & { readonly type: string }): PlacedItem {
    const index = this.#output.length;
    const item = { id: itemIdOf(prefix, this.#call.requestId, index), ...members };
    this.#output.push(item);
    return { index, item };
  }

  #itemAdded({ index, item }: PlacedItem): string {
    return this.#eventText('response.output_item.added', { output_index: index, item });
  }

  #itemDone({ index, item }: PlacedItem): string {
    return this.#eventText('response.output_item.done', { output_index: index, item });
  }

  #responseEvent(type: string, state: ResponseState): string {
    if (!this.#isStream) return '';
    return this.#eventText(type, { response: responseObject(this.#head!, this.#call, state) });
  }

  /** The text of the next event, which gets the next sequence number; '' if there is no stream. */
  #eventText(type: string, members: object): string {
    if (!this.#isStream) return '';
    return sseEvent(JSON.stringify({ type, sequence_number: this.#nextSequenceNumber++, ...members }), type);
  }
}
