/**
 * Byte-pair encoding (BPE) of one piece of a text, such as a word: how many tokens it makes, and the text
 * that tokens stand for. tokenizer.ts cuts texts, and has a BytePairs for each of its tables. Counter thread.
 *
 * Must hold: counts equal those of tiktoken (test/unit/upstream/token-count.test.ts,
 * test/unit/upstream/tiktoken.test.ts). A piece costs at most about 0.3 µs a byte; nothing is kept of it.
 */
import { StringDecoder } from 'node:string_decoder';
import { invariant } from '../core/errors.js';

/** Longer pieces are merged in parts: the merge is quadratic. No word is so long; a cut costs one token. */
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
 * The ranks of the tokens are OpenAI's, in the files of the package `gpt-tokenizer`; the merge is
 * `byte_pair_merge` of https://github.com/openai/tiktoken (MIT). The tokens are in flat arrays and are found
 * by a hash of their bytes, without strings, so hostile text cannot cause garbage collection.
 *
 *     bytes     the tokens, joined, in the order of their ranks
 *     ends      token `rank` begins at ends[rank] in `bytes` and ends at ends[rank + 1]
 *     buckets   open addressing by the hash of the bytes: a rank, or FREE
 */
export class BytePairs {
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

  /** Tokens of a piece of `text`, which is not cut within a surrogate pair. At most about 0.3 µs a byte. */
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

  /** Writes a character in UTF-8, half of a surrogate pair as U+FFFD. Returns the part's new length. */
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

  /** Tokens of the part's first `length` bytes: joins the pair of lowest rank until no pair is a token. */
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
