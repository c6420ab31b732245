/**
 * `npm run bench`: requests a second, CPU time a request, latency and memory of the gateway beside others, in
 * one run.
 *
 * Two tables: closed-loop, where the rates are throughput and the latencies those under full load; and at
 * fixed rates. Upstream, contenders and load generator are separate processes. In each round every scenario
 * is run with every contender in turn, so that a slow moment of the machine hits all of them; before it is
 * measured, its response is checked. CPU time is that of all threads and processes of the contender over the
 * time of the load. Ratios are to the reference in the same round.
 */
import { writeFileSync } from 'node:fs';
import type { Scope } from '../../test/support/mock.js';
import { machineLine, withSteal } from '../support/machine.js';
import type { Contender, ContenderName } from './contenders/contender.js';
import { startContenders } from './contenders/start.js';
import { measureKeyCounts, type KeyCount } from './key-counts.js';
import { measureLatencies, type Latency } from './latency.js';
import { optionsOf, USAGE, UsageError, type Options } from './options.js';
import { resultsOf, type Result } from './results.js';
import { checkCorrect, failureOf, measure, warmUp, type Sample } from './round.js';
import type { Scenario } from './scenarios/scenario.js';
import { measureSlowStreams, type SlowStreams } from './slow-streams.js';
import { keyTableOf, latencyTableOf, slowTableOf, tableOf } from './table.js';

const line = (text: string): void => void process.stdout.write(`${text}\n`);

/** One of the tables: its title, then it, then how much of the machine others had meanwhile. */
async function printTable<Measured>(
  title: string,
  measure: () => Promise<Measured>,
  linesOf: (measured: Measured) => readonly string[],
): Promise<Measured> {
  line(`${title}\n`);
  const { result, steal } = await withSteal(measure);
  for (const text of linesOf(result)) line(text);
  line(`\ntaken from this machine meanwhile: ${steal}\n`);
  return result;
}

interface Pair {
  readonly scenario: Scenario;
  readonly contender: Contender;
  readonly samples: Sample[];
}

/** Who runs what, scenario by scenario. */
const pairsOf = (scenarios: readonly Scenario[], contenders: readonly Contender[]): Pair[] =>
  scenarios.flatMap((scenario) =>
    contenders
      .filter(({ name }) => scenario.contenders.includes(name))
      .map((contender): Pair => ({ scenario, contender, samples: [] })),
  );

/** Returns the pairs that were measured in each round; of each other it prints why not. */
async function runRounds(pairs: readonly Pair[], options: Options): Promise<Pair[]> {
  const { connections, rounds, seconds } = options;
  const measured = new Set(pairs);
  const orLeaveOut = async (pair: Pair, work: () => Promise<unknown>): Promise<void> => {
    const reason = await failureOf(pair.contender, pair.scenario.name, work);
    if (reason === undefined) return;
    measured.delete(pair);
    line(reason);
  };
  for (const pair of pairs)
    await orLeaveOut(pair, () => warmUp(pair.contender, pair.scenario, options.warmUp));
  for (let round = 0; round < rounds; round += 1) {
    for (const pair of measured) {
      const { contender, scenario, samples } = pair;
      await orLeaveOut(pair, async () => {
        await checkCorrect(contender, scenario);
        samples.push(await measure(contender, scenario, connections, seconds));
      });
    }
  }
  return [...measured];
}

function resultsOfPairs(pairs: readonly Pair[], scenarios: readonly Scenario[]): Result[] {
  return scenarios.flatMap((scenario) => {
    const own = pairs.filter((pair) => pair.scenario === scenario);
    const samples = new Map<ContenderName, Sample[]>(own.map((pair) => [pair.contender.name, pair.samples]));
    return own.length === 0 ? [] : resultsOf(scenario.name, samples);
  });
}

async function closedLoopOf(pairs: readonly Pair[], options: Options): Promise<Result[]> {
  if (pairs.length === 0) return [];
  const { connections, rounds, seconds, scenarios } = options;
  return printTable(
    `${connections} connections, closed-loop, ${rounds} round(s) of ${seconds} s, median (lowest–highest)`,
    async () => {
      return resultsOfPairs(await runRounds(pairs, options), scenarios);
    },
    tableOf,
  );
}

/**
 * At fixed rates; prints their table. None where none was asked for, or the upstream alone does not take
 * part.
 */
async function latenciesOf(contenders: readonly Contender[], options: Options): Promise<Latency[]> {
  const { latencies, rounds, seconds, warmUp } = options;
  if (latencies.length === 0) return [];
  if (!contenders.some(({ name }) => name === 'direct')) {
    line('fixed rates are left out: what is added is told against contender "direct"');
    return [];
  }
  return printTable(
    `fixed rates, open loop, ${rounds} round(s) of ${seconds} s, median (lowest–highest)`,
    () => measureLatencies(latencies, contenders, { rounds, seconds, warmUp, onLeftOut: line }),
    (measured) => latencyTableOf(measured, rounds),
  );
}

async function slowStreamsOf(
  contenders: readonly Contender[],
  { slowStreams, warmUp }: Options,
): Promise<SlowStreams[]> {
  if (slowStreams === undefined) return [];
  return printTable(
    `${slowStreams.streams} streams at once, each with a pause of ${slowStreams.chunkMs} ms after a chunk`,
    () => measureSlowStreams(contenders, slowStreams, warmUp),
    slowTableOf,
  );
}

async function keyCountsOf(scope: Scope, { keyCounts, rounds, seconds }: Options): Promise<KeyCount[]> {
  if (keyCounts.length === 0) return [];
  return printTable(
    `many keys, fixed rate, ${rounds} round(s) of ${seconds} s, median (lowest–highest)`,
    () => measureKeyCounts(scope, keyCounts, { rounds, seconds }),
    (measured) => keyTableOf(measured, rounds),
  );
}

async function bench(scope: Scope, options: Options): Promise<void> {
  const { rounds, seconds, connections, scenarios } = options;
  const machine = machineLine();
  line(machine);
  const { contenders, missing } = await startContenders(scope, {
    names: options.contenders,
    upstreamPort: options.upstreamPort,
    any: options.any,
  });
  if (missing.length > 0) line(`not installed, so left out: ${missing.join(', ')}`);
  const pairs = pairsOf(scenarios, contenders);
  const others =
    options.latencies.length + options.keyCounts.length + (options.slowStreams === undefined ? 0 : 1);
  if (pairs.length === 0 && others === 0)
    throw new UsageError('none of these contenders can answer these scenarios');
  const results = await closedLoopOf(pairs, options);
  const latencies = await latenciesOf(contenders, options);
  const slowStreams = await slowStreamsOf(contenders, options);
  const keyCounts = await keyCountsOf(scope, options);
  if (options.json !== undefined) {
    const report = { machine, connections, rounds, seconds, results, latencies, slowStreams, keyCounts };
    writeFileSync(options.json, `${JSON.stringify(report, null, 2)}\n`);
  }
}

const ending: (() => unknown)[] = [];
const scope: Scope = { teardown: (after) => ending.unshift(after) };
try {
  await bench(scope, optionsOf(process.argv.slice(2)));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  process.stderr.write(`error: ${error.message}\n\n${USAGE}`);
  process.exitCode = 2;
} finally {
  for (const end of ending) await end();
}
