/**
 * What a contender adds to the time of a call, at fixed rates that leave it room: an open loop, so that a
 * stall is counted for every call that it held up. Added is the difference to the upstream alone in the same
 * round.
 */
import { cpuMicros } from '../support/proc.js';
import { PROXIES, SLOW_PROXIES } from './scenarios/prompt.js';
import type { Contender, ContenderName } from './contenders/contender.js';
import { applyPacedLoad } from './paced/paced-load.js';
import { spreadOf, type Spread } from './results.js';
import { failureOf, warmUp, type WarmUp } from './round.js';
import type { Scenario } from './scenarios/scenario.js';
import { STREAMS } from './scenarios/streams.js';
import { WHOLE } from './scenarios/whole.js';

/** Enough that a call waits for a connection only where the contender stands still. */
const CONNECTIONS_MAX = 512;

export interface LatencyScenario {
  readonly name: string;
  readonly call: Scenario;
  readonly ratePerSecond: number;
  readonly contenders: readonly ContenderName[];
  /** What is timed: the first text of a response, or its end. */
  readonly until: 'firstMicros' | 'wholeMicros';
}

const rate = (ratePerSecond: number, contenders: readonly ContenderName[]): LatencyScenario => ({
  name: `rate-${ratePerSecond}`,
  call: WHOLE[0]!,
  ratePerSecond,
  contenders,
  until: 'wholeMicros',
});

export const LATENCIES: readonly LatencyScenario[] = [
  // The slow ones take some hundred calls a second at most.
  rate(50, [...PROXIES, ...SLOW_PROXIES]),
  rate(500, PROXIES),
  rate(2_000, PROXIES),
  rate(8_000, PROXIES),
  {
    name: 'first-token',
    call: STREAMS[0]!,
    ratePerSecond: 300,
    contenders: PROXIES,
    until: 'firstMicros',
  },
];

/** One line of the table. */
export interface Latency {
  readonly scenario: string;
  readonly contender: string;
  readonly p50Micros: Spread;
  readonly p99Micros: Spread;
  /** Over the upstream alone in the same round; of the upstream alone it is nothing. */
  readonly addedP50Micros: Spread;
  readonly addedP99Micros: Spread;
  readonly cpuMicrosPerRequest: Spread;
}

interface Sample {
  readonly p50: number;
  readonly p99: number;
  readonly cpu: number;
}

async function measure(contender: Contender, scenario: LatencyScenario, seconds: number): Promise<Sample> {
  const { path, headers } = contender.callOf(scenario.call);
  const pids = contender.pids();
  const beforeMicros = cpuMicros(pids);
  const report = await applyPacedLoad({
    port: contender.port,
    path,
    headers,
    body: scenario.call.body,
    ratePerSecond: scenario.ratePerSecond,
    seconds,
    connectionsMax: CONNECTIONS_MAX,
  }).catch((cause: unknown) => {
    throw new Error(`${contender.name}, ${scenario.name}: not measured`, { cause });
  });
  const { p50, p99 } = report[scenario.until];
  return { p50, p99, cpu: (cpuMicros(pids) - beforeMicros) / report.answers };
}

/**
 * The upstream must be among the contenders: it is what the others add to. Whoever fails at a rate
 * (`failureOf`) is left out of that scenario, and `onLeftOut` is told why.
 */
export async function measureLatencies(
  scenarios: readonly LatencyScenario[],
  all: readonly Contender[],
  {
    rounds,
    seconds,
    warmUp: load,
    onLeftOut,
  }: {
    readonly rounds: number;
    readonly seconds: number;
    readonly warmUp: WarmUp;
    readonly onLeftOut: (reason: string) => void;
  },
): Promise<Latency[]> {
  const direct = all.find(({ name }) => name === 'direct');
  if (direct === undefined) throw new Error('latency is measured against contender "direct"');
  const lines: Latency[] = [];
  for (const scenario of scenarios) {
    const contenders = all.filter(({ name }) => scenario.contenders.includes(name));
    const samples = new Map(contenders.map((contender) => [contender, [] as Sample[]]));
    /** Removes a contender that fails. */
    const orLeaveOut = async (contender: Contender, work: () => Promise<unknown>): Promise<void> => {
      const reason = await failureOf(contender, scenario.name, work);
      if (reason === undefined) return;
      samples.delete(contender);
      onLeftOut(reason);
    };
    for (const contender of contenders)
      await orLeaveOut(contender, () => warmUp(contender, scenario.call, load));
    for (let round = 0; round < rounds; round++) {
      for (const [contender, taken] of samples)
        await orLeaveOut(contender, async () => taken.push(await measure(contender, scenario, seconds)));
    }
    const base = samples.get(direct)!;
    for (const [{ name }, taken] of samples) {
      const over = (figure: keyof Sample): Spread => spreadOf(taken.map((sample) => sample[figure]));
      const added = (figure: keyof Sample): Spread =>
        spreadOf(taken.map((sample, round) => sample[figure] - base[round]![figure]));
      lines.push({
        scenario: scenario.name,
        contender: name,
        p50Micros: over('p50'),
        p99Micros: over('p99'),
        addedP50Micros: added('p50'),
        addedP99Micros: added('p99'),
        cpuMicrosPerRequest: over('cpu'),
      });
    }
  }
  return lines;
}
