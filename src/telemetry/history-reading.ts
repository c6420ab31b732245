/**
 * The figures whose course is kept: sums since the start, as the status tells them, and what they grew by in a span of time.
 * Pure; main thread.
 */
import type { CallFigures, StatusDocument } from './status-document.js';

/** What is read of the status. */
export type StatusFigures = CallFigures & Pick<StatusDocument, 'calls_in_flight' | 'refusals' | 'models'>;

/** Growth of `CallFigures`; what is nothing is left out, so that a quiet span is a small row. */
export interface CallGrowth {
  outcomes?: Record<string, number>;
  /** Prompt, cached and completion tokens. */
  tokens?: [number, number, number];
  /** In units of the currency: for charts and not for bills. */
  cost?: number;
  /** By the bucket's place in the histogram's bounds. */
  duration?: Record<string, number>;
  first_token?: Record<string, number>;
}

export interface StatusGrowth extends CallGrowth {
  refusals?: Record<string, number>;
  models?: Record<string, CallGrowth>;
}

/** Models of one span that have figures of their own, those with most calls. */
const MODELS_MAX = 20;

/** What came between two readings. A sum that fell began anew, so all of it came. */
export function growthOf(before: StatusFigures | undefined, after: StatusFigures): StatusGrowth {
  const growth: StatusGrowth = callGrowthOf(before, after);
  const refusals = countsGrowth(before?.refusals, after.refusals);
  if (refusals !== undefined) growth.refusals = refusals;
  const known = new Map(before?.models.map((model) => [model.id, model]));
  // Ranked before they are compared in full: of a thousand models twenty are.
  const models = after.models
    .map((model) => ({ model, calls: grownBy(callsOf(known.get(model.id)), callsOf(model)) }))
    .filter(({ calls }) => calls > 0)
    .sort((left, right) => right.calls - left.calls)
    .slice(0, MODELS_MAX)
    .map(({ model }) => [model.id, callGrowthOf(known.get(model.id), model)] as const);
  if (models.length > 0) growth.models = Object.fromEntries(models);
  return growth;
}

function callsOf(figures: CallFigures | undefined): number {
  return Object.values(figures?.outcomes ?? {}).reduce((sum, count) => sum + count, 0);
}

function callGrowthOf(before: CallFigures | undefined, after: CallFigures): CallGrowth {
  const growth: CallGrowth = {};
  const outcomes = countsGrowth(before?.outcomes, after.outcomes);
  if (outcomes !== undefined) growth.outcomes = outcomes;
  const tokens = countsGrowth(before?.tokens, after.tokens);
  if (tokens !== undefined) {
    growth.tokens = [tokens.prompt ?? 0, tokens.cached ?? 0, tokens.completion ?? 0];
  }
  const cost = grownBy(Number(before?.cost ?? 0), Number(after.cost));
  if (cost > 0) growth.cost = cost;
  const duration = countsGrowth(before?.duration_ms.counts, after.duration_ms.counts);
  if (duration !== undefined) growth.duration = duration;
  const firstToken = countsGrowth(before?.first_token_ms.counts, after.first_token_ms.counts);
  if (firstToken !== undefined) growth.first_token = firstToken;
  return growth;
}

type Counts = Readonly<Record<string, number>> | readonly number[];

/** Undefined where nothing grew. */
function countsGrowth(before: Counts | undefined, after: Counts): Record<string, number> | undefined {
  const known = new Map(Object.entries(before ?? {}));
  const grown = Object.entries(after)
    .map(([name, count]) => [name, grownBy(known.get(name) ?? 0, count)] as const)
    .filter(([, count]) => count > 0);
  return grown.length === 0 ? undefined : Object.fromEntries(grown);
}

function grownBy(before: number, after: number): number {
  return after < before ? after : after - before;
}
