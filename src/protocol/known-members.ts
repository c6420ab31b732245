/**
 * The member names of a request that the gateway knows: names that it reads, and names that change what a
 * call costs or means. Pure; any thread. In this order: Level, a hash table of the names of one kind of
 * object, in which MemberReader looks names up; the levels of a chat completion, by which chat-scan.ts reads
 * (other doors make levels of their own); members by which a caller would steer a call; values that name what
 * a provider has stored. member-reader.ts asks for the last two as well.
 *
 * A name that differs from a known one only in case is rejected, because decoders that fold case (Go's
 * encoding/json, and Java and .NET if so configured) take `Model` for `model`, and the last of the two wins.
 *
 * Must hold: a member that the gateway or an upstream acts on is listed here; otherwise a second member, in
 * another case, goes to the upstream unseen (test/unit/protocol/known-members.test.ts,
 * test/unit/protocol/known-members.steering.test.ts). An address whose scheme is not certainly public counts
 * as stored at the provider, so that no unusual spelling of it gets past the rejection of routing members
 * (core/routing-members.ts, test/unit/protocol/known-members.stored.test.ts). Without a scheme it names
 * nothing that a provider could read.
 */
import { invariant } from '../core/errors.js';
import { STEERING_MEMBERS, type RoutingMember } from '../core/routing-members.js';
import { CASE_BIT } from './json-reader.js';

/** What `Level.find` returns for a name that is not known. */
export const UNKNOWN = -1;
/** `Level.find` returns FOLDED - index for a name that differs only in case from the name at that index. */
export const FOLDED = -2;

/**
 * MemberReader marks each given name of a level by a bit of one 32-bit word (GIVEN_NAMES), without the sign
 * bit. REQUEST has as many already: for another one MemberReader needs a second word.
 */
const NAMES_MAX = 31;
/** Slots of the hash table, a power of two: four times NAMES_MAX keeps probes short. */
const SLOTS = 128;
/** As in Java's hash of strings. */
const HASH_FACTOR = 31;

/** The hash of a name with one more byte. Both cases of a letter give the same hash. */
export function hashWith(hash: number, byte: number): number {
  return (Math.imul(hash, HASH_FACTOR) + (byte | CASE_BIT)) | 0;
}

function slotOf(hash: number): number {
  return (hash ^ (hash >>> 7) ^ (hash >>> 14)) & (SLOTS - 1);
}

/** A letter's lower case; other bytes as they are. */
function lowerByte(byte: number): number {
  return byte >= 65 && byte <= 90 ? byte | CASE_BIT : byte;
}

/**
 * The case-folded name, equal for names that any decoder takes for one. By Unicode's simple case folding the
 * Kelvin sign is a `k`, and the long s an `s`. Some decoders also take the two Turkish letters for an `i`:
 * `toUpperCase` folds the one without a dot. It also makes `ss` of `ß`, which simple folding does not, so a
 * name with that letter may be rejected needlessly.
 */
export function foldedName(name: string): string {
  return name.replaceAll('\u0130', 'i').toUpperCase().toLowerCase();
}

/** The known names of one kind of object. */
export class Level {
  readonly names: readonly string[];
  /** By the name's index: the names within the member's value, if it is an object or an array of objects. */
  readonly inner: readonly (Level | undefined)[];
  /** By the name's index: what the value may name that the provider stores. */
  readonly stored: readonly (StoredKind | undefined)[];
  /** Whether objects of this level are parts of a prompt. MemberReader counts the parts that are not text. */
  readonly isOfParts: boolean;
  /** The index of `type`; UNKNOWN if it is no known name. */
  readonly typeIndex: number;
  readonly #textTypes: readonly Uint8Array[];
  readonly #bytes: readonly Uint8Array[];
  /** Open addressing: a name's index plus 1, in the slot of its hash or the next free slot; 0 is free. */
  readonly #slots = new Int8Array(SLOTS);

