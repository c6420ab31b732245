/**
 * Counts the tokens of a call whose upstream reported none, in slices: a count that is not over when its
 * slice is becomes a CountRest, from which any counter thread goes on. Upstream workers ask for counts
 * (call-usage.ts, count-session.ts), and the main thread passes them to counter threads, where
 * counter-task.ts runs TokenCount. Pure.
 *
 * Must hold: no caller loses its response because of a count. If no count comes, an estimate takes its place,
 * with the source `estimated` (test/unit/upstream/token-count.test.ts,
 * test/unit/upstream/token-count.count-wait.test.ts).
 */
import { asBuffer } from '../core/bytes.js';
import { CHAT_DOOR } from '../core/door-names.js';
import { invariant } from '../core/errors.js';
import { isRecord, parsedJson } from '../core/json.js';
import { COUNT_SLICES_MAX, TOKENIZER_BYTES_MAX } from '../core/limits.js';
import { type AccountIndex, ceilDiv } from '../core/units.js';
import { dialectAt } from '../doors/dialects.js';
import { type Usage, usageWithoutParts } from '../core/token-counts.js';
import { FieldError } from '../providers/provider.js';
import { addStreamTexts, keyedResponseTexts, type StreamTexts } from './chat-text.js';
import type { ErrorLog } from './error-log.js';
import { splitTexts } from './echoed-prompt.js';
import { promptOf } from './prompt-text.js';
import type { Tokenizer } from './target.js';
import { estimateTextTokens, estimateTokensOf, type TextCounter, textCounterOf } from './tokenizer.js';

/** What was relayed: events of a stream, one JSON object (`response`), or nothing. */
type CompletionForm = 'stream' | 'response' | 'none';

export interface CountRequest {
  readonly tokenizer: Tokenizer;
  /** The call's door, as its position in DOOR_NAMES; the door of chat if left out. */
  readonly door?: number;
  /** The request's JSON, in the protocol of that door. */
  readonly body: string | Uint8Array;
  /** Tokens of the body's media parts (`mediaTokensOf`); 0 if left out. */
  readonly mediaTokens?: number;
  /** Whether the upstream gets the thoughts of earlier turns: then they are part of the prompt. */
  readonly thoughtsBack?: boolean | undefined;
  readonly completionForm: CompletionForm;
  /** For a stream: texts of the events before `completion`. */
  readonly texts: StreamTexts;
  /** The response, or the latest events that were kept. */
  readonly completion: string;
  /** UTF-8 length of the events that `texts` and `completion` stand for. */
  readonly completionBytes: number;
  /** UTF-8 length of all that was relayed: the count is scaled up by `relayedBytes / completionBytes`. */
  readonly relayedBytes: number;
}

/** Rejects if no count came in time or the counter thread died; then the tokens are estimated. */
export type CountTokens = (request: CountRequest, account: AccountIndex) => Promise<Usage>;

/** What is left of a count between two slices. The buffers are transferred. */
export interface CountRest {
  readonly tokenizer: Tokenizer;
  /**
   * The texts that are not counted yet, joined, as UTF-16. Each is counted by itself, because no token spans
   * two texts.
   */
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

/**
 * Each message costs three tokens besides its texts, a name one more, and the response starts with three.
 * Source: OpenAI's cookbook, "How to count tokens with tiktoken".
 */
const MESSAGE_TOKENS = 3;
const NAME_TOKENS = 1;
const PRIMING_TOKENS = 3;

/** Up to this length an upstream worker parses a body for an estimate, which takes some ms. */
const ESTIMATE_PARSE_BYTES_MAX = 256 * 1024;
/** A body without a prompt, whose count is 0. */
export const NO_PROMPT = '{}';
const DATA_URL = Buffer.from('"data:');
/** What stands before the data URL of an image or a file: the name of its member. */
const MEDIA_MEMBER = /[\s,{]"(?:url|image_url|file_data)"\s*:\s*$/;
/** How much text before a data URL is searched for MEDIA_MEMBER. */
const MEDIA_MEMBER_CHARS = 64;
/** The end of the name of a member that may hold an image, a document or a sound in base64. */
const DATA_MEMBER = Buffer.from('data"');
/**
 * Matches from CHARS_BEFORE_DATA before `data"` up to the value. The first 128 characters of the value
 * show whether it is base64, in which JSON may write a slash as `\/`.
 */
const BASE64_MEMBER = /^(?:"file_|.{5}")data"\s*:\s*"(?=[\w+/\\-]{128})/s;
const CHARS_BEFORE_DATA = '"file_'.length;
/** How much text BASE64_MEMBER may match, with blanks and the 128 characters of the value. */
const BASE64_MEMBER_CHARS = 192;
const QUOTE = 0x22;

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

  /**
   * Reads the request's body, whose bytes are bounded: see prompt-text.ts. With `promptTokens` the prompt is
   * not counted.
   */
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
      this.#add(estimateTextTokens(text));
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
    return usageWithoutParts(promptTokens, completionTokens, isExact ? 'counted' : 'estimated');
  }
}

