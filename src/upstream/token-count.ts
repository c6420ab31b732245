/**
 * Counts the tokens of a call whose upstream reported none, in slices: a count that is not over when its
 * slice is becomes a CountRest, from which any counter thread goes on. Upstream workers ask for counts
 * (token-estimate.ts), and the main thread passes them to counter threads, where counter-task.ts runs
 * TokenCount. For estimates workers call `countTokens` themselves. Pure.
 *
 * Must hold: no text makes a count throw, or take longer than its slices. A usage of which something was not
 * counted has the source `estimated` (also test/unit/upstream/tiktoken.test.ts).
 */
import { asBuffer } from '../core/bytes.js';
import { CHAT_DOOR } from '../core/door-names.js';
import { invariant } from '../core/errors.js';
import { isRecord, parsedJson } from '../core/json.js';
import { COUNT_SLICES_MAX, TOKENIZER_BYTES_MAX } from '../core/limits.js';
import { ceilDiv } from '../core/units.js';
import { dialectAt } from '../doors/dialects.js';
import { type Usage, usageWithoutParts } from '../core/token-counts.js';
import { FieldError } from '../providers/provider.js';
import { addStreamTexts, keyedResponseTexts, type StreamTexts } from './chat-text.js';
import { type CountedCall, splitTexts } from './echoed-prompt.js';
import { promptOf } from './prompt-text.js';
import type { Tokenizer } from './target.js';
import { estimateTokensOf, type TextCounter, textCounterOf } from './tokenizer.js';

export interface CountRequest extends CountedCall {
  /** Tokens of the body's media parts (`mediaTokensOf`); 0 if left out. */
  readonly mediaTokens?: number;
  /** Whether the upstream gets the thoughts of earlier turns: then they are part of the prompt. */
  readonly thoughtsBack?: boolean | undefined;
  /** For a stream: texts of the events before `completion`. */
  readonly texts: StreamTexts;
  /** The response, or the latest events that were kept. */
  readonly completion: string;
}

/** What is left of a count between two slices. The buffers are transferred. */
export interface CountRest {
  readonly tokenizer: Tokenizer;
  /** The texts that are left, joined, as UTF-16. Each is counted by itself: no token spans two texts. */
  readonly chars: Uint8Array;
  /** Length of each text, in UTF-16 code units. */
  readonly lengths: Uint32Array;
  /** How many of the texts belong to the prompt. The texts of the prompt come first. */
  readonly promptTextCount: number;
  /** How many of the texts after those repeat the prompt (`echoed` of SplitTexts). */
  readonly echoedTextCount: number;
  readonly state: CountState;
}

/** The count so far. */
interface CountState {
  promptTokens: number;
  completionTokens: number;
  /** Tokens of the texts that repeat the prompt, which are in `completionTokens` too. */
  echoedTokens: number;
  /** As in SplitTexts. */
  readonly echoedScale: number;
  /** UTF-8 length and tokens of the counted texts. Texts that get no slice are estimated by their ratio. */
  countedBytes: number;
  countedTokens: number;
  /** Whether the usage gets the source `counted`; otherwise `estimated`. */
  isExact: boolean;
  /** The completion is scaled up by `relayedBytes / completionBytes`. */
  readonly completionBytes: number;
  readonly relayedBytes: number;
  /** How many slices the count has had, at most COUNT_SLICES_MAX. */
  slices: number;
}

/** Tokens besides texts. Source: OpenAI's cookbook, "How to count tokens with tiktoken". */
const MESSAGE_TOKENS = 3;
const NAME_TOKENS = 1;
const PRIMING_TOKENS = 3;

/** A body without a prompt, whose count is 0. */
export const NO_PROMPT = '{}';

/**
 * One count. The usage has no cached and no reasoning tokens. Its source is `counted`, or `estimated` if not
 * all was counted: the tokenizer is `none`, body and response are above TOKENIZER_BYTES_MAX, part of the
 * prompt is not text (images, audio), a part of the response was not kept, or COUNT_SLICES_MAX slices were
 * not enough. No text makes it throw. A megabyte of prose costs about 0.1 s of CPU, of the worst text 0.4 s.
 */
