/**
 * Nobody eats for nothing: random callers on random upstreams, and the books held against what the upstreams
 * sent and the callers received. What is received and not charged is only what the contract gives away: an
 * upstream that failed by itself before the text was whole, or a worker of ours that did, of which the caller
 * is told by an error event. The seed is printed; TOLLGATE_TEST_SEED repeats a run.
 *
 * A visit is some calls on one kept connection, each of an account of its own. Drawn are how each call reads
 * or leaves, its text's place in the response, its choices, the upstream's usage and its end. A word is a
 * token. Charged is at least what was received and at most what was sent, within 2 %: of long streams without
 * a report the tokens are scaled up from their beginning. If a count did not come, because its thread was
 * killed or the machine was too busy for it, the books say that the tokens are estimated, and the log why.
 */
import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import type { Customer } from '../support/admin-client.js';
import { eventually, startGateway, temporaryFolder, testSettings, type Gateway } from '../support/gateway.js';
import {
  BilledUpstream,
  drawScript,
  ONE_CHOICE,
  WORD,
  type Script,
  type Sent,
} from '../support/billed-upstream.js';
import { drawCaller, HostileConnection, type Caller, type Received } from '../support/hostile-caller.js';
import { newSeed, pick, type Random, randomOf } from '../support/random.js';

const FULL = process.env.TOLLGATE_HOSTILE_FULL !== undefined;
const SEED = newSeed();
const VISITS_AT_ONCE = 80;
const CALLS_OF_VISIT_MAX = 4;

interface World {
  readonly name: string;
  readonly visits: number;
  readonly settings: object;
  /** Pool threads, which upstream workers and counters are, are killed all the time. */
  readonly kills: boolean;
}

const KILL_EVERY_MS = 700;
/** From a thread's exception to the end of its calls, and from a caller's end to its call's. */
const KILL_TAKES_MS = 500;
/** A thread that has ended already takes no order. */
const ORDER_MS_MAX = 3_000;
const KILL_PRELOAD = join(process.cwd(), 'test/fixtures/fault-preload.mjs');

const INPUT = 1_500_000;
const OUTPUT = 2_250_000;
/** "role", its text and the frame of one message; reported prompts are smaller. */
const PROMPT_TOKENS_MAX = 40;
const TOLERANCE = 0.02;
/** Of a count that did not come, from lengths: a word has 5 bytes, and 4 are taken for a token. */
const ESTIMATE_TOLERANCE = 0.3;
/** An upstream that was blocked for so long before it failed did so because its caller did not read. */
const BLOCKED_MS = 1_000;
/** Clocks of two processes on a busy machine differ by so much of a timeout. */
const CLOCK_TOLERANCE = 0.3;

const IDLE_MS = 1_500;
const TOTAL_MS = 4_000;
const UPSTREAM = {
  first_byte_timeout_ms: 20_000,
  idle_timeout_ms: IDLE_MS,
  total_timeout_ms: TOTAL_MS,
  breaker_failures: 0,
};
/** Of the upstream whose caller stalls for longer; what it sends takes some 100 ms. */
const STALLED_TOTAL_MS = 1_500;
const SETTINGS = {
  upstream: UPSTREAM,
  limits: { stream_buffer_bytes: 65_536, client_idle_timeout_ms: 1_000 },
};

/** A visit has 2.5 calls. */
const WORLDS: readonly World[] = [
  { name: 'one worker', visits: FULL ? 2_000 : 130, settings: { workers: 1 }, kills: false },
  {
    name: 'upstreams that finish for clients who left',
    visits: FULL ? 1_000 : 80,
    settings: { workers: 1, upstream: { ...UPSTREAM, when_client_leaves: 'finish' } },
    kills: false,
  },
  {
    name: 'workers that are killed, and ends that wait for the disk',
    visits: FULL ? 1_000 : 80,
    settings: { workers: 2, workers_from_load_percent: 0, durability: 'commit' },
    kills: true,
  },
];

interface Played {
  readonly number: number;
  readonly caller: Caller;
  readonly script: Script;
  readonly sent: Sent;
  readonly received: Received;
  /** A pool thread was killed before it was settled. */
  readonly sawKill: boolean;
  /** The books say that its tokens are not exact. */
  readonly isEstimated: boolean;
  readonly spent: number;
}

