/**
 * Streams of providers, cut at every byte and at random places: the client gets the same bytes and the books
 * the same usage, and both are what a plain reading of the whole stream finds.
 */
import t, { type Test } from 'tap';
import type { ResponseOutcome, ResponseSink } from '#src/upstream/response-reader.js';
import type { AttemptFailure } from '#src/upstream/error-mapping.js';
import { StreamReader } from '#src/upstream/stream-reader.js';
import { UsageMeter } from '#src/upstream/usage-meter.js';
import {
  naiveAnswer,
  naiveEvents,
  PROVIDER_TRANSCRIPTS,
  randomTranscript,
} from '../support/sse-transcripts.js';
import { newSeed, type Random, randomOf } from '../support/random.js';

const RANDOM_SOUND = 40;
const RANDOM_FAULTY = 40;
const RANDOM_CUTS = 40;

interface Outcome {
  readonly relayed: string;
  readonly rest: string | undefined;
  readonly cause: string | undefined;
  readonly usage: string | undefined;
}

class Sink implements ResponseSink, ResponseOutcome {
  begins = 0;
  readonly pieces: Uint8Array[] = [];
  rest: string | undefined;
  failure: AttemptFailure | undefined;
  endings = 0;

  onBegin(): void {
    if (this.begins > 0 || this.pieces.length > 0) throw new Error('begun too late or twice');
    this.begins++;
  }

  crash(error: unknown): void {
    throw error;
  }

  relay(bytes: Uint8Array): void {
    if (this.begins === 0) throw new Error('relayed before it has begun');
    if (this.endings > 0) throw new Error('relayed after the end');
    this.pieces.push(Uint8Array.from(bytes));
  }

  complete(rest: Uint8Array): void {
    this.rest = Buffer.from(rest).toString();
    this.endings++;
  }

  reject(failure: AttemptFailure): void {
    this.failure = failure;
    this.endings++;
  }
}

/** What becomes of `bytes` when they come cut at `cuts`, ascending. */
function outcomeOf(bytes: Buffer, cuts: readonly number[], includeUsage: boolean): Outcome {
  const sink = new Sink();
  const meter = new UsageMeter();
  const reader = new StreamReader({ sink, outcome: sink, meter }, includeUsage, 1);
  let start = 0;
  for (const cut of [...cuts, bytes.length]) {
    // A copy of its own size: a reader that looks beyond its chunk is found out.
    reader.onData(Uint8Array.from(bytes.subarray(start, cut)));
    start = cut;
  }
  reader.onEnd();
  if (sink.endings !== 1) throw new Error(`${sink.endings} endings`);
  return {
    relayed: Buffer.concat(sink.pieces).toString(),
    rest: sink.rest,
    cause: sink.failure?.cause,
    usage: JSON.stringify(meter.reported),
  };
}

const everyByte = (bytes: Buffer): number[] => Array.from(bytes.keys()).slice(1);

/** All two-piece cuts, pieces of one size from 1 to 9 bytes, and random ones. */
function* cutsOf(bytes: Buffer, next: Random): Generator<number[]> {
  for (let cut = 0; cut <= bytes.length; cut++) yield [cut];
  for (let size = 1; size < 10; size++) yield everyByte(bytes).filter((at) => at % size === 0);
  for (let count = 0; count < RANDOM_CUTS; count++) {
    const share = next() * 0.1;
    yield everyByte(bytes).filter(() => next() < share);
  }
}

/** Names the first difference; the seed repeats it. */
function checkCuts(t: Test, text: string, next: Random, check: (outcome: Outcome) => boolean): void {
  const bytes = Buffer.from(text);
  for (const includeUsage of [false, true]) {
    const whole = outcomeOf(bytes, [], includeUsage);
    for (const cuts of cutsOf(bytes, next)) {
      const outcome = outcomeOf(bytes, cuts, includeUsage);
      // What is wrong behind the end of the text does not take back what was relayed before it came; until
      // then it is held back with it.
      if (
        whole.cause !== undefined &&
        outcome.cause === undefined &&
        outcome.relayed !== '' &&
        check(outcome)
      )
        continue;
      const same =
        outcome.rest === whole.rest && outcome.cause === whole.cause && outcome.usage === whole.usage;
      if (same && check(outcome) && (whole.cause !== undefined || outcome.relayed === whole.relayed))
        continue;
      t.same(outcome, whole, `cut at ${cuts.slice(0, 20).join()} of ${JSON.stringify(text)}`);
      t.fail('differs');
      return;
    }
  }
}

function checkSound(t: Test, text: string, name: string): void {
  for (const includeUsage of [false, true]) {
    const { relayed, rest, cause, usage } = outcomeOf(Buffer.from(text), [], includeUsage);
    const expected = naiveAnswer(text, includeUsage);
    t.equal(cause, undefined, name);
    t.same(naiveEvents(relayed + (rest ?? '')), expected.data, name);
    t.notMatch(relayed, /^\uFEFF/, name);
    const given = expected.usage as { prompt_tokens: number; completion_tokens: number } | undefined;
    const counted =
      given === undefined
        ? undefined
        : {
            promptTokens: given.prompt_tokens,
            cachedTokens: 0,
            cacheWriteTokens: 0,
            cacheWrite1hTokens: 0,
            reasoningTokens: 0,
            completionTokens: given.completion_tokens,
            source: 'reported',
          };
    t.same(usage === undefined ? undefined : JSON.parse(usage), counted, name);
  }
}

const any = (): boolean => true;

void t.test("providers' streams", (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  for (const [name, text] of Object.entries(PROVIDER_TRANSCRIPTS)) {
    checkSound(t, text, name);
    checkCuts(t, text, next, any);
  }
  t.end();
});

void t.test('random streams', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  for (let count = 0; count < RANDOM_SOUND; count++) {
    const text = randomTranscript(next, false);
    checkSound(t, text, `stream ${count} of seed ${seed}`);
    checkCuts(t, text, next, any);
  }
  t.end();
});

void t.test(
  'random streams with something wrong: the same end, and never more than what came before it',
  (t) => {
    const seed = newSeed();
    t.comment(`seed ${seed}`);
    const next = randomOf(seed);
    let failed = 0;
    for (let count = 0; count < RANDOM_FAULTY; count++) {
      const text = randomTranscript(next, true);
      const bytes = Buffer.from(text);
      // Byte by byte nothing is held back with the bad event.
      const [most, mostWithUsage] = [false, true].map(
        (usage) => outcomeOf(bytes, everyByte(bytes), usage).relayed,
      );
      if (outcomeOf(bytes, [], false).cause !== undefined) failed++;
      checkCuts(
        t,
        text,
        next,
        ({ relayed }) => most!.startsWith(relayed) || mostWithUsage!.startsWith(relayed),
      );
    }
    t.ok(failed > RANDOM_FAULTY / 4, `${failed} of ${RANDOM_FAULTY} failed`);
    t.end();
  },
);