export class TokenCount {
  readonly #tokenizer: Tokenizer;
  readonly #counter: TextCounter | undefined;
  readonly #texts: readonly string[];
  readonly #promptTextCount: number;
  readonly #echoedTextCount: number;
  readonly #state: CountState;
  /** Index of the text that is counted next, and the position in that text. */
  #textIndex = 0;
  #position = 0;

  private constructor(
    { tokenizer, promptTextCount, echoedTextCount, state }: Omit<CountRest, 'chars' | 'lengths'>,
    texts: readonly string[],
    counter: TextCounter | undefined,
  ) {
    this.#tokenizer = tokenizer;
    this.#counter = counter;
    this.#texts = texts;
    this.#promptTextCount = promptTextCount;
    this.#echoedTextCount = echoedTextCount;
    this.#state = state;
  }

  /** Reads the body, whose bytes are bounded. With `promptTokens` the prompt is not counted. */
  static begin(request: CountRequest, promptTokens?: number): TokenCount {
    const { tokenizer, door = CHAT_DOOR, mediaTokens = 0, completionBytes, relayedBytes } = request;
    const body =
      promptTokens === undefined ? countedBodyOf(door, request.body, request.thoughtsBack) : NO_PROMPT;
    const { echoed, written, echoedScale } = splitTexts(completionTexts(request), request);
    const completion = [...echoed, ...written];
    const bytes = completion.reduce((sum, text) => sum + Buffer.byteLength(text), Buffer.byteLength(body));
    const isCounted = tokenizer !== 'none' && bytes <= TOKENIZER_BYTES_MAX;
    const prompt = promptOf(body);
    const isText = mediaTokens === 0 && !prompt.hasMedia;
    const state: CountState = {
      promptTokens:
        mediaTokens +
        (promptTokens ?? 0) +
        (prompt.messageCount === 0 ? 0 : PRIMING_TOKENS) +
        prompt.messageCount * MESSAGE_TOKENS +
        prompt.namedMessageCount * NAME_TOKENS,
      completionTokens: 0,
      echoedTokens: 0,
      echoedScale,
      countedBytes: 0,
      countedTokens: 0,
      isExact: isCounted && isText && relayedBytes <= completionBytes,
      completionBytes,
      relayedBytes,
      slices: 0,
    };
    const counts = { promptTextCount: prompt.texts.length, echoedTextCount: echoed.length };
    const counter = isCounted ? textCounterOf(tokenizer) : undefined;
    return new TokenCount({ tokenizer, ...counts, state }, [...prompt.texts, ...completion], counter);
  }

  static resume({ chars, lengths, ...rest }: CountRest): TokenCount {
    invariant(rest.tokenizer !== 'none', 'an estimate takes one time slice');
    const buffer = asBuffer(chars);
    let end = 0;
    const texts = Array.from(lengths, (length) => buffer.toString('utf16le', end, (end += 2 * length)));
    return new TokenCount(rest, texts, textCounterOf(rest.tokenizer));
  }

