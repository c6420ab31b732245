/**
 * Which traces are recorded: the samplers that OpenTelemetry names in OTEL_TRACES_SAMPLER. Decided here and not by the SDK's classes,
 * because the decision is the listener's, where the SDK is not loaded; a test holds the two against each other. Pure; any thread.
 */
import { FLAG_SAMPLED, type TraceParent } from './trace-parent.js';

export interface Sampling {
  /** A caller's own decision, where it sent one, stands. */
  readonly parentBased: boolean;
  /** Share of the other traces, 0 to 1. */
  readonly ratio: number;
}

/** A share of all 32-bit numbers; 1 is all of them. */
const WORDS = 0x1_0000_0000;
const WORD_MAX = 0xffff_ffff;

/** The decision for a call: the same wherever the same ratio is asked about the same trace. About 0.1 µs. */
export function isSampled(
  { parentBased, ratio }: Sampling,
  traceId: string,
  parent: TraceParent | undefined,
): boolean {
  if (parentBased && parent !== undefined) return (parent.flags & FLAG_SAMPLED) !== 0;
  if (ratio >= 1) return true;
  return ratio > 0 && foldedWord(traceId) < boundOf(ratio);
}

function boundOf(ratio: number): number {
  return ratio === 1 ? WORDS : Math.floor(ratio * WORD_MAX);
}

/** The four words of the identifier, folded into one as the SDK's TraceIdRatioBasedSampler does. */
function foldedWord(traceId: string): number {
  let word = 0;
  for (let at = 0; at < traceId.length; at += 8) word ^= parseInt(traceId.slice(at, at + 8), 16);
  return word >>> 0;
}

/**
 * The sampling that the environment asks for, as the OpenTelemetry specification reads it: an unknown name is
 * `parentbased_always_on`, a ratio that is none is 1. `problem` then says so.
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
