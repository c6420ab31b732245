/**
 * Texts to numbers of tokens. Counter thread: a table takes 60 MB and 0.3 s to load, so each is loaded at its first use and
 * never where streams run. estimateTextTokens alone may be called anywhere.
 */
import { createRequire } from 'node:module';
import type { GptEncoding } from 'gpt-tokenizer/GptEncoding';
import { ceilDiv } from '../core/units.js';
import type { Tokenizer } from './target.js';

/** Tokens of one text. */
export type TextCounter = (text: string) => number;

/** English runs at some 4.5 bytes a token, code at 3.5, Chinese at 4 (three bytes a character): 4 is OpenAI's rule of thumb, too. */
const BYTES_PER_TOKEN = 4;

/**
 * The merge of byte pairs is quadratic in the length of a run without a split (measured: 100,000 spaces take 3.6 s), so a run
 * of letters, of signs or of blanks is cut after 128 characters. No word is that long; a cut costs at most one token.
 */
const LONG_RUN = /[\p{L}\p{M}]{128}|[^\s\p{L}\p{N}]{128}|[\s/]{128}/gu;

/** Words whose tokens are remembered; 25 MB if all of them were of the longest kind and both tables in use. */
const REMEMBERED_WORDS_MAX = 25_000;

/** The text of a prompt may speak of special tokens such as `<|endoftext|>`; there they are plain text. */
const NO_SPECIAL_TOKENS = { allowedSpecial: new Set<string>(), disallowedSpecial: new Set<string>() };

/** require and not import(): loading must be possible in the middle of a synchronous count. */
const require = createRequire(import.meta.url);
const counters = new Map<Tokenizer, TextCounter>();

/** Counter of a tokenizer; loads its table at the first call. `none` estimates. */
export function textCounterOf(tokenizer: Tokenizer): TextCounter {
  if (tokenizer === 'none') return estimateTextTokens;
  let counter = counters.get(tokenizer);
  if (counter === undefined) {
    const { default: encoding } = require(`gpt-tokenizer/encoding/${tokenizer}`) as { default: GptEncoding };
    encoding.setMergeCacheSize(REMEMBERED_WORDS_MAX);
    counter = (text) => countInPieces(encoding, text);
    counters.set(tokenizer, counter);
  }
  return counter;
}

/** From the UTF-8 length alone. */
export function estimateTextTokens(text: string): number {
  return ceilDiv(Buffer.byteLength(text), BYTES_PER_TOKEN);
}

function countInPieces(encoding: GptEncoding, text: string): number {
  let tokens = 0;
  let start = 0;
  for (const run of text.matchAll(LONG_RUN)) {
    const end = run.index + run[0].length;
    tokens += encoding.countTokens(text.slice(start, end), NO_SPECIAL_TOKENS);
    start = end;
  }
  return tokens + encoding.countTokens(text.slice(start), NO_SPECIAL_TOKENS);
}
