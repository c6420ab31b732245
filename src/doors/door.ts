/**
 * The interfaces of a door, one API by which callers call models. Each folder beside this file has a door, or
 * several of one kind, in two halves. Listeners load `Door`: it reads a request's body and writes errors.
 * Upstream workers load `Dialect`, and counter threads for the translation of large bodies: it reads the
 * responses of upstreams that speak the door's protocol, and translates for the others, by way of a chat
 * completion. doors.ts and dialects.ts are the tables; no other file of the listeners knows a door by name.
 *
 *     body ─ Door.read ─→ ChatCall ─→ worker ─┬─ the upstream speaks the door's protocol: bytes pass,
 *                                             │    and EventJudge finds the usage and the end
 *                                             └─ it does not: toChat ─→ upstream ─→ fromChat, openStream
 *
 * Must hold: a door keeps no state between calls; `read` and `readPieces` accept the same bodies
 * (test/unit/protocol/request-bytes.test.ts).
 */
import type { Members } from '../core/json.js';
import type { DOOR_PATHS, DoorName } from '../core/door-names.js';
import type { ErrorRecord } from '../core/errors.js';
import type { ChatRequestResult } from '../protocol/chat-call.js';

/**
 * What response headers are made of. A limit is undefined if the response comes before the phase that checks
 * the limit, or if the caller has no such limit.
 */
export interface ResponseFacts {
  readonly requestId: string;
  /** `resetSeconds`: Unix seconds. */
  readonly rateLimit:
    | { readonly limit: number; readonly remaining: number; readonly resetSeconds: number }
    | undefined;
  /** `resetMs`: milliseconds from now. */
  readonly tokenLimit:
    | { readonly limit: number; readonly remaining: number; readonly resetMs: number }
    | undefined;
}

/** How a door writes the errors of the gateway. */
export interface ErrorShape {
  /** The HTTP status of a response. */
  status(error: ErrorRecord): number;
  /** The body of a response, as JSON text. */
  body(error: ErrorRecord, requestId: string): string;
  /**
   * The event that ends a stream after its first byte, with its blank line. `number`: the next event number,
   * if `numberIn` has found one before.
   */
  event(error: ErrorRecord, requestId: string, number?: number): string;
  /**
   * The number of the last event in a frame; undefined if the frame has no number. Takes some 0.2 µs. The
   * method is absent if the door does not number its events.
   */
  readonly numberIn?: (frame: Uint8Array) => number | undefined;
}

/** A door as listeners see it. Pure. A Door of one name has the path of that name. */
export interface Door<Name extends DoorName = DoorName> {
  readonly name: Name;
  /** Path of the route, which accepts POST. */
  readonly path: (typeof DOOR_PATHS)[Name];
  readonly errors: ErrorShape;
  /** Set if calls of the door cost nothing. They count only as requests of a minute and calls in flight. */
  readonly isFree?: true;
  /** Reads a body in one piece. Does not keep `bytes`. */
  read(bytes: Uint8Array): ChatRequestResult;
  /** Reads a large body in pieces, in a counter thread; the call has `largeBody`. */
  readPieces(pieces: readonly Uint8Array[]): ChatRequestResult;
  /** Headers that only this door has, each with a line break before it; '' at most doors. */
  headerLines(facts: ResponseFacts): string;
}

export interface DoorCall {
  readonly requestId: string;
  /** The id of the model that serves the call. */
  readonly model: string;
  readonly stream: boolean;
  /** The body of the request, parsed. Of a large body the conversation is left out. */
  readonly body: Members;
  /** When the attempt began, in Unix milliseconds. */
  readonly nowMs: number;
  /**
   * As in UpstreamTraits. Clients keep only thoughts that look as if the provider had signed them. So the
   * translators give unsigned ones an empty `signature` (Messages) or an `encrypted_content` without blocks.
   */
  readonly thoughtsBack?: boolean | undefined;
}

/**
 * What the gateway has to know of one event of a stream. Make it by a spread of NO_MEANING, which has all
 * members: on Node 20 a spread that adds a member takes 0.6 µs, one that replaces a member 0.03.
 */
export interface EventMeaning {
  /** A report of usage, in any form that upstream/usage-shapes.ts reads. */
  readonly usage: unknown;
  /** The upstream's name of the model, if the event has it. */
  readonly model: unknown;
  /** Whether the event brings text, thoughts or tool arguments. */
  readonly isText: boolean;
  /**
   * Whether the event has no text to count: none, or only text that an earlier event has brought. The meter
   * of usage does not get it. A judge need not set it for short events: few bytes do not change the count.
   */
  readonly isUncounted: boolean;
  /** Whether the stream is complete with this event. */
  readonly isEnd: boolean;
  /** Whether no text follows this event, though other events do. */
  readonly isTextOver: boolean;
  /** Why the stream has failed: an error, or an event of no such protocol. Undefined if it goes on. */
  readonly fault: string | undefined;
}

