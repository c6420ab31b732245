/**
 * Texts to numbers of tokens. Counter thread: a table takes 7 MB and 0.1 s to load, so each is loaded at its first use and
 * never where streams run. estimateTextTokens alone may be called anywhere.
 *
 * A text is cut into words, blanks and signs by the tokenizer's own expression, and each piece is merged by itself (byte-pairs.ts).
 * Both are our own because every package that was tried can be made to work for minutes (bench/README.md): here no text costs
 * more than some 0.4 s a megabyte, and none makes the next one slower.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { ceilDiv } from '../core/units.js';
import { BytePairs } from './byte-pairs.js';
import type { Tokenizer } from './target.js';

/** English runs at some 4.5 bytes a token, code at 3.5, Chinese at 4 (three bytes a character): 4 is OpenAI's rule of thumb, too. */
const BYTES_PER_TOKEN = 4;

/** Pieces between two looks at the clock: of the longest kind they take 20 ms. */
const PIECES_PER_LOOK = 128;

const CONTRACTION = "'(?:[sS]|[dD]|[mM]|[tT]|[lL][lL]|[vV][eE]|[rR][eE])";
/** Letters that a word may begin with, capitals for one, and those that it may end with. */
const FIRST = String.raw`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`;
const LAST = String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`;
const BEFORE = String.raw`[^\r\n\p{L}\p{N}]?`;
/** JavaScript's `\s` has the byte-order mark in addition, and lacks U+0085. */
const BLANK = String.raw`\p{White_Space}`;
const SIGN = String.raw`[^\p{White_Space}\p{L}\p{N}]`;
/**
 * A run has a bound in place of `*` and `+`: what the expression keeps to go back to is bounded by it, and so is the time
 * between two looks at the clock. No word is that long; a cut costs at most one token.
 */
const ANY = '{0,128}';
const MANY = '{1,128}';

/** Source: https://github.com/openai/tiktoken/blob/main/tiktoken_ext/openai_public.py, but for the bounds of runs. */
const SPLITS: Readonly<Record<Exclude<Tokenizer, 'none'>, string>> = {
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

/** Counts texts with one tokenizer, as far as the time reaches. */
export class TextCounter {
  readonly #pairs: BytePairs;
  readonly #split: RegExp;
  /** Where in the text the last `count` ended. */
  end = 0;

  constructor(tokenizer: Exclude<Tokenizer, 'none'>) {
    this.#pairs = new BytePairs(readFileSync(require.resolve(`gpt-tokenizer/data/${tokenizer}.tiktoken`)));
    this.#split = new RegExp(SPLITS[tokenizer], 'gu');
  }

  /**
   * Tokens of `text` from `start` on, up to `end`: the text's, or where `endMs` of performance.now() was reached. The rest may be
   * counted later, also as a text of its own. What stands for special tokens is text.
   */
  count(text: string, start = 0, endMs = Infinity): number {
    const split = this.#split;
    let tokens = 0;
    let from = start;
    split.lastIndex = start;
    for (let piece = 1; split.test(text); piece++) {
      const to = split.lastIndex;
      tokens += this.#pairs.count(text, from, to);
      from = to;
      if (piece % PIECES_PER_LOOK === 0 && performance.now() >= endMs) break;
    }
    this.end = from;
    return tokens;
  }
}

/** Counter of a tokenizer; loads its table at the first call. */
export function textCounterOf(tokenizer: Exclude<Tokenizer, 'none'>): TextCounter {
  let counter = counters.get(tokenizer);
  if (counter === undefined) {
    counter = new TextCounter(tokenizer);
    counters.set(tokenizer, counter);
  }
  return counter;
}

/** From the UTF-8 length alone. */
export function estimateTextTokens(text: string): number {
  return estimateTokensOf(Buffer.byteLength(text));
}

/** Of a text of so many bytes. */
export function estimateTokensOf(bytes: number): number {
  return ceilDiv(bytes, BYTES_PER_TOKEN);
}
