/**
 * Tells which texts of a Responses stream are new. Such a stream repeats each text: in deltas, in an event
 * that the text is done, in the item that is done, and in the response that is complete. Some servers leave
 * the first of these out, for all kinds of items or for calls of functions alone. responses-dialect.ts asks a
 * StreamedKinds about each event, upstream/chat-text.ts about the events that are counted. Upstream worker,
 * and counter threads. Pure.
 *
 * Must hold: of each kind of item the first event that brings its texts is new, and no later one is
 * (test/unit/upstream/chat-text.streams.test.ts). Kinds are told apart, and not items, because not all
 * servers give an item the same id or index each time.
 */

/** The kinds of items, each with the first words of the types of the events that bring its texts. */
const KINDS: readonly (readonly [kind: string, eventTypes: readonly string[]])[] = [
  ['message', ['response.output_text.', 'response.refusal.']],
  ['reasoning', ['response.reasoning_text.', 'response.reasoning_summary_text.']],
  ['function_call', ['response.function_call_arguments.']],
  ['custom_tool_call', ['response.custom_tool_call_input.']],
];
/** The kind of an event or item that is none of KINDS: it may repeat a text of any kind. */
const ANY = 'any';

/** Whether an event of that type brings a piece of a text. Sound is none: only a report prices it. */
export const isTextDelta = (type: string): boolean =>
  type.endsWith('.delta') && type !== 'response.audio.delta';

function kindOfEvent(type: string): string {
  const found = KINDS.find(([, eventTypes]) => eventTypes.some((start) => type.startsWith(start)));
  return found?.[0] ?? ANY;
}

const kindOfItem = (type: unknown): string => KINDS.find(([kind]) => kind === type)?.[0] ?? ANY;

export class StreamedKinds {
  /** The kinds of which a delta has come: later events only repeat their texts. */
  readonly #withDelta = new Set<string>();
  /** The kinds of which a text that is done has come, without a delta before: their items only repeat it. */
  readonly #withDone = new Set<string>();

  countDelta(type: string): void {
    this.#withDelta.add(kindOfEvent(type));
  }

  /** Whether the text of an event whose type ends with `.done` is new. Call once for each. */
  isDoneNew(type: string): boolean {
    const kind = kindOfEvent(type);
    if (kind === ANY || has(this.#withDelta, kind)) return false;
    this.#withDone.add(kind);
    return true;
  }

  /** Whether the texts of an item of that `type` are new, unless the item itself has come before. */
  isItemNew(type: unknown): boolean {
    const kind = kindOfItem(type);
    return !has(this.#withDelta, kind) && !has(this.#withDone, kind);
  }
}

function has(kinds: ReadonlySet<string>, kind: string): boolean {
  return kind === ANY ? kinds.size > 0 : kinds.has(kind) || kinds.has(ANY);
}
