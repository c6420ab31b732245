/**
 * What the metrics of one chat call cost: ns of CPU time, least and median of rounds, for a whole response
 * and for a stream. Run as `node build/bench/micro/metrics.js [calls a round, 300000]`.
 *
 * A call is counted as ChatExchange and the worker do it: begun, an attempt begun and ended, outcome, tokens
 * and cost, three histograms, and the four readings of the clock that they want. Models and outcomes change
 * from call to call. The last line is the timer that samples a thread's event loop, whose cost does not
 * depend on calls, as CPU time of an idle second.
 */
import { cpus } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { SystemClock } from '#src/core/clock.js';
import { asPicoUnits } from '#src/core/units.js';
import { createMetrics, modelSlotOf, type Outcome } from '#src/telemetry/metrics-layout.js';
import { ThreadHealth } from '#src/telemetry/thread-health.js';
import { ListenerMetrics, UpstreamMetrics } from '#src/telemetry/metrics-writers.js';

const ROUNDS = 7;
const MODELS = 8;
const OUTCOMES: readonly Outcome[] = ['ok', 'ok', 'ok', 'provider_unavailable'];
const IDLE_MS = 3_000;
const CALLS = Number(process.argv[2] ?? 300_000);

const buffers = createMetrics(1, 1);
const listener = new ListenerMetrics(buffers, 0);
const upstream = new UpstreamMetrics(buffers, 0);
const clock = new SystemClock();
let counted = 0;

function countCall(call: number, stream: boolean): void {
  const model = modelSlotOf(call % MODELS);
  const outcome = OUTCOMES[call % OUTCOMES.length]!;
  const receivedMs = clock.monotonicMs();
  const bodyMs = clock.monotonicMs();
  listener.callBegun();
  upstream.attemptBegun(call % MODELS, false);
  upstream.attemptEnded(call % MODELS);
  listener.callEnded();
  const answerMs = clock.monotonicMs();
  listener.countCall(model, outcome, false, 0);
  listener.countUsage(
    model,
    {
      promptTokens: call % 4_096,
      cachedTokens: call % 7,
      cacheWriteTokens: 0,
      cacheWrite1hTokens: 0,
      reasoningTokens: 0,
      completionTokens: call % 999,
    },
    asPicoUnits(12_345_678n),
    asPicoUnits(0n),
  );
  const nowMs = clock.monotonicMs();
  listener.observeDuration(model, nowMs - receivedMs + (call % 500));
  if (stream) listener.observeFirstToken(model, answerMs - receivedMs + (call % 200));
  listener.observeOverhead(stream, answerMs - bodyMs);
  counted += 1;
}

/** CPU time, which other processes on the machine disturb less than the clock. */
function cpuMicros(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}

function nanosecondsOf(stream: boolean): number {
  const before = cpuMicros();
  for (let call = 1; call <= CALLS; call += 1) countCall(call, stream);
  return ((cpuMicros() - before) * 1_000) / CALLS;
}

async function idleMicros(): Promise<number> {
  const before = cpuMicros();
  await sleep(IDLE_MS);
  return ((cpuMicros() - before) * 1_000) / IDLE_MS;
}

const print = (text: string): void => void process.stdout.write(`${text}\n`);
print(`node ${process.version}, ${cpus()[0]?.model ?? 'unknown processor'}`);
for (const [name, stream] of [
  ['a whole answer', false],
  ['a stream', true],
] as const) {
  nanosecondsOf(stream);
  const taken = Array.from({ length: ROUNDS }, () => nanosecondsOf(stream)).sort((a, b) => a - b);
  print(`${name.padEnd(16)} ${taken[0]!.toFixed(0)} ns (${taken[ROUNDS >> 1]!.toFixed(0)})`);
}
const bare = await idleMicros();
const health = new ThreadHealth(buffers, 0);
const watched = await idleMicros();
health.stop();
print(`event loop delay ${(watched - bare).toFixed(0)} µs a second of an idle thread`);
print(`counted ${counted > 0 ? 'all' : 'nothing'}`);