  /**
   * The names consist of lower-case letters, digits and `_`: `find` folds no other characters. `stored` is by
   * name of a member.
   * `textTypes`, for a level of parts: the types of parts that are text; '' stands for a part without a type.
   */
  constructor(
    members: Readonly<Record<string, Level | undefined>>,
    stored: Readonly<Record<string, StoredKind>> = {},
    textTypes?: readonly string[],
  ) {
    this.names = Object.keys(members);
    this.inner = Object.values(members);
    invariant(
      this.names.every((name) => /^[a-z0-9_]+$/.test(name)),
      'known names are in lower case',
    );
    invariant(
      Object.keys(stored).every((name) => this.names.includes(name)),
      'what names something stored is a known name',
    );
    this.stored = this.names.map((name) => stored[name]);
    this.isOfParts = textTypes !== undefined;
    this.typeIndex = this.names.indexOf('type');
    invariant(!this.isOfParts || this.typeIndex >= 0, 'parts have a type');
    this.#textTypes = (textTypes ?? []).map((type) => Buffer.from(type === '' ? '' : `"${type}"`));
    this.#bytes = this.names.map((name) => Buffer.from(name));
    invariant(this.names.length <= NAMES_MAX, 'a level has as many names as marks');
    this.#bytes.forEach((bytes, index) => {
      let slot = slotOf(bytes.reduce(hashWith, 0));
      while (this.#slots[slot] !== 0) slot = (slot + 1) & (SLOTS - 1);
      this.#slots[slot] = index + 1;
    });
  }

  /** Finds an ASCII name. `hash`: by `hashWith` from 0. Returns an index, `FOLDED - index`, or UNKNOWN. */
  find(bytes: Uint8Array, start: number, end: number, hash: number): number {
    for (let slot = slotOf(hash); ; slot = (slot + 1) & (SLOTS - 1)) {
      const index = this.#slots[slot]! - 1;
      if (index < 0) return UNKNOWN;
      const name = this.#bytes[index]!;
      if (name.length !== end - start) continue;
      let isExact = true;
      let offset = 0;
      for (; offset < name.length; offset++) {
        const byte = bytes[start + offset]!;
        if (byte === name[offset]) continue;
        if (lowerByte(byte) !== name[offset]) break;
        isExact = false;
      }
      if (offset === name.length) return isExact ? index : FOLDED - index;
    }
  }

  /** As `find`, for a decoded name, which may have characters beyond ASCII. */
  findDecoded(name: string): number {
    const index = this.names.indexOf(name);
    if (index >= 0) return index;
    const folded = this.names.indexOf(foldedName(name));
    return folded >= 0 ? FOLDED - folded : UNKNOWN;
  }

  /**
   * Whether a part is text, by its type `bytes[start..end)`, quotes included; the span is empty for a part
   * without a type. A type that is written with escapes counts as media, for which the hold is larger.
   */
  isTextType(bytes: Uint8Array, start: number, end: number): boolean {
    for (const type of this.#textTypes) {
      if (type.length !== end - start) continue;
      let offset = 0;
      while (offset < type.length && bytes[start + offset] === type[offset]) offset++;
      if (offset === type.length) return true;
    }
    return false;
  }

  /** Returns the index of a name that the level has. Throws for any other name. */
  indexOf(name: string): number {
    const index = this.names.indexOf(name);
    invariant(index >= 0, 'a level is asked for names that it has');
    return index;
  }
}

/** Google's `cachedContent`, in lower case as all names here. */
const CAMEL_CACHED_CONTENT = 'cachedcontent';

/** How an error tells the sender to write a known name. */
export function spellingOf(name: string): string {
  return name === CAMEL_CACHED_CONTENT ? 'cached_content' : name;
}

/** Members for a Level, in whose values no names are checked. */
export function uncheckedMembers(...names: string[]): Record<string, undefined> {
  return Object.fromEntries(names.map((name) => [name, undefined]));
}

