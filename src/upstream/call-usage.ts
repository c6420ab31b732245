/**
 * The usage that a call is billed for: the upstream's report if it can be true, else a count by the gateway.
 * chat-session.ts calls `usageOf` once for a call that is charged, after the last attempt. Upstream worker.
 *
 * Must hold: a report that is not believed is never billed, counts in the metrics and is logged. The count
 * that is billed in its place stays within the call's hold. But if the report was only beyond `max_tokens`,
 * the count stays within what the model can generate
 * (test/unit/upstream/usage-bounds.test.ts, test/hostile/billing.test.ts).
 */
import type { UpstreamRequest } from '../channel/messages.js';
import { dialectAt } from '../doors/dialects.js';
import { mediaTokensOf } from '../protocol/chat-call.js';
import { usageWithoutParts, type Usage } from '../core/token-counts.js';
import type { DisbeliefReason } from '../telemetry/metrics-layout.js';
import type { Attempt } from './attempt.js';
import { isOfAnswer } from './chat-text.js';
import { mayRepeatPrompt } from './echoed-prompt.js';
import type { SessionShared } from './session-shared.js';
import type { ModelRoute } from './target.js';
import { NO_PROMPT } from './token-count.js';
import { countOrEstimate } from './token-estimate.js';
import { disbeliefOf, withinHold } from './usage-bounds.js';
import type { UsageMeter } from './usage-meter.js';

type UsageDeps = Pick<SessionShared, 'routes' | 'count' | 'metrics' | 'errors'>;

/** The usage of a call that only asks for a count of tokens: such a call is free. */
export const NO_USAGE = usageWithoutParts({ promptTokens: 0, completionTokens: 0, source: 'reported' });

/**
 * The usage; a promise if tokens must be counted first. The promise rejects only for a bug. A believed report
 * that needs no count is returned as the meter's own object, by which door-call.ts recognises it.
 */
export function usageOf(attempt: Attempt, request: UpstreamRequest, deps: UsageDeps): Usage | Promise<Usage> {
  const dialect = dialectAt(request.door);
  if (dialect?.isCount === true) return NO_USAGE;
  const { meter } = attempt;
  // First, because `reportSoFar` may give the meter the report that `disbeliefIn` and this function read.
  meter.reportSoFar(attempt);
  const route = deps.routes.routeOf(request.modelIndex);
  const disbelief = disbeliefIn(attempt, request, route, deps);
  const reported = disbelief === undefined ? meter.reported : undefined;
  if (reported !== undefined && !meter.isReportOld && !lacksAnswer(reported, meter)) return reported;
  const body = request.largeBody ?? request.body;
  // The report may be of one choice, and so of one of several prompts.
  const mayLackPrompts = dialect?.echoedPrompt !== undefined && request.choices > 1;
  // A believed report has the tokens of the prompt, so mostly the response alone is counted. If the response
  // may repeat the prompt, echoed-prompt.ts needs the body to tell them apart.
  const needsPrompt = reported === undefined || mayLackPrompts || mayRepeatPrompt(request.door, body);
  const { tokenizer } = route;
  const { door } = request;
  const { thoughtsBack } = attempt.taken.target;
  const countRequest = meter.countRequest(
    needsPrompt
      ? { tokenizer, door, body, mediaTokens: mediaTokensOf(request, route), thoughtsBack }
      : { tokenizer, body: NO_PROMPT },
  );
  return countOrEstimate(deps.count, countRequest, request.account, deps.errors).then((counted) => {
    if (disbelief !== undefined) return withinHold(counted, disbelief, request, route);
    if (reported === undefined) return counted;
    const promptTokens = mayLackPrompts
      ? Math.max(reported.promptTokens, counted.promptTokens)
      : reported.promptTokens;
    // The report may lack text, and the count lacks reasoning that was hidden.
    const completionTokens = Math.max(reported.completionTokens, counted.completionTokens);
    return { ...reported, promptTokens, completionTokens, source: 'estimated' };
  });
}

/** Why the report is not believed, which is counted and logged; undefined if it is, or if there is none. */
function disbeliefIn(
  { meter, taken: { target } }: Attempt,
  request: UpstreamRequest,
  route: ModelRoute,
  { metrics, errors }: UsageDeps,
): DisbeliefReason | undefined {
  const { reported } = meter;
  const disbelief =
    reported === undefined
      ? meter.reportError
      : // A report that is older than the text may lack the completion: it is counted then.
        disbeliefOf(reported, request, route, () => !meter.isReportOld && meter.hasText());
  if (disbelief === undefined) return undefined;
  metrics.countDisbelieved(target.slot, disbelief);
  const cause = reported === undefined ? disbelief : `${disbelief}: ${JSON.stringify(reported)}`;
  errors.write('warn', target.name, 'an upstream reported usage that cannot be, it was counted here', cause);
  return disbelief;
}

/** Whether the report takes all of the output for reasoning, although the response had other text. */
function lacksAnswer({ completionTokens, reasoningTokens }: Usage, meter: UsageMeter): boolean {
  return completionTokens > 0 && completionTokens === reasoningTokens && meter.hasText(isOfAnswer);
}
