/**
 * Translates message contents into content blocks of Converse. messages.ts makes one ContentWriter for each
 * request, so that the names of its documents differ; messages.ts and tools.ts add cache points by
 * `addCachePoint`. No I/O; upstream worker, or counter thread if the body is large.
 *
 * Follows Amazon Bedrock API Reference, "ContentBlock" and the types it names, 2026-11.
 *
 * Must hold: no blank text becomes a block. The names of documents in a request differ, and have only
 * characters that Converse allows; otherwise Converse rejects the request
 * (test/unit/providers/bedrock/messages.test.ts). A cache point comes from `addCachePoint` alone, which knows
 * after which blocks Bedrock accepts one (test/unit/providers/bedrock/messages.cache-points.test.ts).
 */
import { isRecord, type Members } from '../../core/json.js';
import { stringIn } from '../fields.js';
import { FieldError } from '../provider.js';
import { type ModelFacts, V4_5 } from './models.js';

export type Block = Members;

/** Converse's formats, by the subtype of a data URL or by the file extension of an S3 object. */
type Formats = ReadonlyMap<string, string>;

/** `formats`: those that have the same name there. `otherNames`: the format by each other name. */
function formatsBy(formats: readonly string[], otherNames: Readonly<Record<string, string>>): Formats {
  return new Map([...formats.map((format) => [format, format] as const), ...Object.entries(otherNames)]);
}

const IMAGE_FORMATS = formatsBy(['png', 'jpeg', 'gif', 'webp'], { jpg: 'jpeg' });
const VIDEO_FORMATS = formatsBy(['mp4', 'mov', 'mkv', 'webm', 'flv', 'mpeg', 'mpg', 'wmv'], {
  quicktime: 'mov',
  'x-matroska': 'mkv',
  'x-flv': 'flv',
  'x-ms-wmv': 'wmv',
  '3gpp': 'three_gp',
  '3gp': 'three_gp',
});
const DOCUMENT_FORMATS = formatsBy(['pdf', 'csv', 'doc', 'docx', 'xls', 'xlsx', 'html', 'txt', 'md'], {
  msword: 'doc',
  'vnd.openxmlformats-officedocument.wordprocessingml.document': 'docx',
  'vnd.ms-excel': 'xls',
  'vnd.openxmlformats-officedocument.spreadsheetml.sheet': 'xlsx',
  plain: 'txt',
  markdown: 'md',
});

/** Captures the subtype, which alone decides the format: `data:application/png` passes as an image too. */
const DATA_URL = /^data:[\w.+-]+\/([\w.+-]+)(?:;[^,;]*)*;base64,/i;
const S3_URL = /^s3:\/\/[^/]+\/.+/;
/** The name of a document whose file has no name that Converse allows. */
const DEFAULT_NAME = 'document';
/** Converse allows 200 characters. The number that makes a name differ needs some of them. */
const NAME_CHARS_MAX = 100;

/** Writes the contents of one request's messages. */
export class ContentWriter {
  readonly #facts: ModelFacts;
  /** Names of the request's documents so far, which must differ. */
  readonly #documentNames = new Set<string>();
  /** By a file's own name: the number that the last document of that name got. */
  readonly #numbers = new Map<string, number>();

  constructor(facts: ModelFacts) {
    this.#facts = facts;
  }