const CALLED_FUNCTION = new Level(uncheckedMembers('name', 'arguments', 'input'));
const TOOL_CALL = new Level({
  ...uncheckedMembers('id', 'type', 'index'),
  function: CALLED_FUNCTION,
  custom: CALLED_FUNCTION,
});
/** The value of that member of a content part whose name is the part's type, as `image_url`. */
const PART_SOURCE = new Level(
  {
    ...uncheckedMembers('url', 'detail', 'data', 'format', 'file_id', 'file_data', 'filename', 'type'),
    ...uncheckedMembers('media_type'),
  },
  { url: 'storage_url', data: 'storage_url', file_data: 'storage_url', file_id: 'file_id' },
);
const AUDIO_REFERENCE = new Level(uncheckedMembers('id'), { id: 'audio_id' });
/** Extensions of Google's OpenAI-compatible interface, which also takes names in camel case. */
const GOOGLE = new Level(uncheckedMembers('cached_content', CAMEL_CACHED_CONTENT), {
  cached_content: 'cached_content',
  [CAMEL_CACHED_CONTENT]: 'cached_content',
});
const FUNCTION_DEFINITION = new Level(
  uncheckedMembers('name', 'description', 'parameters', 'strict', 'format'),
);
export const TOOL = new Level({
  ...uncheckedMembers('type', 'name'),
  function: FUNCTION_DEFINITION,
  custom: FUNCTION_DEFINITION,
});
const TOOL_CHOICE = new Level({
  ...uncheckedMembers('type', 'mode'),
  function: new Level(uncheckedMembers('name')),
});

const TEMPLATE_ARGUMENTS = new Level(uncheckedMembers('chat_template'), { chat_template: 'chat_template' });

export const EXTRA_BODY = new Level({ google: GOOGLE });

/** `file_id` and `document_url` are Mistral's, which accepts strings for the other addresses too. */
const PART_MEMBERS = {
  ...uncheckedMembers('type', 'text', 'refusal', 'cache_control', 'file_id', 'document_url'),
  image_url: PART_SOURCE,
  video_url: PART_SOURCE,
  audio_url: PART_SOURCE,
  input_audio: PART_SOURCE,
  file: PART_SOURCE,
  source: PART_SOURCE,
};
const STORED_IN_PART = {
  file_id: 'file_id',
  document_url: 'storage_url',
  image_url: 'storage_url',
  video_url: 'storage_url',
  audio_url: 'storage_url',
} as const;

/** A part of an unknown type may be an image or a video, so it counts as media: servers go by the type. */
const TEXT_TYPES = ['text', 'refusal', 'thinking', 'redacted_thinking', 'input_text', 'output_text'];

/** A part of a message's content. */
export const PART = new Level(PART_MEMBERS, STORED_IN_PART, TEXT_TYPES);

/** `images` are made by a model: providers/gemini/contents.ts reads them again, whatever their type. */
export const MESSAGE = new Level({
  ...uncheckedMembers('role', 'content', 'name', 'tool_call_id', 'refusal', 'reasoning', 'reasoning_content'),
  images: new Level(PART_MEMBERS, STORED_IN_PART, []),
  audio: AUDIO_REFERENCE,
  tool_calls: TOOL_CALL,
  function_call: CALLED_FUNCTION,
});

export const STREAM_OPTIONS = new Level(
  uncheckedMembers('include_usage', 'include_obfuscation', 'continuous_usage_stats'),
);

/**
 * The request itself. `messages` and `stream_options` have no level here, nor has `content` in MESSAGE: their
 * values are not skipped, because chat-scan.ts reads them, by MESSAGE, STREAM_OPTIONS and PART.
 */
