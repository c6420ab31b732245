/**
 * Separates the prompt from a completion's texts. Providers repeat it at their beginning if the request says
 * `echo`, and it must not be counted twice. token-count.ts calls `splitTexts` in counter threads and, for
 * estimates, in upstream workers; call-usage.ts calls `mayRepeatPrompt` in upstream workers. Pure.
 *
 * Must hold: a text loses no more than the prompt that it begins with, because not every server heeds `echo`.
 * The body was checked when the call came, so its values are bounded (BODY_VALUES_MAX). Tests:
 * test/unit/upstream/echoed-prompt.test.ts, test/unit/upstream/token-count.test.ts.
 */
import { CHAT_DOOR } from '../core/door-names.js';
import type { Members } from '../core/json.js';
import { dialectAt } from '../doors/dialects.js';
import { BodyError, BRACE, JsonReader } from '../protocol/json-reader.js';
import type { Tokenizer } from './target.js';
import { textCounterOf } from './tokenizer.js';
import { mayHave } from './upstream-body.js';

/** The texts of a completion by their keys (StreamTexts). */
type KeyedTexts = readonly (readonly [key: string, text: string])[];

/** A call whose completion is counted. CountRequest (token-count.ts) has the texts besides. */
export interface CountedCall {
  readonly tokenizer: Tokenizer;
  /** The call's door, as its position in DOOR_NAMES; the door of chat if left out. */
  readonly door?: number;
  /** The request's JSON, in the protocol of that door. */
  readonly body: string | Uint8Array;
  /** What was relayed: events of a stream, one JSON object (`response`), or nothing. */
  readonly completionForm: 'stream' | 'response' | 'none';
  /** UTF-8 length of the part of the completion that was kept. */
  readonly completionBytes: number;
  /** UTF-8 length of all that was relayed: the count is scaled up by `relayedBytes / completionBytes`. */
  readonly relayedBytes: number;
}

/** What `splitTexts` makes of the texts of a completion. */
export interface SplitTexts {
  /** What repeats a prompt. If all of the response was kept, this is not needed, and left out. */
  readonly echoed: readonly string[];
  /** What the model wrote. */
  readonly written: readonly string[];
  /** How much longer the prompts are than `echoed`, of which a part may have been kept: 1 or more. */
  readonly echoedScale: number;
}

const ECHO = { echo: 'echo' };
/** The members by which a dialect knows the prompt of a choice. */
const READ_MEMBERS = new Set(['echo', 'prompt', 'n']);
/** The key of the text of a choice itself, as completions have it (StreamTexts). */
const CHOICE_TEXT = /^(\d+)\/text$/;
/** Most bytes of UTF-8 for one character of a JavaScript string. */
const BYTES_PER_CHAR_MAX = 3;

/** Whether a response to the body may repeat its prompt. Cheap: the body is not parsed. */
export function mayRepeatPrompt(door: number, body: string | Uint8Array): boolean {
  return dialectAt(door)?.echoedPrompt !== undefined && mayHave(body, ECHO);
}

/** Cuts the prompts that a completion repeats off its texts. Without `echo` all is `written`. */
export function splitTexts(texts: KeyedTexts, call: CountedCall): SplitTexts {
  const { door = CHAT_DOOR, body, completionForm, completionBytes, relayedBytes, tokenizer } = call;
  const members = mayRepeatPrompt(door, body) ? readMembersIn(body) : undefined;
  if (members === undefined) return { echoed: [], written: texts.map(([, text]) => text), echoedScale: 1 };
  const echoed: string[] = [];
  const written: string[] = [];
  let echoedChars = 0;
  let promptChars = 0;
  for (const [key, text] of texts) {
    const choice = CHOICE_TEXT.exec(key);
    const prompt = choice === null ? '' : dialectAt(door)!.echoedPrompt!(members, Number(choice[1]));
    const { start, chars } = promptStart(prompt, text, tokenizer);
    // A stream may have broken off, or its transcript may be full, before all of the prompt had come.
    const isPart = completionForm !== 'response' && start.startsWith(text);
    const end = text.startsWith(start) ? start.length : isPart ? text.length : 0;
    if (end > 0) {
      echoed.push(text.slice(0, end));
      echoedChars += end;
      promptChars += chars;
    }
    written.push(text.slice(end));
  }
  if (relayedBytes <= completionBytes) return { echoed: [], written, echoedScale: 1 };
  return { echoed, written, echoedScale: promptChars / Math.max(1, echoedChars) };
}

/**
 * The prompt, or as much of it as `text` can repeat, and the characters of the whole prompt. A list of tokens
 * is decoded: without a tokenizer `start` is empty, and with another one no text begins with it.
 */
function promptStart(
  prompt: string | readonly number[],
  text: string,
  tokenizer: Tokenizer,
): { readonly start: string; readonly chars: number } {
  if (typeof prompt === 'string') return { start: prompt, chars: prompt.length };
  if (tokenizer === 'none') return { start: '', chars: 0 };
  const decoded = textCounterOf(tokenizer).textOf(prompt, BYTES_PER_CHAR_MAX * text.length);
  const chars = (decoded.text.length * prompt.length) / Math.max(1, decoded.tokens);
  return { start: decoded.text, chars };
}

/**
 * READ_MEMBERS of a body with `echo: true`. Builds no tree of the others: a worker reads large bodies for an
 * estimate, where 5 MB of text took 19 ms of CPU, and 490,000 tokens, the most that a body may have, 50 ms.
 */
function readMembersIn(body: string | Uint8Array): Members | undefined {
  const reader = new JsonReader(typeof body === 'string' ? Buffer.from(body) : body);
  const spans = new Map<string, readonly [start: number, end: number]>();
  try {
    if (reader.skipSpace() !== BRACE || !reader.openObject()) return undefined;
    do {
      const nameStart = reader.position;
      reader.skipString();
      const name = reader.decoded(nameStart, reader.position);
      reader.skipColon();
      const start = reader.position;
      reader.skipValue();
      if (READ_MEMBERS.has(name)) spans.set(name, [start, reader.position]);
    } while (reader.moreMembers());
  } catch (error) {
    if (!(error instanceof BodyError)) throw error;
    return undefined;
  }
  const textOf = ([start, end]: readonly [number, number]): string =>
    reader.bytes.toString('utf8', start, end);
  const echo = spans.get('echo');
  if (echo === undefined || textOf(echo) !== 'true') return undefined;
  return Object.fromEntries(Array.from(spans, ([name, span]) => [name, JSON.parse(textOf(span)) as unknown]));
}
