/**
 * The command line of the bench.
 */
import { parseArgs } from 'node:util';
import type { AnyOptions } from './contenders/any.js';
import { CONTENDER_NAMES, THREADS, type ContenderName } from './contenders/contender.js';
import { FULL_KEY_COUNTS, SMOKE_KEY_COUNTS } from './key-counts.js';
import { LATENCIES, type LatencyScenario } from './latency.js';
import { SCENARIOS } from './scenarios/all.js';
import type { WarmUp } from './round.js';
import type { Scenario } from './scenarios/scenario.js';
import { FULL_PACE, SMOKE_PACE, type SlowPace } from './slow-streams.js';

export interface Options {
  readonly scenarios: readonly Scenario[];
  readonly latencies: readonly LatencyScenario[];
  /** Undefined where they are not measured. */
  readonly slowStreams: SlowPace | undefined;
  /** In the order of `CONTENDER_NAMES`. */
  readonly contenders: readonly ContenderName[];
  readonly seconds: number;
  readonly rounds: number;
  readonly connections: number;
  /** Of each contender in each scenario, before it is measured. */
  readonly warmUp: WarmUp;
  /** How many keys; empty where that is not measured. */
  readonly keyCounts: readonly number[];
  readonly json: string | undefined;
  readonly upstreamPort: number;
  readonly any: AnyOptions | undefined;
}

/** The compiler and the connection pools want some time before they are what they will be. */
/** A gateway's first second of calls is answered after tens of milliseconds: its code is not compiled yet. */
const WARM_UP_SECONDS = 4;
/** In less a busy machine may answer nothing, or use less CPU than the 10 ms that the kernel counts in. */
const SMOKE_SECONDS = 0.5;

const SLOW = 'slow-streams';
const KEYS = 'key-counts';
const SCENARIO_NAMES = [...[...SCENARIOS, ...LATENCIES].map(({ name }) => name), SLOW, KEYS];

export const USAGE = `npm run bench -- [options]

  --scenario NAME     ${SCENARIO_NAMES.join(', ')}
  --contender NAME    ${CONTENDER_NAMES.join(', ')}
                      both may be given more than once; all by default but ${Object.keys(THREADS).join(', ')}
  --seconds N         of load in each round (5)
  --rounds N          (5)
  --connections N     (64)
  --json FILE         writes every sample and its medians
  --smoke             one round of half a second, 8 connections, no warm-up
  --upstream-port N   of the bench's own upstream (0: any)
  --any-url URL       contender "any": its base URL, as http://127.0.0.1:9000/v1
  --any-header N=V    a header that it wants; may be given more than once
  --any-pid N         the process that it is
`;

/** What is wrong with the command line, for the person who typed it. */
export class UsageError extends Error {}

const CONNECTIONS_MAX = 10_000;
const SECONDS_MAX = 3_600;
const ROUNDS_MAX = 1_000;
const PORT_MAX = 65_535;
const PID_MAX = 2 ** 22;

function whole(name: string, text: string, min: number, max: number): number {
  const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= min && value <= max))
    throw new UsageError(`--${name} wants an integer from ${min} to ${max}, got "${text}"`);
  return value;
}

function chosen<T>(option: string, all: readonly T[], nameOf: (one: T) => string, names?: string[]): T[] {
  const unknown = names?.find((name) => !all.some((one) => nameOf(one) === name));
  if (unknown !== undefined)
    throw new UsageError(`--${option} wants one of ${all.map(nameOf).join(', ')}, got "${unknown}"`);
  return all.filter((one) => names?.includes(nameOf(one)) ?? true);
}

function headerOf(text: string): [string, string] {
  const at = text.indexOf('=');
  if (at < 1) throw new UsageError(`--any-header wants name=value, got "${text}"`);
  return [text.slice(0, at), text.slice(at + 1)];
}

function anyOf(url: string | undefined, pid: string | undefined, headers: string[]): AnyOptions | undefined {
  if (url === undefined && pid === undefined && headers.length === 0) return undefined;
  if (url === undefined || pid === undefined)
    throw new UsageError('contender "any" wants --any-url and --any-pid');
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed?.protocol !== 'http:' || parsed.hostname !== '127.0.0.1')
    throw new UsageError(`--any-url wants http://127.0.0.1:PORT/PATH, got "${url}"`);
  return {
    url: parsed,
    pid: whole('any-pid', pid, 1, PID_MAX),
    headers: Object.fromEntries(headers.map(headerOf)),
  };
}

const OPTIONS = {
  scenario: { type: 'string', multiple: true },
  contender: { type: 'string', multiple: true },
  seconds: { type: 'string', default: '5' },
  rounds: { type: 'string', default: '5' },
  connections: { type: 'string', default: '64' },
  json: { type: 'string' },
  smoke: { type: 'boolean', default: false },
  'upstream-port': { type: 'string', default: '0' },
  'any-url': { type: 'string' },
  'any-header': { type: 'string', multiple: true },
  'any-pid': { type: 'string' },
} as const;

function parsed(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS }).values;
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

/** @throws UsageError naming the option, what it got and what it wants */
export function optionsOf(args: readonly string[]): Options {
  const values = parsed(args);
  const any = anyOf(values['any-url'], values['any-pid'], values['any-header'] ?? []);
  const usual = CONTENDER_NAMES.filter((name) => !(name in THREADS));
  const contenders = chosen('contender', CONTENDER_NAMES, (name) => name, values.contender ?? usual);
  if (any === undefined && values.contender?.includes('any') === true)
    throw new UsageError('contender "any" wants --any-url and --any-pid');
  const scenarios = chosen('scenario', SCENARIO_NAMES, (name) => name, values.scenario);
  const connections = values.smoke ? 8 : whole('connections', values.connections, 1, CONNECTIONS_MAX);
  return {
    scenarios: SCENARIOS.filter(({ name }) => scenarios.includes(name)),
    slowStreams: scenarios.includes(SLOW) ? (values.smoke ? SMOKE_PACE : FULL_PACE) : undefined,
    keyCounts: scenarios.includes(KEYS) ? (values.smoke ? SMOKE_KEY_COUNTS : FULL_KEY_COUNTS) : [],
    latencies: LATENCIES.filter(({ name }) => scenarios.includes(name)),
    contenders: contenders.filter((name) => name !== 'any' || any !== undefined),
    seconds: values.smoke ? SMOKE_SECONDS : whole('seconds', values.seconds, 1, SECONDS_MAX),
    rounds: values.smoke ? 1 : whole('rounds', values.rounds, 1, ROUNDS_MAX),
    connections,
    warmUp: { connections, seconds: values.smoke ? 0 : WARM_UP_SECONDS },
    json: values.json,
    upstreamPort: whole('upstream-port', values['upstream-port'], 0, PORT_MAX),
    any,
  };
}
