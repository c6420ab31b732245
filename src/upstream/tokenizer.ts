/**
 * Counts the tokens of a text (byte pair encoding, BPE). token-count.ts and echoed-prompt.ts call it. A table
 * takes 7 MB and 0.1 s to load, so it is loaded at first use and only in counter threads, never in a thread
 * that streams. `estimateTokensOf` may be called in any thread.
 *
 * The tokenizer's regular expression cuts a text into words, blanks and signs, and BytePairs merges each
 * piece. The expression and the merge are written by hand, because each package that was tried can be kept
 * busy for minutes by a text (bench/README.md).
 *
 * Must hold: no text costs more than about 0.4 s a megabyte, and no text makes the next one slower. Counts
 * equal those of tiktoken (test/unit/upstream/token-count.test.ts, test/unit/upstream/tiktoken.test.ts).
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { ceilDiv } from '../core/units.js';
import { BytePairs } from './byte-pairs.js';
import type { Tokenizer } from './target.js';

/** English has about 4.5 bytes a token, code 3.5, Chinese 4. 4 is also OpenAI's rule of thumb. */
const BYTES_PER_TOKEN = 4;

/** Pieces between two reads of the clock. So many of the longest pieces take 20 ms. */
const PIECES_PER_CLOCK_READ = 128;

const CONTRACTION = "'(?:[sS]|[dD]|[mM]|[tT]|[lL][lL]|[vV][eE]|[rR][eE])";
/** Letters that begin a word (FIRST), letters that end it (LAST), and a sign or blank before it (BEFORE). */
const FIRST = String.raw`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`;
const LAST = String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`;
const BEFORE = String.raw`[^\r\n\p{L}\p{N}]?`;
/** JavaScript's `\s` also matches the byte-order mark, and not U+0085. */
const BLANK = String.raw`\p{White_Space}`;
const SIGN = String.raw`[^\p{White_Space}\p{L}\p{N}]`;
/**
 * ANY stands for `*`, MANY for `+`. The bound limits what the expression keeps for backtracking, and so the
 * time between two reads of the clock. No word is that long; a cut costs at most one token.
 */
const ANY = '{0,128}';
const MANY = '{1,128}';

/**
 * How each tokenizer cuts a text into pieces. Only the bounds of runs differ from the source:
 * https://github.com/openai/tiktoken/blob/main/tiktoken_ext/openai_public.py.
 */
const PIECE_PATTERNS: Readonly<Record<Exclude<Tokenizer, 'none'>, string>> = {
  o200k_base: [
    `${BEFORE}${FIRST}${ANY}${LAST}${MANY}(?:${CONTRACTION})?`,
    `${BEFORE}${FIRST}${MANY}${LAST}${ANY}(?:${CONTRACTION})?`,
    String.raw`\p{N}{1,3}`,
    ` ?${SIGN}${MANY}[\\r\\n/]${ANY}`,
    `${BLANK}${ANY}[\\r\\n]${MANY}`,
    `${BLANK}${MANY}(?!\\P{White_Space})`,
    `${BLANK}${MANY}`,
  ].join('|'),
  cl100k_base: [
    CONTRACTION,
    String.raw`${BEFORE}\p{L}${MANY}`,
    String.raw`\p{N}{1,3}`,
    ` ?${SIGN}${MANY}[\\r\\n]${ANY}`,
    `${BLANK}${MANY}$`,
    `${BLANK}${ANY}[\\r\\n]`,
    `${BLANK}${MANY}(?!\\P{White_Space})`,
    BLANK,
  ].join('|'),
};

const require = createRequire(import.meta.url);
const counters = new Map<Tokenizer, TextCounter>();

/** Counts texts with one tokenizer, until a deadline. A thread has one for each tokenizer that it uses. */
export class TextCounter {
  readonly #pairs: BytePairs;
  readonly #piecePattern: RegExp;
  /** The position in the text where the last `count` ended: a second result, without an object for both. */
  end = 0;

  constructor(tokenizer: Exclude<Tokenizer, 'none'>) {
    this.#pairs = new BytePairs(readFileSync(require.resolve(`gpt-tokenizer/data/${tokenizer}.tiktoken`)));
    this.#piecePattern = new RegExp(PIECE_PATTERNS[tokenizer], 'gu');
  }

  /**
   * Tokens of `text` from `start` to `this.end`: the end of the text, or the position at `endMs` of
   * performance.now(). What follows may be counted later, also as its own text. Special tokens count as text.
   */
  count(text: string, start = 0, endMs = Infinity): number {
    const pattern = this.#piecePattern;
    let tokens = 0;
    let from = start;
    pattern.lastIndex = start;
    for (let piece = 1; pattern.test(text); piece++) {
      const to = pattern.lastIndex;
      tokens += this.#pairs.count(text, from, to);
      from = to;
      if (piece % PIECES_PER_CLOCK_READ === 0 && performance.now() >= endMs) break;
    }
    this.end = from;
    return tokens;
  }

  /** See BytePairs. */
  textOf(tokens: readonly number[], bytesMax: number): { readonly text: string; readonly tokens: number } {
    return this.#pairs.textOf(tokens, bytesMax);
  }
}

/** The counter of a tokenizer; loads its table at the first call. */
export function textCounterOf(tokenizer: Exclude<Tokenizer, 'none'>): TextCounter {
  let counter = counters.get(tokenizer);
  if (counter === undefined) {
    counter = new TextCounter(tokenizer);
    counters.set(tokenizer, counter);
  }
  return counter;
}

/** Estimates the tokens of a text of so many bytes of UTF-8. */
export function estimateTokensOf(bytes: number): number {
  return ceilDiv(bytes, BYTES_PER_TOKEN);
}
