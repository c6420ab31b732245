/**
 * Counts the tokens of a text (byte pair encoding, BPE). token-count.ts and echoed-prompt.ts call it. A table
 * takes 7 MB and 0.1 s to load, so it is loaded at first use and only in counter threads, never in a thread
 * that streams. estimateTextTokens and estimateTokensOf may be called in any thread.
 *
 * The tokenizer's regular expression cuts a text into words, blanks and signs, and BytePairs merges each
 * piece. The expression and the merge are written here, because each package that was tried can be kept busy
 * for minutes by a text (bench/README.md).
 *
 * Must hold: no text costs more than about 0.4 s a megabyte, and no text makes the next one slower. Counts
 * equal those of tiktoken (test/unit/upstream/token-count.test.ts, test/unit/upstream/tiktoken.test.ts).
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { StringDecoder } from 'node:string_decoder';
import { invariant } from '../core/errors.js';
import { ceilDiv } from '../core/units.js';
import type { Tokenizer } from './target.js';

/**
 * A longer piece is merged in parts of so many bytes, because the merge is quadratic. No word is that long,
 * and a cut costs one token at most.
 */
const PART_BYTES_MAX = 512;
/** How far a part may be exceeded: a character's UTF-8 may begin in its last byte. */
const CHARACTER_BYTES_MAX = 4;

/** Stands in a bucket of the hash table that has no rank. */
const FREE = -1;
/** The rank of bytes that are not a token. */
const NO_RANK = 0x7fffffff;
/** The constants of FNV-1a with 32 bits. */
const HASH_BASIS = 0x811c9dc5;
const HASH_PRIME = 0x01000193;

/**
 * Byte-pair encoding that counts tokens and does not list them, and reads tokens that a caller has listed.
 *
 * The ranks of the tokens are OpenAI's, in the files of the package `gpt-tokenizer`; the merge is
 * `byte_pair_merge` of https://github.com/openai/tiktoken (MIT). The tokens are in flat arrays and are found
 * by a hash of their bytes. No strings are made and nothing is kept between pieces, so hostile text cannot
 * fill a cache or cause garbage collection.
 *
 *     bytes     the tokens, joined, in the order of their ranks
 *     ends      token `rank` begins at ends[rank] in `bytes` and ends at ends[rank + 1]
 *     buckets   open addressing by the hash of the bytes: a rank, or FREE
 */
class BytePairs {
  readonly #bytes: Uint8Array;
  readonly #ends: Uint32Array;
  readonly #buckets: Int32Array;
  readonly #mask: number;
  readonly #tokenBytesMax: number;
  /** The part that is being merged. Each call of `count` in the thread reuses these buffers. */
  readonly #part = new Uint8Array(PART_BYTES_MAX + CHARACTER_BYTES_MAX);
  /** Where the part's symbols (one or more bytes that were joined) begin, then the part's end. */
  readonly #starts = new Int32Array(this.#part.length + 1);
  /** Rank of each symbol joined with the next symbol; NO_RANK if both together are no token. */
  readonly #ranks = new Int32Array(this.#part.length + 1);

  /** `file` has a line for each token, in the order of ranks: base64, a blank, the rank. */
  constructor(file: Buffer) {
    const { bytes, ends } = tokensOf(file);
    const tokens = ends.length - 1;
    // A power of two, for `#mask`, and at least twice the tokens, so that runs of taken buckets stay short.
    const size = 2 ** Math.ceil(Math.log2(tokens * 2));
    const buckets = new Int32Array(size).fill(FREE);
    let tokenBytesMax = 0;
    for (let rank = 0; rank < tokens; rank++) {
      const start = ends[rank]!;
      const end = ends[rank + 1]!;
      tokenBytesMax = Math.max(tokenBytesMax, end - start);
      let bucket = hashOf(bytes, start, end) & (size - 1);
      while (buckets[bucket] !== FREE) bucket = (bucket + 1) & (size - 1);
      buckets[bucket] = rank;
    }
    this.#bytes = bytes;
    this.#ends = ends;
    this.#buckets = buckets;
    this.#mask = size - 1;
    this.#tokenBytesMax = tokenBytesMax;
  }

  /**
   * Tokens of the piece of `text` from `start` to `end`, neither of which is within a surrogate pair. At most
   * about 0.3 µs a byte.
   */
  count(text: string, start: number, end: number): number {
    const part = this.#part;
    let tokens = 0;
    let length = 0;
    for (let index = start; index < end; index++) {
      const code = text.charCodeAt(index);
      if (code < 0x80) {
        part[length++] = code;
      } else {
        // `!`: `index` is within the text. A pair is two characters of the string.
        const point = text.codePointAt(index)!;
        if (point > 0xffff) index++;
        length = this.#writeCharacter(point, length);
      }
      if (length >= PART_BYTES_MAX) {
        tokens += this.#merge(length);
        length = 0;
      }
    }
    return length === 0 ? tokens : tokens + this.#merge(length);
  }