export const REQUEST = new Level({
  ...uncheckedMembers('model', 'messages', 'max_tokens', 'max_completion_tokens', 'temperature', 'top_p'),
  ...uncheckedMembers('n', 'stream', 'stream_options', 'stop', 'seed', 'user', 'response_format'),
  ...uncheckedMembers('metadata', 'store'),
  ...uncheckedMembers('presence_penalty', 'frequency_penalty', 'logit_bias', 'logprobs', 'top_logprobs'),
  ...uncheckedMembers('parallel_tool_calls', 'reasoning_effort', 'modalities', 'prediction'),
  tools: TOOL,
  functions: FUNCTION_DEFINITION,
  tool_choice: TOOL_CHOICE,
  function_call: TOOL_CHOICE,
  google: GOOGLE,
  extra_body: EXTRA_BODY,
  chat_template_kwargs: TEMPLATE_ARGUMENTS,
});

/**
 * Members that make more output than the hold covers, with the member to use instead. llama.cpp prefers
 * `n_predict` to `max_tokens` and `n_cmpl` to `n` (tools/server: `oaicompat_chat_params_parse` and its task's
 * parameters). `best_of` makes responses that no usage reports (vLLM up to 0.8).
 */
const OUTPUT_MEMBERS: Readonly<Record<string, string>> = {
  n_predict: 'max_tokens',
  n_cmpl: 'n',
  best_of: 'n',
};

/** A member by which a caller would get another call than the one that was admitted and has a hold. */
export type Steering =
  | { readonly kind: 'routing'; readonly name: RoutingMember }
  | { readonly kind: 'output'; readonly name: string; readonly instead: string };

const STEERING_BY_FOLDED_NAME: ReadonlyMap<string, Steering> = new Map<string, Steering>([
  ...STEERING_MEMBERS.map((name) => [foldedName(name), { kind: 'routing', name }] as const),
  ...Object.entries(OUTPUT_MEMBERS).map(
    ([name, instead]) => [name, { kind: 'output', name, instead }] as const,
  ),
]);

/** What the member with the folded name `folded` does to a call; undefined if nothing. */
export function steeringOf(folded: string): Steering | undefined {
  return STEERING_BY_FOLDED_NAME.get(folded);
}

/**
 * What a member may name that a provider has stored. A `storage_url` is an address; a `file_id` is an id or
 * an address. A `chat_template` is not stored, but is found in the same way.
 */
export type StoredKind = Extract<
  RoutingMember,
  'file_id' | 'storage_url' | 'audio_id' | 'cached_content' | 'chat_template'
>;

/**
 * Most readers of addresses ignore control characters and spaces before one, Python's `strip` also those that
 * are not ASCII. They ignore tabs and line ends (IGNORED) anywhere in it.
 */
const SCHEME = /^[\p{C}\p{Z}]*([a-z][a-z0-9+.\t\n\r-]*):/iu;
const IGNORED = /[\t\n\r]/g;
/** Schemes of addresses that anybody may read, and of data within the address. */
const PUBLIC_SCHEMES: readonly string[] = ['http', 'https', 'data'];
/** Files of Gemini: https://ai.google.dev/gemini-api/docs/files, read 2026-11. */
const GOOGLE_FILES = /generativelanguage/i;

/** What `value` names of what `kind` may be; undefined if nothing. `value`: undefined if it is no string. */
export function storedIn(kind: StoredKind, value: unknown): StoredKind | undefined {
  if (kind !== 'file_id' && kind !== 'storage_url') return kind;
  if (typeof value !== 'string') return kind === 'file_id' ? kind : undefined;
  const scheme = SCHEME.exec(value)?.[1]!.replace(IGNORED, '').toLowerCase();
  if (scheme === undefined) return kind === 'file_id' ? kind : undefined;
  if (!PUBLIC_SCHEMES.includes(scheme)) return 'storage_url';
  return scheme !== 'data' && GOOGLE_FILES.test(hostOf(value)) ? 'storage_url' : undefined;
}

/** The address itself if Node cannot parse it: an upstream may be able to. */
function hostOf(address: string): string {
  return URL.canParse(address) ? new URL(address).hostname : address;
}