  /** The usage; undefined if `endMs` of performance.now() came first: then `rest` is for the next slice. */
  run(endMs: number): Usage | undefined {
    while (this.#textIndex < this.#texts.length) {
      if (this.#countText(endMs)) {
        this.#textIndex++;
        this.#position = 0;
      }
      // An estimate takes no time that is worth a look at the clock.
      if (this.#counter === undefined || performance.now() < endMs) continue;
      if (this.#textIndex === this.#texts.length) break;
      this.#state.slices += 1;
      return this.#state.slices < COUNT_SLICES_MAX ? undefined : this.#estimateRest();
    }
    return this.#usage();
  }

  /** Counts the text at `#textIndex` from `#position` on, until `endMs`. Returns whether the text is over. */
  #countText(endMs: number): boolean {
    const text = this.#texts[this.#textIndex]!;
    if (this.#counter === undefined) {
      this.#add(estimateTokensOf(Buffer.byteLength(text)));
      return true;
    }
    const start = this.#position;
    const tokens = this.#counter.count(text, start, endMs);
    const { end } = this.#counter;
    const counted = end - start === text.length ? text : text.slice(start, end);
    this.#add(tokens);
    this.#state.countedTokens += tokens;
    this.#state.countedBytes += Buffer.byteLength(counted);
    this.#position = end;
    return end === text.length;
  }

  /** What is left after `run` has returned undefined: at least one text. */
  rest(): CountRest {
    const texts = this.#texts.slice(this.#textIndex);
    texts[0] = texts[0]!.slice(this.#position);
    const joined = texts.join('');
    // Memory of its own and not of Node's pool, because that memory is transferred.
    const chars = Buffer.allocUnsafeSlow(2 * joined.length);
    chars.write(joined, 'utf16le');
    const promptTextCount = Math.max(0, this.#promptTextCount - this.#textIndex);
    const inputTextCount = this.#promptTextCount + this.#echoedTextCount - this.#textIndex;
    return {
      tokenizer: this.#tokenizer,
      chars,
      lengths: Uint32Array.from(texts, ({ length }) => length),
      promptTextCount,
      echoedTextCount: Math.max(0, inputTextCount - promptTextCount),
      state: this.#state,
    };
  }

  /** Adds tokens of the text at `#textIndex`, to the prompt or to the completion. */
  #add(tokens: number): void {
    const state = this.#state;
    if (this.#textIndex < this.#promptTextCount) {
      state.promptTokens += tokens;
      return;
    }
    state.completionTokens += tokens;
    if (this.#textIndex < this.#promptTextCount + this.#echoedTextCount) state.echoedTokens += tokens;
  }

  /** Estimates all that is not counted yet, as if it had as many tokens a byte as the counted texts. */
  #estimateRest(): Usage {
    const state = this.#state;
    for (; this.#textIndex < this.#texts.length; this.#textIndex++) {
      const bytes = Buffer.byteLength(this.#texts[this.#textIndex]!.slice(this.#position));
      this.#add(ceilDiv(bytes * state.countedTokens, Math.max(1, state.countedBytes)));
      this.#position = 0;
    }
    state.isExact = false;
    return this.#usage();
  }

  #usage(): Usage {
    const { promptTokens, relayedBytes, completionBytes, echoedTokens, echoedScale, isExact } = this.#state;
    let { completionTokens } = this.#state;
    if (relayedBytes > completionBytes) {
      const relayedTokens = ceilDiv(completionTokens * relayedBytes, Math.max(1, completionBytes));
      completionTokens = Math.max(0, relayedTokens - Math.round(echoedTokens * echoedScale));
    }
    return usageWithoutParts({ promptTokens, completionTokens, source: isExact ? 'counted' : 'estimated' });
  }
}

/** Counts everything in one time slice. `promptTokens`: as in TokenCount.begin. */
export function countTokens(request: CountRequest, promptTokens?: number): Usage {
  const usage = TokenCount.begin(request, promptTokens).run(Infinity);
  invariant(usage !== undefined, 'without an end of its slice a count ends');
  return usage;
}

/** The texts of the response by their keys (StreamTexts). */
function completionTexts({ completionForm, completion, texts }: CountRequest): [string, string][] {
  if (completionForm === 'none') return [];
  if (completionForm === 'response') return keyedResponseTexts(completion);
  const streamTexts = new Map(texts);
  addStreamTexts(streamTexts, Buffer.from(completion), Infinity);
  return [...streamTexts];
}

/** The body as a chat completion has it, for a count of its prompt. The door has checked it. */
function countedBodyOf(
  door: number,
  body: string | Uint8Array,
  thoughtsBack: boolean | undefined,
): string | Uint8Array {
  const dialect = dialectAt(door);
  const text = dialect === undefined || typeof body === 'string' ? body : Buffer.from(body).toString();
  if (dialect === undefined || typeof text !== 'string') return body;
  const members = parsedJson(text);
  if (!isRecord(members)) return NO_PROMPT;
  if (dialect.promptTexts !== undefined) {
    const texts = dialect.promptTexts(members);
    return texts.length === 0 ? NO_PROMPT : JSON.stringify(texts);
  }
  try {
    return JSON.stringify(dialect.translator?.toChat(members, { thoughtsBack }) ?? members);
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    // A chat completion cannot express the body: promptOf finds texts in the body as it is.
    return text;
  }
}
