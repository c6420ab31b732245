/**
 * Knows what a Gemini stream has reported of its usage, and whether that covers all that has come. stream.ts
 * makes one StreamUsage for each stream, and tells it of each event and part. Pure; upstream worker.
 *
 * Each event may have a usage, which counts all tokens so far; the last one counts
 * (https://ai.google.dev/api/generate-content#UsageMetadata, v1beta, read 2026-11). An event that matched the
 * template of text-template.ts is not parsed: its usage is read only if it turns out to be the last. Vertex
 * puts a `usageMetadata` without counts into events before the last, such as `{"trafficType":"ON_DEMAND"}`:
 * that is no usage.
 *
 *     matchedEvent                       an event that matched
 *     parsedEvent, then part if it has   any other event
 *     next                               for the client: at the end, and when all candidates have finished
 *     last                               for the first chunk, if the client asked, and if the stream is cut
 *
 * Must hold: a usage without the tokens of a later part is not given as that of the call, or the call is
 * billed too low: without one upstream/ counts the tokens itself. No usage is given twice
 * (test/unit/providers/gemini/stream-usage.test.ts, test/unit/providers/gemini/stream.test.ts).
 */
import { isRecord, membersOf, parsedJson, type Members } from '../../core/json.js';
import type { ProviderUsage } from '../provider-usage.js';
import { usageOf } from './response.js';

export class StreamUsage {
  #reported: ProviderUsage | undefined;
  /** Whether a part has come after the event of `#reported`. */
  #isOld = false;
  #isGiven = false;
  /** Whether the event whose parts come now has a usage, which counts these parts. */
  #coversParts = false;
  /** The last event, if it matched: its usage is newer than `#reported`, and is not read yet. */
  #unreadEvent: string | undefined;

  /** `hasText`: the event brings a part. Costs no parse. */
  matchedEvent(event: string, hasText: boolean): void {
    this.#unreadEvent = event;
    if (hasText) this.#isOld = true;
  }

  parsedEvent(event: Members): void {
    this.#coversParts = this.#read(event);
    if (this.#coversParts) this.#unreadEvent = undefined;
    else this.#readUnread();
  }

  /** A text, a call, media or probabilities. */
  part(): void {
    if (!this.#coversParts) this.#isOld = true;
  }

  get last(): ProviderUsage | undefined {
    this.#readUnread();
    return this.#reported;
  }

  /** The usage of all that has come; undefined if there is none, or if an earlier call has given it. */
  next(): ProviderUsage | undefined {
    this.#readUnread();
    if (this.#isOld || this.#isGiven) return undefined;
    this.#isGiven = true;
    return this.#reported;
  }

  #readUnread(): void {
    if (this.#unreadEvent === undefined) return;
    const event = membersOf(parsedJson(this.#unreadEvent));
    this.#unreadEvent = undefined;
    this.#read(event);
  }

  /** Returns whether the event has a usage. */
  #read(event: Members): boolean {
    const { usageMetadata: usage } = event;
    // Google leaves out counts of 0 alone, and no prompt has 0 tokens.
    if (!isRecord(usage) || usage.promptTokenCount === undefined) return false;
    this.#reported = usageOf(event);
    this.#isOld = false;
    this.#isGiven = false;
    return true;
  }
}
