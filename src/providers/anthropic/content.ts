/**
 * Translates message contents into content blocks of Anthropic's Messages API. conversation.ts calls
 * `blocksOf`; tools.ts uses `withCacheControl`, request.ts `hasText`. No I/O. Upstream worker, or counter
 * thread if the body is large. Follows platform.claude.com, "Messages", "Vision" and "PDF support", 2026-11.
 *
 * Must hold: no blank text becomes a block, of a text file neither. A part that Claude lacks is rejected with
 * its path. With the upstream's `drop_unsupported`, `fields.unsupported` returns instead of throwing, and the
 * part is left out (test/unit/providers/anthropic/conversation.test.ts).
 */
import { isRecord, type Members, membersOf } from '../../core/json.js';
import { clipped } from '../../core/wrong-input.js';
import { stringIn, type Fields } from '../fields.js';
import { FieldError } from '../provider.js';

export type Block = Record<string, unknown>;

/** What the blocks depend on besides the content itself. */
export interface ContentRules {
  readonly fields: Fields;
  /** Anthropic fetches images and files by their URLs; Claude on other platforms does not. */
  readonly fetchesUrls: boolean;
}

/** Captures the media type. Parameters such as `charset` or `name` may follow it; they are not read. */
const DATA_URL = /^data:([\w.+-]+\/[\w.+-]+)(?:;[^,;]*)*;base64,/i;

/**
 * Returns the blocks of a message's content; none without content, since protocol/chat-schema.ts rejects one
 * that is neither text nor list. Blocks are new objects, but `cache_control` in them is the caller's own.
 * `path`: of the message, as `messages[3]`. Throws a FieldError.
 */
export function blocksOf(content: unknown, path: string, rules: ContentRules): Block[] {
  if (typeof content === 'string') return hasText(content) ? [{ type: 'text', text: content }] : [];
  if (!Array.isArray(content)) return [];
  const blocks: Block[] = [];
  for (let index = 0; index < content.length; index++) {
    const part: unknown = content[index];
    const partPath = `${path}.content[${index}]`;
    if (!isRecord(part)) throw new FieldError(partPath, 'must be an object');
    const block = blockOf(part, partPath, rules);
    if (block !== undefined) blocks.push(withCacheControl(block, part, partPath));
  }
  return blocks;
}

/** Copies `cache_control` to `block` from `source`, which the caller sent at `path`. Throws a FieldError. */
export function withCacheControl(block: Block, source: Members, path: string): Block {
  const { cache_control: cacheControl } = source;
  if (cacheControl === undefined || cacheControl === null) return block;
  if (!isRecord(cacheControl)) throw new FieldError(`${path}.cache_control`, 'must be an object');
  block.cache_control = cacheControl;
  return block;
}

/** OpenAI accepts blank texts, Anthropic rejects them. */
export function hasText(text: string): boolean {
  return /\S/.test(text);
}

function blockOf(part: Members, path: string, rules: ContentRules): Block | undefined {
  switch (part.type) {
    case 'text':
    case 'refusal': {
      const text = stringIn(part, part.type, path);
      return hasText(text) ? { type: 'text', text } : undefined;
    }
    case 'image_url': {
      // An object by OpenAI's protocol; some callers send the URL itself.
      const { image_url: image } = part;
      const url = isRecord(image) ? image.url : image;
      const urlPath = isRecord(image) ? `${path}.image_url.url` : `${path}.image_url`;
      if (typeof url !== 'string') throw new FieldError(urlPath, 'must be a string');
      return mediaOf('image', url, undefined, urlPath, rules);
    }
    case 'file': {
      const file = membersOf(part.file);
      const { file_data: data, filename } = file;
      const title = typeof filename === 'string' ? filename : undefined;
      if (typeof data === 'string') return mediaOf('document', data, title, `${path}.file.file_data`, rules);
      if (file.file_id === undefined) throw new FieldError(`${path}.file.file_data`, 'must be a string');
      // The id of a file that was uploaded to OpenAI.
      rules.fields.unsupported(`${path}.file.file_id`);
      return undefined;
    }
    default:
      rules.fields.unsupported(
        `${path}.type`,
        `must be text, image_url or file: Claude has no ${JSON.stringify(clipped(String(part.type), 40))}`,
      );
      return undefined;
  }
}

/**
 * Returns an image or document block; undefined for a blank text file. The media type of a data URL decides
 * which block it is, whatever part has the URL. An https URL names no type: its block is of `httpsType`.
 * `title`: of a document. `path`: of the URL, for a FieldError.
 */
function mediaOf(
  httpsType: 'image' | 'document',
  url: string,
  title: string | undefined,
  path: string,
  rules: ContentRules,
): Block | undefined {
  const titleMember = title === undefined ? {} : { title };
  if (url.startsWith('https://') && rules.fetchesUrls)
    return { type: httpsType, source: { type: 'url', url }, ...titleMember };
  const dataUrl = DATA_URL.exec(url);
  if (dataUrl === null)
    throw new FieldError(
      path,
      rules.fetchesUrls
        ? 'must be a data URL in base64, or an https URL'
        : 'must be a data URL in base64: Claude does not fetch URLs there',
    );
  const type = dataUrl[1]!.toLowerCase();
  const data = url.slice(dataUrl[0].length);
  if (type === 'application/pdf')
    return { type: 'document', source: { type: 'base64', media_type: type, data }, ...titleMember };
  if (type.startsWith('text/')) {
    // Read as UTF-8, whatever `charset` the URL names.
    const text = Buffer.from(data, 'base64').toString();
    if (!hasText(text)) return undefined;
    // A source of a text has this one media type, for Markdown and CSV too.
    return {
      type: 'document',
      source: { type: 'text', media_type: 'text/plain', data: text },
      ...titleMember,
    };
  }
  // Image formats are not checked: Anthropic rejects those that Claude cannot read.
  if (type.startsWith('image/'))
    return {
      type: 'image',
      source: { type: 'base64', media_type: type === 'image/jpg' ? 'image/jpeg' : type, data },
    };
  throw new FieldError(path, 'must be an image, a PDF or a text: Claude reads no other files');
}