/** Why it breaks the contract; undefined where it holds. `lacksCounts`: the log tells of failed counts. */
function faultOf(
  { caller, script, sent, received, sawKill, isEstimated, spent }: Played,
  lacksCounts: boolean,
): string | undefined {
  const { words, hasError, isGood } = received;
  if (spent === 0) {
    if (words === 0) return undefined;
    if (isGood) return 'a good answer for nothing';
    if (!caller.leaves && !hasError) return 'nothing is charged, and no error event said so';
    if (sawKill) return undefined;
    const seemsFailed = sent.failed || sent.silentMs >= IDLE_MS * (1 - CLOCK_TOLERANCE);
    if (!seemsFailed || sent.wasWhole) return 'text for nothing, and the upstream did not fail';
    return sent.blockedMs >= BLOCKED_MS
      ? 'text for nothing, and the caller had held the upstream up'
      : undefined;
  }
  if (hasError) return 'an error event, and it is charged';
  if (spent < words * OUTPUT * (1 - TOLERANCE)) return `charged ${spent / OUTPUT} words of ${words}`;
  const tolerance = isEstimated && lacksCounts ? ESTIMATE_TOLERANCE : TOLERANCE;
  const most = (PROMPT_TOKENS_MAX * INPUT + (sent.words + 2) * OUTPUT) * (1 + tolerance);
  if (spent > most) return `charged ${spent / OUTPUT} words, sent were ${sent.words}`;
  // A machine that is busy makes an upstream of megabytes wait for any caller, and lets a whole call's time
  // run out.
  const isOwn = sent.failed && !sent.wasWhole && script.padding === 0;
  const isInTime = sent.livedMs < TOTAL_MS * (1 - CLOCK_TOLERANCE);
  if (isOwn && isInTime && caller.kind === 'reads') return 'charged, and the upstream failed by itself';
  return undefined;
}

interface Call {
  readonly number: number;
  readonly caller: Caller;
  readonly script: Script;
  readonly sent: Sent;
  readonly customer: Customer;
}

interface Kill {
  readonly orderedMs: number;
  /** Its calls have ended; Infinity before. */
  overMs: number;
}

/** What one run of a world knows. */
interface Run {
  readonly gateway: Gateway;
  readonly upstream: BilledUpstream;
  readonly kills: readonly Kill[];
}

async function drawVisit({ gateway, upstream }: Run, random: Random, visit: number): Promise<Call[]> {
  const count = 1 + Math.floor(random() * CALLS_OF_VISIT_MAX);
  const calls: Call[] = [];
  for (let at = 0; at < count; at++) {
    const script = drawScript(random);
    const caller = drawCaller(random, script, at < count - 1);
    const number = visit * CALLS_OF_VISIT_MAX + at;
    const sent = upstream.expect(`call-${number}`, script);
    const customer = await gateway.admin.customer({ credit: '1000.00' });
    calls.push({ number, caller, script, sent, customer });
  }
  return calls;
}

/** Its calls, and how many of them went over a connection that had served another. */
async function playVisit(
  run: Run,
  random: Random,
  visit: number,
): Promise<{ played: Played[]; kept: number }> {
  const calls = await drawVisit(run, random, visit);
  const connection = new HostileConnection(run.gateway.port);
  const made: (Call & { received: Received; startMs: number })[] = [];
  for (const call of calls) {
    const { caller, customer, number, script } = call;
    const startMs = performance.now();
    const received = await connection.call(caller, customer.key, `call-${number}`, script.asked);
    made.push({ ...call, received, startMs });
  }
  connection.close();
  const played: Played[] = [];
  for (const { customer, startMs, ...call } of made) {
    const spent = await spentOf(run.gateway, customer.accountId, JSON.stringify(call));
    // A caller who leaves is gone before the text is counted: a thread that is killed until then loses it.
    const settledMs = performance.now();
    const sawKill = run.kills.some(({ orderedMs, overMs }) => overMs >= startMs && orderedMs <= settledMs);
    const usage = await run.gateway.admin.usageOf(customer.accountId);
    played.push({ ...call, sawKill, isEstimated: usage?.estimated_calls === 1, spent });
  }
  return { played, kept: connection.kept };
}

/** Once nothing is held any more. */
async function spentOf(gateway: Gateway, accountId: string, what: string): Promise<number> {
  const account = await eventually(
    `nothing held by ${what}`,
    async () => {
      const view = await gateway.admin.account(accountId);
      return view.held === '0.00' ? view : undefined;
    },
    20_000,
  );
  const spent = picoUnitsOf(account.spent)!;
  const law = picoUnitsOf(account.credited)! - picoUnitsOf(account.balance)! - spent;
  if (law !== 0n) throw new Error(`credited = available + spent fails by ${law}`);
  return Number(spent);
}

/** Kills one of the pool's threads again and again until `isOver`. */
async function killThreads(
  folder: string,
  random: Random,
  kills: Kill[],
  isOver: () => boolean,
): Promise<void> {
  const killed = new Set<string>();
  while (!isOver()) {
    await sleep(KILL_EVERY_MS);
    const names = readdirSync(folder)
      .filter((file) => file.startsWith('pool-') && file.endsWith('.code') && !killed.has(file))
      // Of the latest, as those before are dead.
      .sort((one, other) => Number(one.slice(5, -5)) - Number(other.slice(5, -5)))
      .slice(-3);
    if (names.length === 0) continue;
    const name = pick(random, names);
    killed.add(name);
    const kill: Kill = { orderedMs: performance.now(), overMs: Infinity };
    kills.push(kill);
    const order = join(folder, name.replace('.code', '.throw'));
    writeFileSync(order, '');
    // The thread removes it, and throws.
    while (existsSync(order) && performance.now() - kill.orderedMs < ORDER_MS_MAX) await sleep(10);
    rmSync(order, { force: true });
    kill.overMs = performance.now() + KILL_TAKES_MS;
  }
}

