/**
 * Decides which traces are recorded, as OTEL_TRACES_SAMPLER says. gateway/traces.ts reads the environment, on
 * the main thread; request/call-trace.ts decides for each call, on the listener. The SDK's own samplers are
 * not used, because a listener does not load the SDK.
 *
 * Must hold: the decisions are those of the SDK.
 */
import { FLAG_SAMPLED, type TraceParent } from './trace-context.js';

/** Which traces are recorded. */
export interface Sampling {
  /** Whether the decision of the caller's `traceparent` is kept, if the caller sent one. */
  readonly parentBased: boolean;
  /** Share of all other traces that is recorded, 0 to 1. */
  readonly ratio: number;
}

/** The largest 32-bit number. */
const WORD_MAX = 0xffff_ffff;

/**
 * Returns whether to record a call. All services with the same ratio record the same traces, because only the
 * trace's id decides. Takes 0.1 µs.
 */
export function isSampled(
  { parentBased, ratio }: Sampling,
  traceId: string,
  parent: TraceParent | undefined,
): boolean {
  if (parentBased && parent !== undefined) return (parent.flags & FLAG_SAMPLED) !== 0;
  if (ratio >= 1) return true;
  return ratio > 0 && foldedWord(traceId) < Math.floor(ratio * WORD_MAX);
}

/** Folds the four words of the id into one, as the SDK's TraceIdRatioBasedSampler does. */
function foldedWord(traceId: string): number {
  let word = 0;
  for (let start = 0; start < traceId.length; start += 8)
    word ^= parseInt(traceId.slice(start, start + 8), 16);
  return word >>> 0;
}

/**
 * Returns the sampling that the environment asks for. As in the OpenTelemetry specification, an unknown name
 * is `parentbased_always_on` and an invalid ratio is 1. `problem` is then the message for the operator;
 * undefined if the environment is valid.
 */
export function samplingOf(env: NodeJS.ProcessEnv): {
  readonly sampling: Sampling;
  readonly problem?: string;
} {
  const name = (env.OTEL_TRACES_SAMPLER ?? '').trim() || 'parentbased_always_on';
  const parentBased = name.startsWith('parentbased_');
  switch (parentBased ? name.slice('parentbased_'.length) : name) {
    case 'always_on':
      return { sampling: { parentBased, ratio: 1 } };
    case 'always_off':
      return { sampling: { parentBased, ratio: 0 } };
    case 'traceidratio': {
      const text = (env.OTEL_TRACES_SAMPLER_ARG ?? '').trim();
      const ratio = text === '' ? 1 : Number(text);
      if (ratio >= 0 && ratio <= 1) return { sampling: { parentBased, ratio } };
      const problem = `OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1, got ${text}; all are sampled`;
      return { sampling: { parentBased, ratio: 1 }, problem };
    }
    default: {
      const problem = `OTEL_TRACES_SAMPLER must be always_on, always_off, traceidratio, or one of them after parentbased_, got ${name}; parentbased_always_on is used`;
      return { sampling: { parentBased: true, ratio: 1 }, problem };
    }
  }
}