  /**
   * The blocks of a content: after the block of each part the part's cache point; that of a blank text, which
   * becomes no block, after the part before. `path`: of the content, for a FieldError.
   */
  blocks(content: unknown, path: string): Block[] {
    if (content === undefined || content === null) return [];
    if (typeof content === 'string') return content.trim() === '' ? [] : [{ text: content }];
    if (!Array.isArray(content)) throw new FieldError(path, 'must be a string or an array');
    const blocks: Block[] = [];
    content.forEach((part: unknown, index) => {
      const partPath = `${path}[${index}]`;
      if (!isRecord(part)) throw new FieldError(partPath, 'must be an object');
      blocks.push(...this.#blocksOfPart(part, partPath));
      addCachePoint(blocks, part, this.#facts);
    });
    return blocks;
  }

  #blocksOfPart(part: Record<string, unknown>, path: string): Block[] {
    switch (part.type) {
      case 'text':
      case 'refusal': {
        const text = stringIn(part, part.type, path);
        return text.trim() === '' ? [] : [{ text }];
      }
      case 'image_url':
        return [mediaBlockAt('image', IMAGE_FORMATS, part.image_url, `${path}.image_url`)];
      case 'video_url':
        return [mediaBlockAt('video', VIDEO_FORMATS, part.video_url, `${path}.video_url`)];
      case 'input_audio':
        return [audioBlock(part.input_audio, `${path}.input_audio`)];
      case 'file':
        return [this.#fileBlock(part.file, `${path}.file`)];
      default:
        throw new FieldError(`${path}.type`, 'is not supported by Bedrock');
    }
  }

  #fileBlock(file: unknown, path: string): Block {
    if (!isRecord(file)) throw new FieldError(path, 'must be an object');
    const { file_data: data, file_id: id, filename } = file;
    const url = data ?? id ?? undefined;
    const member = url === undefined || url === data ? 'file_data' : 'file_id';
    if (typeof url !== 'string') throw new FieldError(`${path}.${member}`, 'must be a string');
    const kind = /^data:(image|video)\//i.exec(url)?.[1]!.toLowerCase();
    if (kind === 'image') return mediaBlock('image', IMAGE_FORMATS, url, `${path}.${member}`);
    if (kind === 'video') return mediaBlock('video', VIDEO_FORMATS, url, `${path}.${member}`);
    const block = mediaBlock('document', DOCUMENT_FORMATS, url, `${path}.${member}`);
    const name = this.#documentName(typeof filename === 'string' ? filename : '');
    return { document: { ...(block.document as Block), name } };
  }

  /**
   * Returns a name that no other document of the request has. Converse allows letters of English, digits,
   * single spaces, hyphens, parentheses and brackets in it.
   */
  #documentName(filename: string): string {
    const allowed = filename
      .replace(/\.[^.]*$/, '')
      .replace(/[^A-Za-z0-9\s()[\]-]+/g, '-')
      .replace(/\s+/g, ' ')
      .trim()
      .slice(0, NAME_CHARS_MAX)
      // The cut may leave a space at the end. A number then adds a second one, which Converse rejects.
      .trimEnd();
    const base = allowed === '' ? DEFAULT_NAME : allowed;
    // The search starts at the last number of this name, or many files of one name would take long.
    let number = this.#numbers.get(base) ?? 1;
    let name = number === 1 ? base : `${base} ${number}`;
    while (this.#documentNames.has(name)) name = `${base} ${++number}`;
    this.#numbers.set(base, number);
    this.#documentNames.add(name);
    return name;
  }
}

/**
 * Adds the cache point of `holder`, which ends with `blocks`, if it has `cache_control`, the model caches,
 * and the last block allows it. A cache point that is there already is replaced: a second one would use up
 * one of the four that a request may have.
 */
export function addCachePoint(blocks: Block[], holder: Members, facts: ModelFacts): void {
  const { cache_control: control } = holder;
  const lastBlock = blocks.at(-1);
  if (!isRecord(control) || !facts.allowsCachePoints || lastBlock === undefined) return;
  if (rejectsCachePoint(lastBlock)) return;
  // Without `ttl` a cache point lasts five minutes. Only Claude from 4.5 on accepts the member (`version` is
  // 0 for other models). A model that its ARN hides (models.ts) gets the member, and Bedrock decides.
  const mayLastHour = facts.family === 'hidden' || facts.version >= V4_5;
  const ttl = control.ttl === '1h' && mayLastHour && { ttl: '1h' };
  if ('cachePoint' in lastBlock) blocks.pop();
  blocks.push({ cachePoint: { type: 'default', ...ttl } });
}

/**
 * Whether Bedrock responds with 400 to a cache point right after this block. The reference does not say so;
 * seen on live Bedrock in anomalyco/opencode 36517 and strands-agents/harness-sdk 1966.
 */
function rejectsCachePoint({ reasoningContent, document }: Block): boolean {
  return reasoningContent !== undefined || (isRecord(document) && document.format !== 'pdf');
}

/** As `mediaBlock`. `value`: the URL, or an object with a member `url`. */
function mediaBlockAt(kind: string, formats: Formats, value: unknown, path: string): Block {
  const url = isRecord(value) ? value.url : value;
  if (typeof url !== 'string') throw new FieldError(path, 'must hold a URL');
  return mediaBlock(kind, formats, url, path);
}

/** `kind`: the member of the block. `path`: of the URL, for a FieldError. */
function mediaBlock(kind: string, formats: Formats, url: string, path: string): Block {
  const dataUrl = DATA_URL.exec(url);
  if (dataUrl === null && !S3_URL.test(url)) {
    throw new FieldError(
      path,
      'must be a data URL in base64, or an s3:// address: Bedrock fetches no others',
    );
  }
  const subtype = dataUrl?.[1] ?? /\.([^./]*)$/.exec(url)?.[1] ?? '';
  const format = formats.get(subtype.toLowerCase());
  if (format === undefined) {
    const accepted = [...new Set(formats.values())].join(', ');
    throw new FieldError(path, `is of a format that Bedrock does not accept, want ${accepted}`);
  }
  const source = dataUrl === null ? { s3Location: { uri: url } } : { bytes: url.slice(dataUrl[0].length) };
  return { [kind]: { format, source } };
}

/** A block of sound. The format passes unchecked: Bedrock itself rejects an unknown format. */
function audioBlock(value: unknown, path: string): Block {
  if (!isRecord(value) || typeof value.data !== 'string' || typeof value.format !== 'string') {
    throw new FieldError(path, 'must have data and format');
  }
  return { audio: { format: value.format, source: { bytes: value.data } } };
}
