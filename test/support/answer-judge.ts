/**
 * The strict judge of responses, and responses that are to be judged: good ones, and many that are nearly
 * good.
 */
import { naiveEvents } from './sse-transcripts.js';
import { pick, type Random } from './random.js';

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function isObject(text: string): boolean {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

function decoded(bytes: Uint8Array): string | undefined {
  try {
    return UTF8.decode(bytes);
  } catch {
    return undefined;
  }
}

/** Whether it is UTF-8, and one JSON object with choices. */
export function isGoodAnswer(answer: Uint8Array): boolean {
  const text = decoded(answer);
  return (
    text !== undefined && isObject(text) && Array.isArray((JSON.parse(text) as { choices?: unknown }).choices)
  );
}

/** Whether it is UTF-8, and each event with data is a JSON object or `[DONE]`. */
export function isGoodStream(stream: Uint8Array): boolean {
  const text = decoded(stream);
  return text !== undefined && naiveEvents(text).every((data) => data === '[DONE]' || isObject(data));
}

/** No UTF-8: lone, missing and wrong continuations, overlong forms, surrogates, beyond the last character. */
export const NO_UTF8: readonly Uint8Array[] = [
  [0x80],
  [0xff],
  [0xc3],
  [0xc3, 0x28],
  [0xe2, 0x82],
  [0xc0, 0xaf],
  [0xed, 0xa0, 0x80],
  [0xf4, 0x90, 0x80, 0x80],
].map((bytes) => Uint8Array.from(bytes));

const BYTES = [
  0x00, 0x0a, 0x1f, 0x20, 0x22, 0x2c, 0x30, 0x5b, 0x5c, 0x5d, 0x75, 0x7b, 0x7d, 0x7f, 0x80, 0xc3, 0xff,
];

/** Some bytes replaced, left out, doubled or put in. */
export function mutated(bytes: Uint8Array, next: Random): Buffer {
  let result = Buffer.from(bytes);
  for (let count = 1 + Math.floor(next() * 2); count > 0; count--) {
    const at = Math.floor(next() * result.length);
    const kind = Math.floor(next() * 4);
    const put = kind === 1 ? [] : kind === 2 ? [...result.subarray(at, at + 4)] : [pick(next, BYTES)];
    result = Buffer.concat([
      result.subarray(0, at),
      Buffer.from(put),
      result.subarray(at + (kind < 2 ? 1 : 0)),
    ]);
  }
  return result;
}

/**
 * Of the response: cut at every byte, more behind it, before it, twice, in an array, with bytes at every
 * place that are no UTF-8.
 */
export function* brokenForms(answer: Buffer): Generator<Buffer> {
  for (let end = 0; end < answer.length; end++) yield answer.subarray(0, end);
  for (let start = 1; start < answer.length; start++) yield answer.subarray(start);
  for (const behind of ['{}', '}', ']', ',', 'x', '\u0000', '\n{}', answer.toString(), '[DONE]', '\uFEFF'])
    yield Buffer.concat([answer, Buffer.from(behind)]);
  for (const before of ['\uFEFF', '{', '[', ',', '\u0000', '{}', 'null', answer.toString()])
    yield Buffer.concat([Buffer.from(before), answer]);
  for (let at = 0; at <= answer.length; at++) {
    for (const bytes of NO_UTF8) yield Buffer.concat([answer.subarray(0, at), bytes, answer.subarray(at)]);
  }
}
