/**
 * Translates a chat completion into the events of the Responses API, chunk by chunk, and into the `response`
 * object at the end. responses-dialect.ts makes one for each stream, and for each response that is not
 * streamed, whose message counts as one large chunk. upstream/door-call.ts calls `push` and `end`. Upstream
 * worker.
 *
 *     response.created, response.in_progress             with the first chunk
 *     response.output_item.added … done                  reasoning, then the message, then tool calls: an
 *                                                        item ends when another kind begins; tool calls,
 *                                                        whose pieces may alternate, end together
 *     response.completed, response.incomplete            at the end, with the usage
 *
 * If the upstream breaks off, `end` is not called: the listener then writes the door's error event.
 *
 * Must hold: the deltas of an item, joined, are its text; the ended items are the output, and each was added
 * once before it was done; sequence numbers have no gaps (test/unit/doors/responses/response-stream.test.ts).
 */
import { isRecord, type Members } from '../../core/json.js';
import type { DoorCall, DoorStream } from '../door.js';
import { textOf, thoughtsOf, addPiece, canBegin, isOtherCall, pieceOf } from '../message-parts.js';
import { encryptedContent } from './encrypted-content.js';
import { namespacesIn } from './tool-names.js';
import {
  eventsOf,
  headOf,
  type ItemStatus,
  type OpenCall,
  type OpenMessage,
  type OpenPart,
  type OpenReasoning,
  partOf,
  type PlacedItem,
  positionOf,
  responseObject,
  type ResponseHead,
  type ResponseState,
} from './response-object.js';

export class ResponseStream implements DoorStream {
  readonly #call: DoorCall;
  readonly #isStream: boolean;
  /**
   * The items, in the order of their `output_index`. An item is changed until it is done. An event has it as
   * it was when the event was written, because that is text.
   */
  readonly #output: object[] = [];
  #head: ResponseHead | undefined;
  #sequence = 0;
  #usage: unknown;
  #serviceTier: unknown;
  #finish: unknown;
  #reasoning: OpenReasoning | undefined;
  #message: OpenMessage | undefined;
  /** The open tool calls, by the index that their pieces have, or else by their positions in the delta. */
  readonly #calls = new Map<unknown, OpenCall>();
  /** For tools in namespaces: name and namespace at this door, by the name in the chat completion. */
  readonly #namespaces: ReturnType<typeof namespacesIn>;

  /** `isStream`: `push` and `end` return events; else only `response` is used. */
  constructor(call: DoorCall, isStream: boolean) {
    this.#call = call;
    this.#namespaces = namespacesIn(call.body.tools);
    this.#isStream = isStream;
  }

  /** `chunk`: a chunk, or a chat completion that is not streamed. */
  push(chunk: Members): string {
    const events = this.#start(chunk);
    this.#usage = chunk.usage ?? this.#usage;
    this.#serviceTier = chunk.service_tier ?? this.#serviceTier;
    const choice: unknown = Array.isArray(chunk.choices) ? chunk.choices[0] : undefined;
    if (!isRecord(choice)) return events;
    this.#finish = choice.finish_reason ?? this.#finish;
    const delta = choice.delta ?? choice.message;
    return isRecord(delta) ? events + this.#translate(delta, choice.logprobs) : events;
  }

  /** The last events. The output is incomplete if the upstream has cut it: its last item is too. */
  end(): string {
    const { reason } = this.#state;
    const events = this.#start({}) + this.#closeAll(reason === undefined ? 'completed' : 'incomplete');
    return (
      events +
      this.#responseEvent(reason === undefined ? 'response.completed' : 'response.incomplete', this.#state)
    );
  }

  /** The first events, with the first chunk. */
  #start(chunk: Members): string {
    if (this.#head !== undefined) return '';
    this.#head = headOf(chunk, this.#call);
    return ['response.created', 'response.in_progress']
      .map((type) => this.#responseEvent(type, { status: 'in_progress', output: [] }))
      .join('');
  }

  /** The `response` object. Call after `end`. */
  get response(): object {
    return responseObject(this.#head!, this.#call, this.#state);
  }

  get #state(): ResponseState {
    const reason =
      this.#finish === 'length'
        ? 'max_output_tokens'
        : this.#finish === 'content_filter'
          ? 'content_filter'
          : undefined;
    return {
      status: reason === undefined ? 'completed' : 'incomplete',
      reason,
      output: this.#output,
      usage: this.#usage,
      serviceTier: this.#serviceTier,
    };
  }

  /** Events for a delta, or for a whole message. */
  #translate(delta: Members, logprobs: unknown): string {
    let events = '';
    const thoughts = thoughtsOf(delta);
    if (thoughts !== '') events += this.#writeReasoning(thoughts);
    if (Array.isArray(delta.thinking_blocks))
      for (const block of delta.thinking_blocks as unknown[]) events += this.#addSignedBlock(block);
    const text = textOf(delta.content);
    const tokens =
      isRecord(logprobs) && Array.isArray(logprobs.content) ? (logprobs.content as unknown[]) : [];
    if (text !== '') events += this.#writeText('output_text', text, tokens);
    if (typeof delta.refusal === 'string' && delta.refusal !== '')
      events += this.#writeText('refusal', delta.refusal, []);
    if (Array.isArray(delta.tool_calls))
      (delta.tool_calls as unknown[]).forEach((piece, position) => {
        if (isRecord(piece)) events += this.#writeCall(piece, position);
      });
    return events;
  }