async function playWorld(t: Test, { visits, settings, kills }: World): Promise<void> {
  const upstream = await BilledUpstream.start(t);
  const folder = temporaryFolder(t);
  const gateway = await startGateway(t, {
    config: withRoom(testSettings(upstream.url, { ...SETTINGS, ...settings })),
    ...(kills && { env: { NODE_OPTIONS: `--import=${KILL_PRELOAD}`, TOLLGATE_TEST_FAULTS: folder } }),
  });
  const startMs = performance.now();
  const killed: Kill[] = [];
  const run: Run = { gateway, upstream, kills: killed };
  const played: Played[] = [];
  let keptCalls = 0;
  let next = 0;
  const work = async (): Promise<void> => {
    for (;;) {
      const visit = next++;
      if (visit >= visits) return;
      const made = await playVisit(run, randomOf(SEED * 100_003 + visit), visit);
      played.push(...made.played);
      keptCalls += made.kept;
    }
  };
  let isOver = false;
  const killing = kills ? killThreads(folder, randomOf(SEED), killed, () => isOver) : undefined;
  await Promise.all(Array.from({ length: VISITS_AT_ONCE }, work)).finally(() => (isOver = true));
  await killing;
  t.comment(
    `${played.length} calls, ${keptCalls} on a kept connection, ${killed.length} threads killed, ` +
      `${((performance.now() - startMs) / 1_000).toFixed(1)} s, seed ${SEED}`,
  );
  const lacksCounts = gateway.log().some((line) => line.includes('tokens could not be counted'));
  const faults = played.flatMap((one) => {
    const fault = faultOf(one, lacksCounts);
    return fault === undefined ? [] : [{ fault, ...one }];
  });
  t.strictSame(
    faults.slice(0, 5),
    [],
    `seed ${SEED}: ${faults.length} of ${played.length} calls break the contract`,
  );
  const free = played.filter(({ spent, received }) => spent === 0 && received.words > 0);
  const cut = played.filter(({ spent, received }) => spent > 0 && !received.isWhole);
  const several = played.filter(({ script, received }) => script.choices > 1 && received.words > 0);
  t.comment(
    `${free.length} given away, ${cut.length} charged for a part, ${several.length} of several choices`,
  );
  t.ok(free.length > 0 && cut.length > 0 && several.length > 0 && keptCalls > 0, 'all kinds were played');
  if (kills) {
    const lost = played.filter(
      ({ sawKill, sent, spent }) => sawKill && spent === 0 && !sent.failed && sent.words > 0,
    );
    t.comment(`${lost.length} calls were lost with their worker`);
    t.ok(lost.length > 0, 'a worker died under its calls');
  } else t.notMatch(gateway.log().join('\n'), /inside of the gateway|invariant/);
  t.equal(await gateway.stop(), 0);
}

for (const world of WORLDS)
  void t.test(`${world.visits} visits of random callers to random upstreams: ${world.name}`, (t) =>
    playWorld(t, world),
  );

/** So that no bill is bounded by the hold. */
function withRoom(settings: object): object {
  const { models } = settings as { models: object[] };
  return { ...settings, models: models.map((model) => ({ ...model, max_output_tokens: 10_000_000 })) };
}

void t.test('a caller who does not read, and the timeout of a whole call', async (t) => {
  const upstream = await BilledUpstream.start(t);
  // Its stall is longer than the timeout of a whole call, and shorter than what a caller may stall.
  const settings = testSettings(upstream.url, {
    upstream: { ...UPSTREAM, total_timeout_ms: STALLED_TOTAL_MS },
    limits: { ...SETTINGS.limits, client_idle_timeout_ms: 60_000 },
  });
  const gateway = await startGateway(t, { config: withRoom(settings) });
  const words = 20_000;
  const script: Script = {
    events: words,
    wordsPerEvent: 1,
    pauseMs: 0,
    usage: 'none',
    ending: 'end',
    endingAt: words,
    padding: 300,
    ...ONE_CHOICE,
  };
  const caller: Caller = {
    kind: 'stalls',
    leaves: false,
    stream: true,
    atBytes: 0,
    stallMs: 2 * STALLED_TOTAL_MS,
    key: undefined,
  };
  const { accountId, key } = await gateway.admin.customer({ credit: '1000.00' });
  upstream.expect('stalled', script);
  const connection = new HostileConnection(gateway.port);
  const received = await connection.call(caller, key, 'stalled', 1);
  connection.close();
  const { spent } = await eventually('nothing held', async () => {
    const view = await gateway.admin.account(accountId);
    return view.held === '0.00' ? view : undefined;
  });
  t.equal(received.words, words, `${received.words} of ${words}${WORD}s received, charged ${spent}`);
  t.ok(Number(picoUnitsOf(spent)!) >= received.words * OUTPUT * (1 - TOLERANCE), 'and they are paid for');
  t.notOk(received.hasError);
  t.equal(await gateway.stop(), 0);
});
