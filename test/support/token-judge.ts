/**
 * Judges a log of calls against the limits of one scope that all of them count toward. Threads logged a stamp
 * before and after each step, so a call was surely in flight from `admitted` to `ending`, and has ended
 * between `ending` and `ended`. What is judged holds for certain, whatever happened between two stamps:
 *
 * - At any time, what calls in flight hold and what those that ended within 60 seconds used is at most the
 *   limit; a call that used more than it held counts as what it held. So the tokens of any 60 seconds are at
 *   most the limit wherever between admission and end one counts each call. That is judged once more apart:
 *   all counted at their admission, all at their end, and each at random between.
 * - A call was admitted only if there was room for what it held, beside all that the others really used.
 * - What the calls of a day hold and used, and how many are in flight, is at most the limit.
 */
import { msOf, stampAt, type TokenLimits } from '../fixtures/ledger-tokens.js';

const MINUTE_MS = 60_000;

/** Stamps in the order of the fields; `ended` is Infinity if the thread died while it ended the call. */
export interface LoggedCall {
  readonly key: number;
  readonly held: number;
  readonly used: number;
  readonly asked: number;
  readonly admitted: number;
  readonly ending: number;
  readonly ended: number;
  /** The day of the calendar; undefined if that changed while it was admitted. */
  readonly day: number | undefined;
}

export interface Judgement {
  readonly faults: readonly string[];
  /** The most that surely weighed, as a part of the limit. */
  readonly mostOfMinute: number;
  readonly mostOfDay: number;
}

export function judgeTokens(
  calls: readonly LoggedCall[],
  limits: TokenLimits,
  random: (below: number) => number,
): Judgement {
  const faults: string[] = [];
  const mostOfMinute = most(calls.flatMap(weighsCapped)) / limits.tokensPerMinute;
  if (mostOfMinute > 1) faults.push(`${mostOfMinute} of the minute`);
  const flight = most(calls.flatMap(({ admitted, ending }) => [step(admitted, 1), step(ending, -1)]));
  if (flight > limits.callsInFlight) faults.push(`${flight} in flight`);

  const placements: readonly [string, (call: LoggedCall) => number][] = [
    ['admission', ({ admitted }) => admitted],
    ['end', ({ ending }) => ending],
    ['random', ({ admitted, ending }) => admitted + (random(2 ** 20) / 2 ** 20) * (ending - admitted)],
  ];
  for (const [name, placeOf] of placements) {
    const placed = mostInAMinute(calls, placeOf);
    if (placed > limits.tokensPerMinute) faults.push(`${placed} in a minute, counted at ${name}`);
  }
  const noRoom = admittedWithoutRoom(calls, limits.tokensPerMinute);
  if (noRoom > 0) faults.push(`${noRoom} admitted without room`);

  let mostOfDay = 0;
  const days = new Map<number, Step[]>();
  for (const { day, admitted, ending, held, used } of calls) {
    if (day === undefined) continue;
    const steps = days.get(day) ?? [];
    steps.push(step(admitted, held), step(ending, Math.min(used, held) - held));
    days.set(day, steps);
  }
  for (const [day, steps] of days) {
    const part = most(steps) / limits.tokensPerDay;
    if (part > 1) faults.push(`${part} of day ${day}`);
    mostOfDay = Math.max(mostOfDay, part);
  }
  return { faults, mostOfMinute, mostOfDay };
}

/** From a stamp on, so much more weighs. */
interface Step {
  readonly stamp: number;
  readonly amount: number;
}

function step(stamp: number, amount: number): Step {
  return { stamp, amount };
}

function weighsCapped({ admitted, ending, held, used }: LoggedCall): Step[] {
  const counted = Math.min(held, used);
  return [step(admitted, held), step(ending, counted - held), step(expiryOf(ending), -counted)];
}

/** What surely weighs with what was used beyond holds. */
function weighs({ admitted, ending, ended, held, used }: LoggedCall): Step[] {
  const counted = Math.min(held, used);
  const beyond = ended === Infinity ? 0 : used - counted;
  return [
    step(admitted, held),
    step(ending, counted - held),
    ...(beyond > 0 ? [step(ended, beyond)] : []),
    step(expiryOf(ending), -counted - beyond),
  ];
}

function expiryOf(ending: number): number {
  return stampAt(msOf(ending) + MINUTE_MS + 1);
}

const byStamp = (one: Step, other: Step): number => one.stamp - other.stamp;

function most(steps: Step[]): number {
  let [sum, highest] = [0, 0];
  for (const { amount } of steps.sort(byStamp)) {
    sum += amount;
    highest = Math.max(highest, sum);
  }
  return highest;
}

function mostInAMinute(calls: readonly LoggedCall[], placeOf: (call: LoggedCall) => number): number {
  const steps = calls.map((call) => step(placeOf(call), Math.min(call.held, call.used))).sort(byStamp);
  let [first, sum, highest] = [0, 0, 0];
  for (const { stamp, amount } of steps) {
    sum += amount;
    for (; msOf(steps[first]!.stamp) < msOf(stamp) - MINUTE_MS; first++) sum -= steps[first]!.amount;
    highest = Math.max(highest, sum);
  }
  return highest;
}

/** Calls for which there was no moment between `asked` and `admitted` at which they fitted. */
function admittedWithoutRoom(calls: readonly LoggedCall[], limit: number): number {
  const steps = calls.flatMap(weighs).sort(byStamp);
  const sums = new Float64Array(steps.length + 1);
  steps.forEach(({ amount }, n) => (sums[n + 1] = sums[n]! + amount));
  const inOrder = calls.toSorted((one, other) => one.asked - other.asked);
  let [before, count] = [0, 0];
  for (const { asked, admitted, held } of inOrder) {
    while (before < steps.length && steps[before]!.stamp <= asked) before++;
    let least = sums[before]!;
    for (let n = before; n < steps.length && steps[n]!.stamp < admitted; n++)
      least = Math.min(least, sums[n + 1]!);
    if (least + held > limit || least >= limit) count++;
  }
  return count;
}