  /** Events for a piece of reasoning. */
  #writeReasoning(text: string): string {
    let events = this.#openReasoning();
    const open = this.#reasoning!;
    const at = { item_id: open.item.id, output_index: open.index, summary_index: 0 };
    if (open.text === '') {
      const part = { type: 'summary_text', text: '' };
      events += this.#event('response.reasoning_summary_part.added', { ...at, part });
    }
    open.text += text;
    open.unsigned += text;
    return events + this.#event('response.reasoning_summary_text.delta', { ...at, delta: text });
  }

  /**
   * Keeps a block that the provider has signed. In a stream its text has come before, as thoughts, and the
   * block brings none of its own: so it gets what no earlier block has. Providers sign before the message
   * begins. For a block after that a new reasoning item begins, in which the block stays as it came.
   */
  #addSignedBlock(block: unknown): string {
    if (!isRecord(block)) return '';
    const events = this.#openReasoning();
    const open = this.#reasoning!;
    const isThinking = block.type === 'thinking';
    open.blocks.push(isThinking && block.thinking === '' ? { ...block, thinking: open.unsigned } : block);
    if (isThinking) open.unsigned = '';
    return events;
  }

  #openReasoning(): string {
    if (this.#reasoning !== undefined) return '';
    const closed = this.#closeAll('completed');
    const [base, added] = this.#addItem('rs', { type: 'reasoning', summary: [] });
    const open: OpenReasoning = {
      ...base,
      text: '',
      blocks: [],
      unsigned: '',
      close: () => {
        const { item, index, text, blocks } = open;
        const at = { item_id: item.id, output_index: index, summary_index: 0 };
        const part = { type: 'summary_text', text };
        if (text !== '') item.summary = [part];
        if (blocks.length > 0) item.encrypted_content = encryptedContent({ blocks });
        // Without it the AI SDK and others drop the item. The texts go back in its summary.
        else if (this.#call.thoughtsBack === true) item.encrypted_content = encryptedContent({});
        return text === ''
          ? ''
          : this.#event('response.reasoning_summary_text.done', { ...at, text }) +
              this.#event('response.reasoning_summary_part.done', { ...at, part });
      },
    };
    this.#reasoning = open;
    return closed + added;
  }

  /** Events for a piece of the message. */
  #writeText(type: OpenPart['type'], text: string, logprobs: readonly unknown[]): string {
    let events = this.#openMessage();
    const open = this.#message!;
    if (open.part?.type !== type) {
      events += this.#closePart(open);
      open.part = { type, index: open.content.length, text: '', logprobs: [] };
      open.content.push(partOf(open.part));
      events += this.#event('response.content_part.added', { ...positionOf(open), part: partOf(open.part) });
    }
    open.part.text += text;
    open.part.logprobs.push(...logprobs);
    return type === 'output_text'
      ? events + this.#event('response.output_text.delta', { ...positionOf(open), delta: text, logprobs })
      : events + this.#event('response.refusal.delta', { ...positionOf(open), delta: text });
  }

  #openMessage(): string {
    if (this.#message !== undefined) return '';
    const closed = this.#closeAll('completed');
    const content: object[] = [];
    const item = { type: 'message', status: 'in_progress', role: 'assistant', content: [] };
    const [base, added] = this.#addItem('msg', item);
    const open: OpenMessage = {
      ...base,
      content,
      part: undefined,
      close: (status) => {
        const events = this.#closePart(open);
        Object.assign(open.item, { status, content });
        return events;
      },
    };
    this.#message = open;
    return closed + added;
  }

  #closePart(open: OpenMessage): string {
    const { part } = open;
    if (part === undefined) return '';
    const at = positionOf(open);
    const whole = partOf(part);
    open.content[part.index] = whole;
    const { text, logprobs } = part;
    return (
      (part.type === 'output_text'
        ? this.#event('response.output_text.done', { ...at, text, logprobs })
        : this.#event('response.refusal.done', { ...at, refusal: text })) +
      this.#event('response.content_part.done', { ...at, part: whole })
    );
  }

  /**
   * Events for a tool call, or for a piece of its arguments. `position`: in the delta. The first call ends
   * reasoning and message. A piece of another call at an index that is taken (message-parts.ts) ends all
   * open calls: such a server sends one call after the other.
   */
  #writeCall(call: Members, position: number): string {
    const piece = pieceOf(call);
    const key = piece.index ?? position;
    let open = this.#calls.get(key);
    let events = '';
    const isOther = open !== undefined && isOtherCall(piece, open);
    if (open === undefined || isOther) {
      if (this.#calls.size === 0 || isOther) events += this.#closeAll('completed');
      [open, events] = this.#openCall(call, events);
      this.#calls.set(key, open);
    }
    addPiece(open, piece);
    if (open.isAdded) return events + this.#callDelta(open, piece.json);
    return canBegin(open) ? events + this.#addCall(open) : events;
  }

  /**
   * Takes the next output index for a call. Its item is not added yet, because the client must get the name
   * with it. The returned events are those of `before`, and a whole reasoning item if the call has
   * `extra_content`, the signature of Gemini: so the client sends it back before the call. It is read from
   * the first piece alone: Gemini sends whole calls, each in one piece.
   */
  #openCall(call: Members, before: string): [OpenCall, string] {
    let events = before;
    const extra = call.extra_content;
    if (isRecord(extra)) {
      const content = encryptedContent({ extra });
      const [signed, added] = this.#addItem('rs', {
        type: 'reasoning',
        summary: [],
        encrypted_content: content,
      });
      events += added + this.#itemDone(signed);
    }
    const isCustom = isRecord(call.custom);
    const textName = isCustom ? 'input' : 'arguments';
    const base = this.#newItem(isCustom ? 'ctc' : 'fc', {
      type: isCustom ? 'custom_tool_call' : 'function_call',
      status: 'in_progress',
      call_id: '',
      name: '',
      [textName]: '',
    });
    const open: OpenCall = {
      ...base,
      id: undefined,
      name: undefined,
      json: '',
      isAdded: false,
      close: (status) => {
        const late = open.isAdded ? '' : this.#addCall(open);
        const { item, index, json } = open;
        Object.assign(item, { status, [textName]: json });
        const at = { item_id: item.id, output_index: index, name: item.name, [textName]: json };
        return late + this.#event(`${eventsOf(open)}.done`, at);
      },
    };
    return [open, events];
  }

  /** Tells the client of a call, with the arguments that have come by now. */
  #addCall(open: OpenCall): string {
    open.isAdded = true;
    // If the upstream has sent no id, the caller gets one that no earlier response has, because it sends all
    // of them back in one request. The end of the request id is the part that differs. OpenAI's bound is 40
    // characters: 5 of `call_`, 28, `_`, and up to 6 digits.
    const { index, item, id = `call_${this.#call.requestId.slice(-28)}_${index}`, name = '', json } = open;
    // For a tool in a namespace its own name replaces `name`.
    Object.assign(item, { call_id: id, name, ...this.#namespaces.get(name) });
    return this.#itemAdded(open) + this.#callDelta(open, json);
  }

  #callDelta(open: OpenCall, json: string): string {
    if (json === '') return '';
    const at = { item_id: open.item.id, output_index: open.index, delta: json };
    return this.#event(`${eventsOf(open)}.delta`, at);
  }

  /** Ends all open items; `status` is that of the last one, the others are completed. */
  #closeAll(status: ItemStatus): string {
    const open = [this.#reasoning, this.#message, ...this.#calls.values()].filter(
      (item) => item !== undefined,
    );
    this.#reasoning = undefined;
    this.#message = undefined;
    this.#calls.clear();
    let events = '';
    open.forEach((item, position) => {
      events += item.close(position === open.length - 1 ? status : 'completed') + this.#itemDone(item);
    });
    return events;
  }

  /** Begins an output item. Returns it, and the event for it. */
  #addItem(prefix: string, members: Members & { readonly type: string }): [PlacedItem, string] {
    const base = this.#newItem(prefix, members);
    return [base, this.#itemAdded(base)];
  }

  /** Puts an item into the output, which gives it its index, without an event. */
  #newItem(prefix: string, members: Members & { readonly type: string }): PlacedItem {
    const index = this.#output.length;
    const item = { id: `${prefix}_${this.#call.requestId}_${index}`, ...members };
    this.#output.push(item);
    return { index, item };
  }

  #itemAdded({ index, item }: PlacedItem): string {
    return this.#event('response.output_item.added', { output_index: index, item });
  }

  #itemDone({ index, item }: PlacedItem): string {
    return this.#event('response.output_item.done', { output_index: index, item });
  }

  #responseEvent(type: string, state: ResponseState): string {
    if (!this.#isStream) return '';
    return this.#event(type, { response: responseObject(this.#head!, this.#call, state) });
  }

  #event(type: string, members: object): string {
    if (!this.#isStream) return '';
    return `event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: this.#sequence++, ...members })}\n\n`;
  }
}
