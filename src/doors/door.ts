/**
 * A door: one interface by which callers call models. Each folder beside this file is one, in two parts.
 * Listeners load `Door`: it reads a request's body and writes errors. Upstream workers load `Dialect`: it
 * reads what an upstream that speaks the door's protocol sends, and translates for the others, by way of a
 * chat completion. doors.ts and dialects.ts are the tables; a listener knows no door by name.
 *
 *     body ─ Door.read ─→ ChatCall ─→ worker ─┬─ the upstream speaks the door's protocol: bytes pass,
 *                                             │    and EventJudge finds the usage and the end
 *                                             └─ it does not: toChat ─→ upstream ─→ fromChat, openStream
 */
import type { DoorName, DoorPath } from '../core/door-names.js';
import type { ErrorRecord } from '../core/errors.js';
import type { ChatRequestResult } from '../protocol/chat-call.js';

/** What headers of a response are made of. All is known of a call that was admitted. */
export interface ResponseFacts {
  readonly requestId: string;
  /** `resetSeconds`: Unix seconds. */
  readonly rateLimit:
    { readonly limit: number; readonly remaining: number; readonly resetSeconds: number } | undefined;
  /** `resetMs`: from now. */
  readonly tokenLimit:
    { readonly limit: number; readonly remaining: number; readonly resetMs: number } | undefined;
}

/** How a door tells an error. */
export interface ErrorShape {
  status(error: ErrorRecord): number;
  /** The body of a response, as JSON text. */
  body(error: ErrorRecord, requestId: string): string;
  /**
   * The event that ends a stream after its first byte, with its blank line. `number`: of the event, if
   * `numberIn` has found one before.
   */
  event(error: ErrorRecord, requestId: string, number?: number): string;
  /**
   * The number of the last event in a frame, if the door numbers its events; undefined if none is there. Some
   * 0.2 µs. Absent: the events have no numbers.
   */
  readonly numberIn?: (frame: Uint8Array) => number | undefined;
}

/** A door as listeners see it. Pure. */
export interface Door {
  readonly name: DoorName;
  /** Of the route, which takes POST: that of DOOR_PATHS. */
  readonly path: DoorPath;
  readonly errors: ErrorShape;
  /** Its calls cost nothing: they count toward the minute and the calls in flight, and nothing else. */
  readonly isFree?: true;
  /** Does not keep `bytes`. */
  read(bytes: Uint8Array): ChatRequestResult;
  /** The same for a large body in pieces, whose call has `largeBody`. Counter pool. */
  readPieces(pieces: readonly Uint8Array[]): ChatRequestResult;
  /** Headers that only this door has, each after its line break; mostly empty. */
  headerLines(facts: ResponseFacts): string;
}

/** A call as its dialect sees it. */
export interface DoorCall {
  readonly requestId: string;
  /** The id of the model that answers. */
  readonly model: string;
  readonly stream: boolean;
  /** The body of the request, parsed. */
  readonly body: Readonly<Record<string, unknown>>;
  readonly nowMs: number;
}

/** What one event of a stream means. */
export interface EventMeaning {
  /** A report of usage, in any form that upstream/usage-shapes.ts reads. */
  readonly usage?: unknown;
  /** The upstream's name of the model, if the event has it. */
  readonly model?: unknown;
  /** It brings text, thoughts or arguments of tools. */
  readonly isText: boolean;
  /** Nothing follows: the stream is whole. */
  readonly isEnd: boolean;
  /** What is wrong: an error of the upstream, or no event of this protocol. */
  readonly garbage?: string;
}

/** Reads the events of one stream in the door's own protocol. `event` was parsed from JSON. */
export interface EventJudge {
  /**
   * Matches the data of most events that bring text, as Latin-1: what it matches is a JSON object, and says
   * nothing else. They are not parsed, which is half the cost of a stream.
   */
  readonly textEvent?: RegExp;
  judge(event: Readonly<Record<string, unknown>>): EventMeaning;
}

/** Writes one stream in the door's protocol from the chunks of a chat completion. */
export interface DoorStream {
  /** `chunk`: one chat.completion.chunk. Returns whole events, or nothing. */
  push(chunk: Readonly<Record<string, unknown>>): string;
  /** The chat completion ended well. Returns the last events. */
  end(): string;
}

export interface Translator {
  /**
   * Returns the body of a chat completion for the same call, with the member `model` as it is in `body`. A
   * stream asks for its usage. `extras`: the upstream is a provider that reads `thinking_blocks` and
   * `cache_control` in a chat completion; they are left out for others. Throws a FieldError that names the
   * member which a chat completion cannot say.
   */
  toChat(body: Readonly<Record<string, unknown>>, extras?: boolean): Record<string, unknown>;
  /** What members of the chat completion are called at the door: `names` of callersPath. */
  readonly names: Readonly<Record<string, string>>;
  /** Returns the whole response as JSON text. `answer`: a chat completion. */
  fromChat(answer: Readonly<Record<string, unknown>>, call: DoorCall): string;
  openStream(call: DoorCall): DoorStream;
}

/** A door as upstream workers see it. Pure. */
export interface Dialect {
  readonly name: DoorName;
  /** The member that each whole response in this protocol has: an array, or with `isCount` a number. */
  readonly marker: string;
  /** What is wrong with a whole response that has the marker; undefined if nothing can be or is. */
  readonly faultIn?: (members: Readonly<Record<string, unknown>>) => string | undefined;
  /**
   * A call asks how many tokens its prompt has, and is free. It passes to upstreams that speak the protocol;
   * the gateway counts if none does, or none can tell.
   */
  readonly isCount?: true;
  /** Undefined if streams of the door have the form of chat completions, or if there are none. */
  readonly openJudge: (() => EventJudge) | undefined;
  /** Undefined if only upstreams that speak the protocol can serve the door. */
  readonly translator: Translator | undefined;
  /** Texts of the prompt, if the upstream reports no usage. Undefined: those of `translator.toChat`. */
  readonly promptTexts: ((body: Readonly<Record<string, unknown>>) => string[]) | undefined;
}
