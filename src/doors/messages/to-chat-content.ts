/**
 * The messages of a Messages request as those of a chat completion. to-chat.ts calls it. No I/O; upstream
 * worker.
 *
 *     text, image, document      parts of the same kind; a document's base64 is a file
 *     tool_result                a message of the role `tool`, before the rest of its turn. A chat completion
 *                                allows only text there, so images and files go to the user message after it;
 *                                a result with `is_error` begins with "Error: "
 *     tool_use                   tool_calls
 *     thinking                   thinking_blocks, if it has a signature and the upstream reads them;
 *                                providers without signatures accept no thinking back
 *
 * Must hold: each part that is made is registered with `from` (callers-path.ts), or an error names a path
 * that the caller does not know (test/unit/doors/callers-path.test.ts).
 */
import { exactJsonText } from '../../core/exact-json.js';
import { isRecord } from '../../core/json.js';
import { FieldError } from '../../providers/provider.js';
import { from } from '../callers-path.js';

type Members = Readonly<Record<string, unknown>>;
type Part = Record<string, unknown>;

/** `extras`: as in to-chat.ts. Throws a FieldError. */
export function messagesOf(messages: readonly Members[], extras: boolean): Part[] {
  const written: Part[] = [];
  messages.forEach(({ role, content }, index) => {
    const path = `messages[${index}]`;
    if (role === 'assistant') written.push(from(path, assistantOf(content, path, extras)));
    else if (role === 'system')
      written.push(from(path, { role, content: textPartsOf(content, `${path}.content`, extras) }));
    else written.push(...userTurnOf(content, path, extras));
  });
  return written;
}

/** Content that may only be text, as a string or as parts. */
export function textPartsOf(content: unknown, path: string, extras: boolean): string | Part[] {
  if (typeof content === 'string') return content;
  const parts = blocksIn(content, path).map((block, index) =>
    partOf(block, `${path}[${index}]`, extras, true),
  );
  return contentOf(parts);
}

/** The block's `cache_control`, if the upstream reads it. */
export function markOf(block: Members, extras: boolean): Members {
  const { cache_control: mark } = block;
  return extras && isRecord(mark) ? { cache_control: mark } : {};
}

function userTurnOf(content: unknown, path: string, extras: boolean): Part[] {
  if (typeof content === 'string') return [from(path, { role: 'user', content })];
  const results: Part[] = [];
  const parts: Part[] = [];
  blocksIn(content, `${path}.content`).forEach((block, index) => {
    const at = `${path}.content[${index}]`;
    if (block.type === 'tool_result') results.push(from(at, resultOf(block, at, parts, extras)));
    else parts.push(partOf(block, at, extras));
  });
  if (parts.length > 0) results.push(from(path, { role: 'user', content: contentOf(parts) }));
  else if (results.length === 0) throw new FieldError(`${path}.content`, 'must not be empty');
  return results;
}

/** The message of a tool result. Images and files in the result are added to `parts`. */
function resultOf(block: Members, path: string, parts: Part[], extras: boolean): Part {
  const { tool_use_id: id, content, is_error: isError } = block;
  if (typeof id !== 'string') throw new FieldError(`${path}.tool_use_id`, 'must be a string');
  const isText = typeof content === 'string';
  const texts: string[] = isText ? [content] : [];
  blocksIn(isText ? undefined : content, `${path}.content`).forEach((inner, index) => {
    const part = partOf(inner, `${path}.content[${index}]`, extras);
    if (part.type === 'text') texts.push(part.text as string);
    else parts.push(part);
  });
  const text = texts.join('\n');
  return {
    role: 'tool',
    tool_call_id: id,
    content: isError === true ? `Error: ${text}` : text,
    ...markOf(block, extras),
  };
}

function assistantOf(content: unknown, path: string, extras: boolean): Part {
  if (typeof content === 'string') return { role: 'assistant', content };
  const parts: Part[] = [];
  const calls: Part[] = [];
  const thoughts: Part[] = [];
  blocksIn(content, `${path}.content`).forEach((block, index) => {
    const at = `${path}.content[${index}]`;
    const { type, id, name, input, thinking, signature, data } = block;
    if (type === 'thinking') {
      if (typeof signature === 'string' && signature !== '') thoughts.push({ type, thinking, signature });
    } else if (type === 'redacted_thinking') thoughts.push({ type, data });
    else if (type === 'tool_use') {
      if (typeof id !== 'string' || typeof name !== 'string')
        throw new FieldError(`${at}.${typeof id === 'string' ? 'name' : 'id'}`, 'must be a string');
      const called = { name, arguments: exactJsonText(input ?? {}) };
      calls.push(from(at, { id, type: 'function', function: called, ...markOf(block, extras) }));
    } else parts.push(partOf(block, at, extras, true));
  });
  return {
    role: 'assistant',
    content: parts.length > 0 ? contentOf(parts) : calls.length > 0 ? null : '',
    ...(extras && thoughts.length > 0 && { thinking_blocks: thoughts }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

/**
 * The blocks of a content, none for an absent one. They are checked, because the schema skips tool results.
 */
function blocksIn(content: unknown, path: string): readonly Members[] {
  if (content === undefined || content === null) return [];
  if (!Array.isArray(content)) throw new FieldError(path, 'must be a string or an array of blocks');
  return (content as unknown[]).map((block, index) => {
    if (!isRecord(block)) throw new FieldError(`${path}[${index}]`, 'must be an object');
    return block;
  });
}

/** The value of `content`: a lone text without `cache_control` is a string, which every server accepts. */
function contentOf(parts: Part[]): string | Part[] {
  const [part] = parts;
  return parts.length === 1 && part!.type === 'text' && part!.cache_control === undefined
    ? (part!.text as string)
    : parts;
}

function partOf(block: Members, path: string, extras: boolean, textAlone = false): Part {
  return from(path, newPart(block, path, extras, textAlone));
}

function newPart(block: Members, path: string, extras: boolean, textAlone: boolean): Part {
  const { type, text, source, title } = block;
  if (type === 'text') {
    if (typeof text !== 'string') throw new FieldError(`${path}.text`, 'must be a string');
    return { type, text, ...markOf(block, extras) };
  }
  if (textAlone || (type !== 'image' && type !== 'document'))
    throw new FieldError(`${path}.type`, 'has no counterpart in a chat completion');
  if (!isRecord(source)) throw new FieldError(`${path}.source`, 'must be an object');
  const { type: kind, url, media_type: media, data } = source;
  if (kind === 'text' && typeof data === 'string')
    return { type: 'text', text: data, ...markOf(block, extras) };
  const isData = kind === 'base64' && typeof data === 'string' && typeof media === 'string';
  if (!isData && !(kind === 'url' && typeof url === 'string' && type === 'image'))
    throw new FieldError(`${path}.source`, `has no counterpart in a chat completion`);
  const address = isData ? `data:${media};base64,${data}` : url;
  if (type === 'image') return { type: 'image_url', image_url: { url: address }, ...markOf(block, extras) };
  const filename = typeof title === 'string' ? title : 'document.pdf';
  return { type: 'file', file: { filename, file_data: address }, ...markOf(block, extras) };
}
