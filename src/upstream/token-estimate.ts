/**
 * The tokens of a call by a counter thread, or by an estimate if no count comes. call-usage.ts and
 * count-session.ts call `countOrEstimate`. An estimate reads a large body by its bytes alone, so that the
 * worker's streams go on. Upstream worker.
 *
 * Must hold: no caller loses its response because of a count, and no call goes unbilled. If no count comes,
 * an estimate takes its place, with the source `estimated`. In a large body images, documents and sounds in
 * base64 are not taken for text.
 */
import { asBuffer } from '../core/bytes.js';
import type { Usage } from '../core/token-counts.js';
import type { AccountIndex } from '../core/units.js';
import { QUOTE } from '../protocol/json-reader.js';
import type { ErrorLog } from './error-log.js';
import { type CountRequest, countTokens } from './token-count.js';
import { estimateTokensOf } from './tokenizer.js';

/** Rejects if no count came in time or the counter thread died; then the tokens are estimated. */
export type CountTokens = (request: CountRequest, account: AccountIndex) => Promise<Usage>;

/** Up to this length an upstream worker parses a body for an estimate, which takes some ms. */
const ESTIMATE_PARSE_BYTES_MAX = 256 * 1024;
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
