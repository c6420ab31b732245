/**
 * Images, sound, video and files of a message as parts of a Gemini request. contents.ts calls it. Pure;
 * upstream worker.
 *
 * Follows https://ai.google.dev/gemini-api/docs/file-input-methods, read 2026-11: bytes go as `inlineData`;
 * what Google can read by itself goes by its address as `fileData`: gs://, its own Files API, YouTube, and
 * public https addresses. The gateway fetches nothing,
 * because a caller could make it read addresses of the internal network.
 *
 * Test: test/unit/providers/gemini/contents.test.ts.
 */
import { isRecord } from '../../core/json.js';
import { FieldError } from '../provider.js';

export type Part = Record<string, unknown>;

/** Google wants the MIME type of a file that it fetches. By the extension, for what it lists as supported. */
const MIME_TYPES: Readonly<Record<string, string>> = {
  png: 'image/png',
  jpg: 'image/jpeg',
  jpeg: 'image/jpeg',
  webp: 'image/webp',
  heic: 'image/heic',
  heif: 'image/heif',
  gif: 'image/gif',
  bmp: 'image/bmp',
  mp3: 'audio/mp3',
  wav: 'audio/wav',
  aiff: 'audio/aiff',
  aac: 'audio/aac',
  ogg: 'audio/ogg',
  flac: 'audio/flac',
  m4a: 'audio/m4a',
  mp4: 'video/mp4',
  mpeg: 'video/mpeg',
  mpg: 'video/mpg',
  mov: 'video/mov',
  avi: 'video/avi',
  flv: 'video/x-flv',
  webm: 'video/webm',
  wmv: 'video/wmv',
  '3gp': 'video/3gpp',
  pdf: 'application/pdf',
  json: 'application/json',
  txt: 'text/plain',
  md: 'text/md',
  html: 'text/html',
  css: 'text/css',
  csv: 'text/csv',
  xml: 'text/xml',
  rtf: 'text/rtf',
};

/** URLs whose type Google knows itself. */
const TYPED_ADDRESS =
  /^(?:https:\/\/generativelanguage\.googleapis\.com\/|https:\/\/(?:www\.youtube\.com\/|youtu\.be\/))/;
const EXTENSION = /\.([A-Za-z0-9]{1,5})(?:[?#]|$)/;
const MIME_TYPE = /^[\w.+-]+\/[\w.+-]+$/;
const AUDIO_FORMAT = /^[\w.+-]+$/;

/**
 * The part for one item of `content` that is not text.
 *
 * `path`: where the item is, as `messages[2].content[0]`. Throws a FieldError that names it.
 */
export function mediaPart(item: Record<string, unknown>, path: string): Part {
  switch (item.type) {
    case 'image_url':
    case 'video_url':
    case 'audio_url':
      return addressed(item[item.type], `${path}.${item.type}`);
    case 'input_audio':
      return audio(item.input_audio, `${path}.input_audio`);
    case 'file':
      return file(item.file, `${path}.file`);
    default:
      throw new FieldError(`${path}.type`, 'is of a kind that Gemini does not take');
  }
}

function addressed(value: unknown, path: string): Part {
  const url = isRecord(value) ? value.url : value;
  if (typeof url !== 'string') throw new FieldError(`${path}.url`, 'must be a string');
  return partOfUrl(url, isRecord(value) ? value.format : undefined, path);
}

function partOfUrl(url: string, format: unknown, path: string): Part {
  if (url.startsWith('data:')) return { inlineData: inlineData(url, path) };
  if (TYPED_ADDRESS.test(url)) {
    const mimeType = typeOf(url, format);
    return { fileData: { ...(mimeType !== undefined && { mimeType }), fileUri: url } };
  }
  if (!url.startsWith('gs://') && !url.startsWith('https://'))
    throw new FieldError(
      path,
      'must be a data URL, or an address with gs:// or https:// that Google can read',
    );
  const mimeType = typeOf(url, format);
  if (mimeType === undefined)
    throw new FieldError(
      path,
      'needs a MIME type: its address has no known extension, so give it as `format`',
    );
  return { fileData: { mimeType, fileUri: url } };
}

function typeOf(url: string, format: unknown): string | undefined {
  if (typeof format === 'string' && MIME_TYPE.test(format)) return format;
  const extension = EXTENSION.exec(url)?.[1]?.toLowerCase();
  return extension === undefined ? undefined : MIME_TYPES[extension];
}

/** Type and data of `data:image/png;base64,…`; parameters of the type are left out. */
function inlineData(url: string, path: string): { mimeType: string; data: string } {
  const comma = url.indexOf(',');
  const [mimeType = '', ...parameters] = url.slice('data:'.length, comma).split(';');
  if (comma < 0 || parameters.at(-1) !== 'base64' || !MIME_TYPE.test(mimeType))
    throw new FieldError(path, 'must be a data URL with a MIME type and base64');
  return { mimeType, data: url.slice(comma + 1) };
}

function audio(value: unknown, path: string): Part {
  const { data, format } = isRecord(value) ? value : {};
  if (typeof data !== 'string') throw new FieldError(`${path}.data`, 'must be a string');
  if (typeof format !== 'string' || !AUDIO_FORMAT.test(format))
    throw new FieldError(`${path}.format`, 'must be a format of audio, as wav or mp3');
  return { inlineData: { mimeType: `audio/${format}`, data } };
}

function file(value: unknown, path: string): Part {
  const { file_data: data, file_id: id, filename, format } = isRecord(value) ? value : {};
  if (typeof id === 'string') return partOfUrl(id, format, `${path}.file_id`);
  if (typeof data !== 'string') throw new FieldError(path, 'must have file_data or file_id');
  if (data.startsWith('data:')) return { inlineData: inlineData(data, `${path}.file_data`) };
  const mimeType = typeOf(typeof filename === 'string' ? filename : '', format) ?? 'application/pdf';
  return { inlineData: { mimeType, data } };
}