  /**
   * The text of the first tokens, and how many they are. Ends before a token that stands for no text, such as
   * a special token, and after the token by which the text is longer than `bytesMax`.
   */
  textOf(tokens: readonly number[], bytesMax: number): { readonly text: string; readonly tokens: number } {
    const pieces: Uint8Array[] = [];
    let bytes = 0;
    for (const rank of tokens) {
      const end = this.#ends[rank + 1];
      if (end === undefined || bytes > bytesMax) break;
      pieces.push(this.#bytes.subarray(this.#ends[rank], end));
      bytes += pieces.at(-1)!.length;
    }
    // A decoder holds back a character whose last bytes are missing: they may be in the token after these.
    return { text: new StringDecoder().write(Buffer.concat(pieces)), tokens: pieces.length };
  }

  /**
   * Writes a character outside ASCII at `length` of the part, in UTF-8, and returns the part's new length.
   * Half of a surrogate pair becomes U+FFFD, as Node writes it.
   */
  #writeCharacter(point: number, length: number): number {
    const part = this.#part;
    if (point < 0x800) {
      part[length] = 0xc0 | (point >> 6);
      part[length + 1] = 0x80 | (point & 0x3f);
      return length + 2;
    }
    if (point > 0xffff) {
      part[length] = 0xf0 | (point >> 18);
      part[length + 1] = 0x80 | ((point >> 12) & 0x3f);
      part[length + 2] = 0x80 | ((point >> 6) & 0x3f);
      part[length + 3] = 0x80 | (point & 0x3f);
      return length + 4;
    }
    const code = (point & 0xf800) === 0xd800 ? 0xfffd : point;
    part[length] = 0xe0 | (code >> 12);
    part[length + 1] = 0x80 | ((code >> 6) & 0x3f);
    part[length + 2] = 0x80 | (code & 0x3f);
    return length + 3;
  }

  /**
   * How many tokens the first `length` bytes of the part make: joins the pair with the lowest rank until no
   * pair is a token.
   */
  #merge(length: number): number {
    if (this.#rankOf(0, length) !== NO_RANK) return 1;
    const starts = this.#starts;
    const ranks = this.#ranks;
    for (let index = 0; index < length; index++) {
      starts[index] = index;
      ranks[index] = index + 1 < length ? this.#rankOf(index, index + 2) : NO_RANK;
    }
    starts[length] = length;
    let symbols = length;
    while (symbols > 1) {
      let lowest = NO_RANK;
      let lowestAt = 0;
      for (let index = 0; index < symbols - 1; index++) {
        const rank = ranks[index]!;
        if (rank < lowest) {
          lowest = rank;
          lowestAt = index;
        }
      }
      if (lowest === NO_RANK) break;
      starts.copyWithin(lowestAt + 1, lowestAt + 2, symbols + 1);
      ranks.copyWithin(lowestAt + 1, lowestAt + 2, symbols);
      symbols--;
      ranks[lowestAt] =
        lowestAt + 1 < symbols ? this.#rankOf(starts[lowestAt]!, starts[lowestAt + 2]!) : NO_RANK;
      if (lowestAt > 0) ranks[lowestAt - 1] = this.#rankOf(starts[lowestAt - 1]!, starts[lowestAt + 1]!);
    }
    return symbols;
  }

  /** The rank of the part's bytes from `start` to `end`; NO_RANK if they are no token. */
  #rankOf(start: number, end: number): number {
    const length = end - start;
    if (length > this.#tokenBytesMax) return NO_RANK;
    const part = this.#part;
    const bytes = this.#bytes;
    const ends = this.#ends;
    const buckets = this.#buckets;
    for (let bucket = hashOf(part, start, end) & this.#mask; ; bucket = (bucket + 1) & this.#mask) {
      const rank = buckets[bucket]!;
      if (rank === FREE) return NO_RANK;
      const token = ends[rank]!;
      if (ends[rank + 1]! - token !== length) continue;
      let equalBytes = 0;
      while (equalBytes < length && bytes[token + equalBytes] === part[start + equalBytes]) equalBytes++;
      if (equalBytes === length) return rank;
    }
  }
}

/** FNV-1a with its high bits folded in, because the table uses low bits alone. */
function hashOf(bytes: Uint8Array, start: number, end: number): number {
  let hash = HASH_BASIS;
  for (let index = start; index < end; index++) hash = Math.imul(hash ^ bytes[index]!, HASH_PRIME);
  return hash ^ (hash >>> 15);
}

/** `bytes` and `ends` of BytePairs. Throws if the file is not in the order of ranks. */
function tokensOf(file: Buffer): { readonly bytes: Uint8Array; readonly ends: Uint32Array } {
  const lines = file.toString('latin1').trimEnd().split('\n');
  const bytes = Buffer.alloc(file.length);
  const ends = new Uint32Array(lines.length + 1);
  let length = 0;
  for (const [rank, line] of lines.entries()) {
    const blank = line.indexOf(' ');
    invariant(Number(line.slice(blank + 1)) === rank, 'a file of tokens is in the order of their ranks');
    length += bytes.write(line.slice(0, blank), length, 'base64');
    ends[rank + 1] = length;
  }
  return { bytes: Uint8Array.from(bytes.subarray(0, length)), ends };
}

/**
 * English has about 4.5 bytes a token, code 3.5, Chinese 4 (three bytes a character). 4 is also OpenAI's rule
 * of thumb.
 */
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
   * performance.now(). What is after `end` may be counted later, also as a text of its own. Special tokens in
   * the text count as text.
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

/** Estimates from the UTF-8 length alone. */
export function estimateTextTokens(text: string): number {
  return estimateTokensOf(Buffer.byteLength(text));
}

/** As estimateTextTokens, for a text of so many bytes of UTF-8. */
export function estimateTokensOf(bytes: number): number {
  return ceilDiv(bytes, BYTES_PER_TOKEN);
}
