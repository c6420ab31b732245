/**
 * The names of a request's members, at every level that the gateway reads or that changes what a call costs or means. A
 * name that is the same as one of them but for its case is refused: decoders that fold case (Go's encoding/json, and what is
 * set so in Java and .NET) take `Model` for `model`, the last of the two. Pure; any thread.
 *
 * What is here is compared and otherwise passed on; which values the members may have is in chat-schema.ts.
 */
import { invariant } from '../core/errors.js';

/** What `Level.find` gives for a name that is not known. One that folds onto the known name `i` gives `FOLDED - i`. */
export const UNKNOWN = -1;
export const FOLDED = -2;

/** Names of a level, some of them the marks of its members that were seen: 32 bits. */
const NAMES_MAX = 31;
const SLOTS = 128;
const CASE_BIT = 32;
const HASH_FACTOR = 31;

/** Hash of a name so far, and of its next byte: the same for both cases of a letter. */
export function hashWith(hash: number, byte: number): number {
  return (Math.imul(hash, HASH_FACTOR) + (byte | CASE_BIT)) | 0;
}

function slotOf(hash: number): number {
  return (hash ^ (hash >>> 7) ^ (hash >>> 14)) & (SLOTS - 1);
}

/** The letter's small form; other bytes as they are. */
function lowerByte(byte: number): number {
  return byte >= 65 && byte <= 90 ? byte | CASE_BIT : byte;
}

/**
 * What is the same for two names that a decoder may take for one: simple case folding of Unicode, by which the Kelvin sign is a
 * `k` and the long s an `s`, and the two Turkish letters taken for an `i`, as some do.
 */
export function foldedName(name: string): string {
  return name.replaceAll('\u0130', 'i').toUpperCase().toLowerCase();
}

/** An object whose members' names are compared. */
export class Level {
  readonly names: readonly string[];
  /** By the name's index: the level of the object, or of the objects in the array, that is its value. */
  readonly inner: readonly (Level | undefined)[];
  readonly #bytes: readonly Uint8Array[];
  /** Index of a name and 1, by its hash, in the next free slot where that is taken. */
  readonly #slots = new Int8Array(SLOTS);

  /** The names must be of small letters, digits and `_`. */
  constructor(members: Readonly<Record<string, Level | undefined>>) {
    this.names = Object.keys(members);
    this.inner = Object.values(members);
    this.#bytes = this.names.map((name) => Buffer.from(name));
    invariant(this.names.length <= NAMES_MAX, 'a level has as many names as marks');
    this.#bytes.forEach((bytes, index) => {
      let slot = slotOf(bytes.reduce(hashWith, 0));
      while (this.#slots[slot] !== 0) slot = (slot + 1) & (SLOTS - 1);
      this.#slots[slot] = index + 1;
    });
  }

  /** Index of the known name that `bytes` have from `start` to `end`, FOLDED less it where only the case differs, or UNKNOWN. ASCII. */
  find(bytes: Uint8Array, start: number, end: number, hash: number): number {
    for (let slot = slotOf(hash); ; slot = (slot + 1) & (SLOTS - 1)) {
      const index = this.#slots[slot]! - 1;
      if (index < 0) return UNKNOWN;
      const name = this.#bytes[index]!;
      if (name.length !== end - start) continue;
      let isSame = true;
      let at = 0;
      for (; at < name.length; at++) {
        const byte = bytes[start + at]!;
        if (byte === name[at]) continue;
        if (lowerByte(byte) !== name[at]) break;
        isSame = false;
      }
      if (at === name.length) return isSame ? index : FOLDED - index;
    }
  }

  /** The same of a decoded name. */
  findText(name: string): number {
    const index = this.names.indexOf(name);
    if (index >= 0) return index;
    const folded = this.names.indexOf(foldedName(name));
    return folded >= 0 ? FOLDED - folded : UNKNOWN;
  }

  indexOf(name: string): number {
    const index = this.names.indexOf(name);
    invariant(index >= 0, 'a level is asked for names that it has');
    return index;
  }
}

/** Members of which nothing is read within. */
function plain(...names: string[]): Record<string, undefined> {
  return Object.fromEntries(names.map((name) => [name, undefined]));
}

const CALLED = new Level(plain('name', 'arguments', 'input'));
const TOOL_CALL = new Level({ ...plain('id', 'type', 'index'), function: CALLED, custom: CALLED });
/** What a content part has in the member named by its type. */
const SOURCE = new Level(
  plain('url', 'detail', 'data', 'format', 'file_id', 'file_data', 'filename', 'type', 'media_type'),
);
const DEFINITION = new Level(plain('name', 'description', 'parameters', 'strict', 'format'));
const TOOL = new Level({ ...plain('type'), function: DEFINITION, custom: DEFINITION });
const CHOICE = new Level({ ...plain('type', 'mode'), function: new Level(plain('name')) });

export const PART = new Level({
  ...plain('type', 'text', 'refusal', 'cache_control'),
  image_url: SOURCE,
  video_url: SOURCE,
  audio_url: SOURCE,
  input_audio: SOURCE,
  file: SOURCE,
  source: SOURCE,
});

export const MESSAGE = new Level({
  ...plain('role', 'content', 'name', 'tool_call_id', 'refusal', 'reasoning', 'reasoning_content', 'audio'),
  tool_calls: TOOL_CALL,
  function_call: CALLED,
});

export const STREAM_OPTIONS = new Level(
  plain('include_usage', 'include_obfuscation', 'continuous_usage_stats'),
);

export const REQUEST = new Level({
  ...plain('model', 'messages', 'max_tokens', 'max_completion_tokens', 'temperature', 'top_p', 'n'),
  ...plain('stream', 'stream_options', 'stop', 'seed', 'user', 'response_format', 'metadata', 'store'),
  ...plain('presence_penalty', 'frequency_penalty', 'logit_bias', 'logprobs', 'top_logprobs'),
  ...plain('parallel_tool_calls', 'reasoning_effort', 'service_tier', 'modalities', 'prediction'),
  tools: TOOL,
  functions: DEFINITION,
  tool_choice: CHOICE,
  function_call: CHOICE,
});
