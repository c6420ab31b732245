/**
 * Translates images, sounds, videos and files of a chat completion into parts of Gemini's. contents.ts calls
 * `mediaPart`. Pure; upstream worker, or counter thread if the body is large. Follows
 * https://ai.google.dev/gemini-api/docs/file-input-methods, read 2026-11.
 *
 * Must hold: the gateway itself fetches no URL, because a caller could make it read the internal network
 * (test/unit/providers/gemini/contents.test.ts).
 */
import { isRecord } from '../../core/json.js';
import { FieldError } from '../provider.js';

/** An element of `parts`: a text, media, a call of a function or its result. */
export type Part = Record<string, unknown>;

/** File extensions that are the subtype of their MIME type, by the main type before the slash. */
const EXTENSIONS = {
  image: ['png', 'jpeg', 'webp', 'heic', 'heif', 'gif', 'bmp'],
  audio: ['mp3', 'wav', 'aiff', 'aac', 'ogg', 'flac', 'm4a'],
  video: ['mp4', 'mpeg', 'mpg', 'mov', 'avi', 'webm', 'wmv'],
  application: ['pdf', 'json'],
  text: ['md', 'html', 'css', 'csv', 'xml', 'rtf'],
};
/** MIME types by the extension of a file. Google wants a MIME type for each file that it fetches. */
const MIME_TYPES: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    Object.entries(EXTENSIONS).flatMap(([mainType, names]) =>
      names.map((name) => [name, `${mainType}/${name}`]),
    ),
  ),
  jpg: 'image/jpeg',
  flv: 'video/x-flv',
  '3gp': 'video/3gpp',
  txt: 'text/plain',
};

/** URLs for which Google wants no MIME type. A URL of another host name of YouTube needs a `format`. */
const URL_WITHOUT_MIME_TYPE =
  /^(?:https:\/\/generativelanguage\.googleapis\.com\/|https:\/\/(?:www\.youtube\.com\/|youtu\.be\/))/;
/**
 * The extension of a file's name or URL. A bare host such as `https://x.mov` matches, but names no file.
 */
const EXTENSION_PATTERN = /\.([A-Za-z0-9]{1,5})(?:[?#]|$)/;
const MIME_TYPE = /^[\w.+-]+\/[\w.+-]+$/;
const AUDIO_FORMAT = /^[\w.+-]+$/;

/**
 * The part for an item of `content` that is not text. `path`: of the item, for a FieldError. Bytes go as
 * `inlineData`; a URL that Google itself can read goes as `fileData`: gs://, the Files API, YouTube,
 * public https.
 */
export function mediaPart(item: Record<string, unknown>, path: string): Part {
  switch (item.type) {
    case 'image_url':
    case 'video_url':
    case 'audio_url':
      return urlPart(item[item.type], `${path}.${item.type}`);
    case 'input_audio':
      return audioPart(item.input_audio, `${path}.input_audio`);
    case 'file':
      return filePart(item.file, `${path}.file`);
    default:
      throw new FieldError(`${path}.type`, 'is of a kind that Gemini does not take');
  }
}

function urlPart(value: unknown, path: string): Part {
  const url = isRecord(value) ? value.url : value;
  if (typeof url !== 'string') throw new FieldError(`${path}.url`, 'must be a string');
  return partOfUrl(url, isRecord(value) ? value.format : undefined, path);
}

/** `format`: the MIME type that the caller gave; a value that is none is ignored. */
function partOfUrl(url: string, format: unknown, path: string): Part {
  if (url.startsWith('data:')) return { inlineData: inlineData(url, path) };
  if (URL_WITHOUT_MIME_TYPE.test(url)) {
    const mimeType = mimeTypeOf(url, format);
    return { fileData: { ...(mimeType !== undefined && { mimeType }), fileUri: url } };
  }
  if (!url.startsWith('gs://') && !url.startsWith('https://'))
    throw new FieldError(
      path,
      'must be a data URL, or an address with gs:// or https:// that Google can read',
    );
  const mimeType = mimeTypeOf(url, format);
  if (mimeType === undefined)
    throw new FieldError(
      path,
      'needs a MIME type: its address has no known extension, so give it as `format`',
    );
  return { fileData: { mimeType, fileUri: url } };
}

/** The MIME type by `format`, else by the extension of a URL or file name; undefined if neither tells one. */
function mimeTypeOf(url: string, format: unknown): string | undefined {
  if (typeof format === 'string' && MIME_TYPE.test(format)) return format;
  const extension = EXTENSION_PATTERN.exec(url)?.[1]?.toLowerCase();
  return extension === undefined ? undefined : MIME_TYPES[extension];
}

/** Type and data of `data:image/png;base64,…`, without parameters of the type. */
function inlineData(url: string, path: string): { mimeType: string; data: string } {
  const comma = url.indexOf(',');
  const [mimeType = '', ...parameters] = url.slice('data:'.length, comma).split(';');
  if (comma < 0 || parameters.at(-1) !== 'base64' || !MIME_TYPE.test(mimeType))
    throw new FieldError(path, 'must be a data URL with a MIME type and base64');
  return { mimeType, data: url.slice(comma + 1) };
}

function audioPart(value: unknown, path: string): Part {
  const { data, format } = isRecord(value) ? value : {};
  if (typeof data !== 'string') throw new FieldError(`${path}.data`, 'must be a string');
  if (typeof format !== 'string' || !AUDIO_FORMAT.test(format))
    throw new FieldError(`${path}.format`, 'must be a format of audio, as wav or mp3');
  return { inlineData: { mimeType: `audio/${format}`, data } };
}

function filePart(value: unknown, path: string): Part {
  const { file_data: data, file_id: id, filename, format } = isRecord(value) ? value : {};
  if (typeof id === 'string') return partOfUrl(id, format, `${path}.file_id`);
  if (typeof data !== 'string') throw new FieldError(path, 'must have file_data or file_id');
  if (data.startsWith('data:')) return { inlineData: inlineData(data, `${path}.file_data`) };
  // A file without a known type is most likely a PDF.
  const mimeType = mimeTypeOf(typeof filename === 'string' ? filename : '', format) ?? 'application/pdf';
  return { inlineData: { mimeType, data } };
}
