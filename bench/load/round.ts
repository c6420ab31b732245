/**
 * One contender in one scenario: whether it answers as it should, and what that costs.
 */
import { request } from '../../test/support/http.js';
import { cpuMicros, peakBytes, resetPeaks } from '../support/proc.js';
import type { Contender, ContenderName } from './contenders/contender.js';
import { applyLoad } from './load.js';
import { SLOW_PROXIES } from './scenarios/prompt.js';
import type { Scenario } from './scenarios/scenario.js';

/** Of a slow contender: with 64, rounds may end before LiteLLM has ended one stream. */
const SLOW_CONNECTIONS_MAX = 16;

/** Of one round. */
export interface Sample {
  readonly requestsPerSecond: number;
  /** User and system time of all threads of all its processes. */
  readonly cpuMicrosPerRequest: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** The most that was resident, over its processes. */
  readonly peakBytes: number;
}

/** One request with a look at its response; rejects where that is not what the scenario wants. */
export async function checkCorrect(contender: Contender, scenario: Scenario): Promise<void> {
  const { path, headers } = contender.callOf(scenario);
  const ask = () => request({ port: contender.port, path, headers, body: scenario.body });
  let answer = await ask();
  // The limited customer is admitted once a minute; it is the next call that is refused.
  if (scenario.status === 429 && answer.status === 200) answer = await ask();
  const what = `${contender.name}, ${scenario.name}`;
  if (answer.status !== scenario.status)
    throw new Error(`${what}: wanted ${scenario.status}, got ${answer.status}: ${answer.body}`);
  try {
    scenario.check(answer);
  } catch (error) {
    throw new Error(`${what}: a wrong answer`, { cause: error });
  }
}

/**
 * Closed-loop load, from fewer connections if the contender is slow. Rejects where a response had another
 * status, or none came.
 */
export async function measure(
  contender: Contender,
  { name, status, ...scenario }: Scenario,
  connections: number,
  seconds: number,
): Promise<Sample> {
  const { path, headers } = contender.callOf({ status, ...scenario });
  const url = `http://127.0.0.1:${contender.port}${path}`;
  const pids = contender.pids();
  resetPeaks(pids);
  const beforeMicros = cpuMicros(pids);
  const result = await applyLoad({
    url,
    method: 'POST',
    headers,
    body: scenario.body,
    connections: SLOW_PROXIES.includes(contender.name)
      ? Math.min(connections, SLOW_CONNECTIONS_MAX)
      : connections,
    seconds,
  });
  const usedMicros = cpuMicros(pids) - beforeMicros;
  const wanted = result.statuses.get(status) ?? 0;
  // The limited customer is let in once a minute.
  const strays = result.answers - wanted - (status === 429 ? (result.statuses.get(200) ?? 0) : 0);
  if (strays > 0 || result.failures > 0 || wanted === 0) {
    const seen = JSON.stringify(Object.fromEntries(result.statuses));
    throw new Error(`${contender.name}, ${name}: wanted ${status}, got ${seen}, ${result.failures} failures`);
  }
  return {
    requestsPerSecond: result.answers / result.seconds,
    cpuMicrosPerRequest: usedMicros / result.answers,
    p50Ms: result.p50Ms,
    p99Ms: result.p99Ms,
    peakBytes: peakBytes(pids),
  };
}

/** Load before anything is measured; none where `seconds` is 0. */
export interface WarmUp {
  readonly connections: number;
  readonly seconds: number;
}

/**
 * A look at the response, then closed-loop load, until code is compiled and heaps have grown. Rejects as both
 * do.
 */
export async function warmUp(
  contender: Contender,
  scenario: Scenario,
  { connections, seconds }: WarmUp,
): Promise<void> {
  await checkCorrect(contender, scenario);
  if (seconds > 0) await measure(contender, scenario, connections, seconds);
}

/** Those for which a failure ends the run: the gateway, and the upstream, to which others are compared. */
const NEVER_LEFT_OUT: readonly ContenderName[] = ['tollgate', 'direct'];

/**
 * Does the work of a contender in a scenario. Returns why the contender is left out of the scenario, if the
 * work fails: litellm-rs, for one, rejects calls above its limits, and may break a circuit under load.
 */
export async function failureOf(
  { name }: Contender,
  scenario: string,
  work: () => Promise<unknown>,
): Promise<string | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    if (NEVER_LEFT_OUT.includes(name)) throw error;
    return `${name} is left out of ${scenario}: ${reasonOf(error)}`;
  }
}

/** An error's text and its causes'. */
const reasonOf = (error: unknown): string =>
  error instanceof Error
    ? [error.message, ...(error.cause === undefined ? [] : [reasonOf(error.cause)])].join(': ')
    : String(error);