export const NO_MEANING: EventMeaning = {
  usage: undefined,
  model: undefined,
  isText: false,
  isUncounted: false,
  isEnd: false,
  isTextOver: false,
  fault: undefined,
};

/**
 * Reads the events of one stream in the door's own protocol. upstream/passed-stream-reader.ts calls a judge
 * for events with data, in order: `known`, and `judge` if `known` returns undefined or the event is long. The
 * reader may skip events that differ only in their text from one that was judged to bring text alone
 * (upstream/event-template.ts). So a judge keeps no state of such events, but what the first one shows.
 */
export interface EventJudge {
  /** The gateway ends a stream by it that fails after an event with `isTextOver`. Absent if none has that. */
  readonly lastEvent?: string;
  /** Of the prompt alone, if the stream ends before `judge` has returned that of the whole call. */
  readonly usageSoFar?: unknown;
  /**
   * A fast path, which halves the cost of a stream. Returns what `judge` would return, or undefined if the
   * data, which is Latin-1, must be parsed. It recognises JSON objects alone, as nobody parses them then.
   */
  known?(data: string): EventMeaning | undefined;
  /** `event` was parsed from JSON. */
  judge(event: Members): EventMeaning;
}

/**
 * Writes one stream in the door's protocol from the chunks of a chat completion; upstream/door-call.ts calls
 * it. A method throws a ProviderError for a chunk that the protocol cannot express; then the stream is over.
 */
export interface DoorStream {
  /**
   * `chunk`: one chat.completion.chunk, with usage as providers/provider-usage.ts writes it. Returns whole
   * events, or an empty text.
   */
  push(chunk: Members): string;
  /** Call once, when the chat completion has ended without an error. Returns the last events. */
  end(): string;
}

/** How an upstream's chat completions differ from OpenAI's. A member that is left out is false. */
export interface UpstreamTraits {
  /**
   * Whether it has the extras of the glossary: it reads `thinking_blocks`, `thinking` and `cache_control`,
   * and images and files in a message of a tool. For an upstream without extras the three members are left
   * out, and images and files go to a user message. Such an upstream may not know the role `developer`
   * either, so the role becomes `system`, and the leading system messages become one.
   */
  readonly extras?: boolean | undefined;
  /**
   * Whether it wants the thoughts of earlier turns back (the setting `thoughts_back`): then each message of
   * the assistant has `reasoning_content`.
   */
  readonly thoughtsBack?: boolean | undefined;
}

export interface Translator {
  /**
   * Returns the body of a chat completion for the same call, with the member `model` as it is in `body`. A
   * stream asks for its usage. May refer to objects of `body`, and changes none. Throws a FieldError that
   * names a member which a chat completion cannot express.
   */
  toChat(body: Members, upstream?: UpstreamTraits): Record<string, unknown>;
  /**
   * The members of `body` that `toChat` takes as exactJson reads them, so that integers in them keep their
   * digits. For an upstream with a provider integers keep their digits in large bodies only: for a small body
   * callOf of providers/provider-client.ts parses the chat completion again.
   */
  readonly exactMembers?: readonly string[];
  /** The door's names of members of the chat completion: the parameter `names` of `callersPath`. */
  readonly names: Readonly<Record<string, string>>;
  /** Returns a response that is not streamed, as JSON text. Usage and errors are as in a DoorStream. */
  fromChat(response: Members, call: DoorCall): string;
  openStream(call: DoorCall): DoorStream;
}

/** A door as upstream workers see it. Pure. */
export interface Dialect<Name extends DoorName = DoorName> {
  readonly name: Name;
  /** The member by which a response in this protocol is recognised: an array, or with `isCount` a number. */
  readonly marker: string;
  /** Returns why a response that has the marker is an error all the same; undefined for a success. */
  readonly faultIn?: (members: Members) => string | undefined;
  /**
   * Set if a call of the door only counts the tokens of its prompt, and is free. The call passes to upstreams
   * that speak the protocol; if none of these can count, the gateway counts.
   */
  readonly isCount?: true;
  /** Set if responses have no text of a model: the gateway then counts no tokens of a response. */
  readonly isTextless?: true;
  /** Set if providers bill no tokens of the door's calls, unless they report them: a report of 0 is right. */
  readonly isUnbilled?: true;
  /** Undefined if streams of the door have the form of chat completions, or if there are none. */
  readonly openJudge: (() => EventJudge) | undefined;
  /** Undefined if only upstreams that speak the protocol can serve the door. */
  readonly translator: Translator | undefined;
  /** The texts to count if the upstream reports no usage. Undefined: those that `toChat` returns. */
  readonly promptTexts: ((body: Members) => string[]) | undefined;
  /**
   * The prompt, as text or tokens, that the response may repeat before the text of the choice of that index;
   * empty if none. Reads the members `echo`, `prompt` and `n`. Left out if responses repeat no prompt.
   */
  readonly echoedPrompt?: (body: Members, choice: number) => string | readonly number[];
}
