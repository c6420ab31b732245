/**
 * Translates a chat completion into the events of the Responses API, chunk by chunk, and into the `response`
 * object at the end. responses-dialect.ts makes one for each stream, and for each response that is not
 * streamed, whose message counts as one large chunk. Upstream worker.
 *
 *     response.created, response.in_progress             with the first chunk
 *     response.output_item.added … done                  reasoning, then the message, then tool calls: an
 *                                                        item ends when another kind begins; tool calls,
 *                                                        whose pieces may alternate, end together
 *     response.completed, response.incomplete            at the end, with the usage
 *
 * Must hold: the deltas of an item, joined, are its text; the ended items are the output; sequence numbers
 * have no gaps (test/unit/doors/responses/response-stream.test.ts).
 */
import { isRecord, type Members } from '../../core/json.js';
import type { DoorCall, DoorStream } from '../door.js';
import {
  textOf,
  thoughtsOf,
  addPiece,
  canBegin,
  isOtherCall,
  pieceOf,
  type CallSoFar,
} from '../message-parts.js';
import { encryptedContent, namespacesIn } from './request-items.js';
import { headOf, responseObject, type ResponseHead, type ResponseState } from './response-object.js';

type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

/** An output item that is being written. */
interface OpenItem {
  readonly index: number;
  readonly item: Record<string, unknown> & { readonly id: string; readonly type: string };
  /** Returns the events that end the item and the text of its last part, in order. */
  readonly close: (status: ItemStatus) => string;
}

interface OpenReasoning extends OpenItem {
  text: string;
  readonly blocks: unknown[];
  /** The end of `text` that no signed block covers yet. */
  unsigned: string;
}

/** A part of the message. Its text is in the member that its type names. */
interface OpenPart {
  readonly type: 'output_text' | 'refusal';
  readonly index: number;
  text: string;
  readonly logprobs: unknown[];
}

interface OpenMessage extends OpenItem {
  readonly content: object[];
  part: OpenPart | undefined;
}

interface OpenCall extends OpenItem, CallSoFar {
  /** The client knows the item; it does not until the upstream has told its name. */
  isAdded: boolean;
}

export class ResponseStream implements DoorStream {
  readonly #call: DoorCall;
  readonly #isStream: boolean;
  readonly #output: object[] = [];
  #head: ResponseHead | undefined;
  #sequence = 0;
  #usage: unknown;
  #serviceTier: unknown;
  #finish: unknown;
  #reasoning: OpenReasoning | undefined;
  #message: OpenMessage | undefined;
  /** The open tool calls, by their positions in the message. */
  readonly #calls = new Map<unknown, OpenCall>();
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

  /** Keeps a block that the provider has signed. In a stream its text has come before. */
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

  /** Events for a tool call, or for a piece of its arguments. `position`: in the delta. */
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
        const events = open.isAdded ? '' : this.#addCall(open);
        const { item, index, json } = open;
        Object.assign(item, { status, [textName]: json });
        const at = { item_id: item.id, output_index: index, name: item.name, [textName]: json };
        return events + this.#event(`${eventsOf(open)}.done`, at);
      },
    };
    return [open, events];
  }

  /** Tells the client of a call, with the arguments that have come by now. */
  #addCall(open: OpenCall): string {
    open.isAdded = true;
    // The caller sends the id back beside those of earlier responses. 40 characters are OpenAI's bound.
    const { index, item, id = `call_${this.#call.requestId.slice(-28)}_${index}`, name = '', json } = open;
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
  #addItem(
    prefix: string,
    members: Members & { readonly type: string },
  ): [Pick<OpenItem, 'index' | 'item'>, string] {
    const base = this.#newItem(prefix, members);
    return [base, this.#itemAdded(base)];
  }

  #newItem(prefix: string, members: Members & { readonly type: string }): Pick<OpenItem, 'index' | 'item'> {
    const index = this.#output.length;
    const item = { id: `${prefix}_${this.#call.requestId}_${index}`, ...members };
    this.#output.push(item);
    return { index, item };
  }

  #itemAdded({ index, item }: Pick<OpenItem, 'index' | 'item'>): string {
    return this.#event('response.output_item.added', { output_index: index, item });
  }

  #itemDone({ index, item }: Pick<OpenItem, 'index' | 'item'>): string {
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

function eventsOf({ item }: OpenCall): string {
  return item.type === 'function_call'
    ? 'response.function_call_arguments'
    : 'response.custom_tool_call_input';
}

function positionOf({ item, index, part }: OpenMessage): object {
  return { item_id: item.id, output_index: index, content_index: part!.index };
}

function partOf({ type, text, logprobs }: OpenPart): object {
  return type === 'output_text'
    ? { type, annotations: [], logprobs: [...logprobs], text }
    : { type, refusal: text };
}