/** Counts everything in one time slice. `promptTokens`: as in TokenCount.begin. */
export function countTokens(request: CountRequest, promptTokens?: number): Usage {
  const usage = TokenCount.begin(request, promptTokens).run(Infinity);
  invariant(usage !== undefined, 'without an end of its slice a count ends');
  return usage;
}

/** Estimates without a tokenizer. Cheap enough for an upstream worker, because a large body is not parsed. */
export function estimateTokens(request: CountRequest): Usage {
  const { body } = request;
  const bytes = Buffer.byteLength(body);
  if (bytes <= ESTIMATE_PARSE_BYTES_MAX) return countTokens({ ...request, tokenizer: 'none' });
  const buffer = typeof body === 'string' ? Buffer.from(body) : asBuffer(body);
  const dataBytes = dataUrlBytes(buffer) + base64Bytes(buffer);
  return countTokens({ ...request, tokenizer: 'none' }, estimateTokensOf(bytes - dataBytes));
}

/** Bytes of data URLs of images and files, which are not text. Texts that only begin so are counted too. */
function dataUrlBytes(body: Buffer): number {
  let bytes = 0;
  for (let start = body.indexOf(DATA_URL); start !== -1;) {
    const end = body.indexOf(QUOTE, start + 1);
    if (end === -1) break;
    if (MEDIA_MEMBER.test(body.toString('latin1', Math.max(0, start - MEDIA_MEMBER_CHARS), start)))
      bytes += end - start;
    start = body.indexOf(DATA_URL, end);
  }
  return bytes;
}

/** Bytes of images, documents and sounds that are base64 alone: `source.data`, `input_audio.data`. */
function base64Bytes(body: Buffer): number {
  let bytes = 0;
  for (let index = body.indexOf(DATA_MEMBER); index !== -1; index = body.indexOf(DATA_MEMBER, index + 1)) {
    const start = index - CHARS_BEFORE_DATA;
    const member = BASE64_MEMBER.exec(body.toString('latin1', start, start + BASE64_MEMBER_CHARS));
    if (member === null) continue;
    const valueStart = start + member[0].length;
    const end = body.indexOf(QUOTE, valueStart);
    if (end === -1) break;
    bytes += end - valueStart;
    index = end;
  }
  return bytes;
}

/** The texts of the response by their keys (StreamTexts). */
function completionTexts({ completionForm, completion, texts }: CountRequest): [string, string][] {
  if (completionForm === 'none') return [];
  if (completionForm === 'response') return keyedResponseTexts(completion);
  const streamTexts = new Map(texts);
  addStreamTexts(streamTexts, Buffer.from(completion), Infinity);
  return [...streamTexts];
}

/**
 * Resolves with the count or, if the count fails or is late, with an estimate: a call is billed in any case.
 * Rejects only for a bug. The count goes on if the client leaves, because the bill needs it.
 */
export async function countOrEstimate(
  count: CountTokens,
  request: CountRequest,
  account: AccountIndex,
  errors: ErrorLog,
): Promise<Usage> {
  try {
    return await count(request, account);
  } catch (error) {
    errors.write('warn', 'counter', 'tokens could not be counted, they were estimated', String(error));
    return estimateTokens(request);
  }
}

/**
 * The body of a call as a chat completion has it, for a count of its prompt. The door has checked the body
 * when the call came. `door`: the position in DOOR_NAMES. `thoughtsBack`: as in CountRequest.
 */
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
