/**
 * The response of a translated call, which comes as a chat completion and goes out in the protocol of the
 * call's door. door-call.ts calls `translatingReader` once a good response begins. A reader of chat
 * completions reads the upstream; a translation stands between it and the session. Upstream worker.
 *
 * Must hold: the usage in a translated response is that which is billed, in the form of
 * providers/provider-usage.ts, whether the upstream reported the tokens or the gateway counted them. The
 * response begins with the first byte for the client, and until then the call can fail over. A response that
 * the door's protocol cannot express leaves the breaker alone. A translated response is valid in the door's
 * protocol (also test/e2e/messages.test.ts, test/e2e/responses.test.ts).
 */
import { asBuffer } from '../core/bytes.js';
import { isRecord, parsedJson } from '../core/json.js';
import type { Usage } from '../core/token-counts.js';
import type { DoorCall, DoorStream, Translator } from '../doors/door.js';
import { forEachEvent } from '../protocol/sse.js';
import { ProviderError } from '../providers/provider.js';
import { usageMember } from '../providers/provider-usage.js';
import { invalidResponseFailure, budgetFailure, type AttemptFailure } from './error-mapping.js';
import {
  type ReaderOwner,
  ResponseReader,
  type ResponseBodyReader,
  type ResponseOutcome,
  type ResponseSink,
} from './response-reader.js';
import { StreamReader } from './stream-reader.js';
import { reportIn, tokensOfReport } from './usage-shapes.js';

/** The reader of one response. `choices`: how many responses the call asks for (`n`). */
export function translatingReader(
  owner: ReaderOwner,
  translator: Translator,
  call: DoorCall,
  choices: number,
): ResponseBodyReader {
  const { sink, outcome, meter, budget } = owner;
  if (!call.stream) return new ResponseReader(new WholeTranslation(owner, translator, call), meter, budget);
  const stream = new StreamTranslation(sink, outcome, translator.openStream(call));
  // The reader must relay the usage, whatever the caller asked for: the door's own usage is made from it.
  const includeUsage = true;
  return new StreamReader({ sink: stream, outcome: stream, meter }, includeUsage, choices);
}

/** Translates a chat completion that is not streamed, between its reader and the attempt. */
class WholeTranslation implements ResponseOutcome {
  readonly #owner: ReaderOwner;
  readonly #translator: Translator;
  readonly #call: DoorCall;

  constructor(owner: ReaderOwner, translator: Translator, call: DoorCall) {
    this.#owner = owner;
    this.#translator = translator;
    this.#call = call;
  }

  onBegin(): void {
    this.#owner.outcome.onBegin();
  }

  complete(response: Uint8Array): void {
    const { outcome, meter, budget } = this.#owner;
    const members = parsedJson(asBuffer(response).toString());
    if (!isRecord(members)) {
      outcome.reject(invalidResponseFailure('no JSON object'));
      return;
    }
    const { reported } = meter;
    // Throws only what `failureOf` knows, or for a bug.
    const translatedWith = (usage: Usage | undefined): Buffer => {
      members.usage = usage === undefined ? undefined : usageMember(usage);
      return Buffer.from(this.#translator.fromChat(members, this.#call));
    };
    let translated: Buffer;
    try {
      translated = translatedWith(reported);
    } catch (error) {
      // `isOurs` keeps the failure from the breaker: a stop sequence of the caller may have cut the arguments
      // of a tool. In a stream that does no harm, because arguments pass as they are.
      outcome.reject({ ...failureOf(error), isOurs: true });
      return;
    }
    // `grow` by less than 0 gives bytes back.
    if (budget.grow(translated.length - response.length))
      // `usageOf` (call-usage.ts) returns this same object if it believes the report. Any other usage was
      // counted, and the response is translated again with it. That cannot throw, because the first
      // translation did not: the second one runs from a promise, with more of the stack left. The second
      // text may be some digits longer, which the budget does not count.
      outcome.complete((usage) => (usage === reported ? translated : translatedWith(usage)));
    else outcome.reject(budgetFailure());
  }

  reject(failure: AttemptFailure): void {
    this.#owner.outcome.reject(failure);
  }
}

/** Translates a streamed chat completion, between its reader and the session. */
class StreamTranslation implements ResponseSink, ResponseOutcome {
  readonly #sink: ResponseSink;
  readonly #outcome: ResponseOutcome;
  readonly #stream: DoorStream;
  #hasBegun = false;
  /** The stream was rejected. The reader goes on after a chunk that could not be translated, to no effect. */
  #isOver = false;

  constructor(sink: ResponseSink, outcome: ResponseOutcome, stream: DoorStream) {
    this.#sink = sink;
    this.#outcome = outcome;
    this.#stream = stream;
  }

  relay(events: Uint8Array): void {
    if (this.#isOver) return;
    let doorEvents = '';
    try {
      forEachEvent(asBuffer(events), (_start, _end, data) => {
        const chunk = data === undefined ? undefined : parsedJson(data);
        if (!isRecord(chunk)) return;
        const usage = tokensOfReport(reportIn(chunk));
        // Neither an impossible report nor an empty report is billed, so the client gets neither.
        if (typeof usage === 'object') chunk.usage = usageMember(usage);
        else if (chunk.usage !== undefined) chunk.usage = undefined;
        doorEvents += this.#stream.push(chunk);
      });
    } catch (error) {
      // As in event-reader.ts: while the client has no byte, another upstream may still respond.
      if (this.#hasBegun) this.#send(doorEvents);
      // `isOurs`: the upstream has served the call. What was relayed is charged; the breaker stays as it is.
      this.reject({ ...failureOf(error), isOurs: true });
      return;
    }
    this.#send(doorEvents);
  }

  #send(doorEvents: string): void {
    if (doorEvents === '') return;
    if (!this.#hasBegun) this.#outcome.onBegin();
    this.#hasBegun = true;
    this.#sink.relay(Buffer.from(doorEvents));
  }

  crash(error: unknown): void {
    this.#sink.crash(error);
  }

  onBegin(): void {
    // `relay` calls the attempt's `onBegin` in place of the reader: the first chunk may translate to nothing
    // (Azure's has no choices), and then the client has no byte yet.
  }

  /**
   * Sends the door's last events in place of `[DONE]`. They may fail, because what the DoorStream has kept
   * may be too deep to write. Then the session cuts the response, which has begun: a DoorStream keeps
   * something only of chunks that make events too. Without any the last events are the whole response.
   */
  complete(): void {
    if (this.#isOver) return;
    this.#outcome.complete((usage) => {
      try {
        const usageEvents = this.#stream.push({ choices: [], usage: usageMember(usage) });
        return Buffer.from(usageEvents + this.#stream.end());
      } catch (error) {
        return failureOf(error);
      }
    });
  }

  reject(failure: AttemptFailure): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#outcome.reject(failure);
  }
}

/** The failure of a response that the door's protocol cannot express. Throws any other error: it is a bug. */
function failureOf(error: unknown): AttemptFailure {
  // The stack ran out. A caller can cause that, because a model writes what callers ask for.
  if (error instanceof RangeError) return { ...invalidResponseFailure('nested too deeply'), isOurs: true };
  if (!(error instanceof ProviderError)) throw error;
  return invalidResponseFailure(error.message);
}
