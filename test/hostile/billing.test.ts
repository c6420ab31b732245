/**
 * Nobody eats for nothing: random callers on random upstreams, and the books held against what the upstreams sent and the callers
 * received. What is received and not charged is only what the contract gives away: an upstream that failed by itself before the text was
 * whole, of which the caller is told by an error event. The seed is printed; TOLLGATE_HOSTILE_SEED repeats a run.
 *
 * A word is a token. Charged is at least what was received and at most what was sent, within 2 %: of long streams without a report the
 * tokens are scaled up from their beginning.
 */
import t from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import { eventually, startGateway, testSettings, type Gateway } from '../support/gateway.js';
import { randomOf, type Random } from '../support/random.js';
import { BilledUpstream, drawScript, WORD, type Script, type Sent } from '../support/billed-upstream.js';
import { callAs, drawCaller, type Caller, type Received } from '../support/hostile-caller.js';

const FULL = process.env.TOLLGATE_HOSTILE_FULL !== undefined;
const CALLS = FULL ? 5_000 : 320;
const CALLS_AT_ONCE = 80;
const SEED = Number(process.env.TOLLGATE_HOSTILE_SEED ?? Date.now() % 1_000_000);

const INPUT = 1_500_000;
const OUTPUT = 2_250_000;
/** "role", its text and the frame of one message; reported prompts are smaller. */
const PROMPT_TOKENS_MAX = 40;
const TOLERANCE = 0.02;
/** An upstream that was blocked for so long before it failed did so because its caller did not read. */
const BLOCKED_MS = 1_000;

const UPSTREAM = {
  first_byte_timeout_ms: 20_000,
  idle_timeout_ms: 700,
  total_timeout_ms: 1_500,
  breaker_failures: 0,
};
/** Of the upstream whose caller stalls for longer. */
const TOTAL_TIMEOUT_MS = 500;
const SETTINGS = {
  upstream: UPSTREAM,
  limits: { stream_buffer_bytes: 65_536, client_idle_timeout_ms: 1_000 },
};

interface Played {
  readonly number: number;
  readonly caller: Caller;
  readonly script: Script;
  readonly sent: Sent;
  readonly received: Received;
  readonly spent: number;
}

/** Why it breaks the contract; undefined where it holds. */
function faultOf({ caller, script, sent, received, spent }: Played): string | undefined {
  const { words, hasError } = received;
  if (spent === 0) {
    if (words === 0) return undefined;
    if (!sent.failed || sent.wasWhole) return 'text for nothing, and the upstream did not fail';
    if (sent.blockedMs >= BLOCKED_MS) return 'text for nothing, and the caller had held the upstream up';
    return caller.leaves || hasError ? undefined : 'nothing is charged, and no error event said so';
  }
  if (hasError) return 'an error event, and it is charged';
  if (spent < words * OUTPUT * (1 - TOLERANCE)) return `charged ${spent / OUTPUT} words of ${words}`;
  const most = (PROMPT_TOKENS_MAX * INPUT + (sent.words + 2) * OUTPUT) * (1 + TOLERANCE);
  if (spent > most) return `charged ${spent / OUTPUT} words, sent were ${sent.words}`;
  // A machine that is busy makes an upstream of megabytes wait for any caller.
  const isOwn = sent.failed && !sent.wasWhole && script.padding === 0;
  if (isOwn && caller.kind === 'reads') return 'charged, and the upstream failed by itself';
  return undefined;
}

async function playOne(
  gateway: Gateway,
  upstream: BilledUpstream,
  random: Random,
  number: number,
): Promise<Played> {
  const script = drawScript(random);
  const caller = drawCaller(random, script);
  const customer = await gateway.admin.customer({ credit: '1000.00' });
  const name = `call-${number}`;
  const sent = upstream.expect(name, script);
  const received = await callAs(caller, gateway.port, customer.key, name);
  const account = await eventually(
    `nothing held by ${name}: ${JSON.stringify({ script, caller })}`,
    async () => {
      const view = await gateway.admin.account(customer.accountId);
      return view.held === '0.00' ? view : undefined;
    },
    20_000,
  );
  const law = picoUnitsOf(account.credited)! - picoUnitsOf(account.balance)! - picoUnitsOf(account.spent)!;
  if (law !== 0n) throw new Error(`credited = available + spent fails by ${law}`);
  return { number, caller, script, sent, received, spent: Number(picoUnitsOf(account.spent)!) };
}

void t.test(`${CALLS} calls of random callers on random upstreams, seed ${SEED}`, async (t) => {
  const upstream = await BilledUpstream.start(t);
  const gateway = await startGateway(t, { config: withRoom(testSettings(upstream.url, SETTINGS)) });
  const startMs = performance.now();
  const played: Played[] = [];
  let next = 0;
  const work = async (): Promise<void> => {
    for (;;) {
      const number = next++;
      if (number >= CALLS) return;
      played.push(await playOne(gateway, upstream, randomOf(SEED * 100_003 + number), number));
    }
  };
  await Promise.all(Array.from({ length: CALLS_AT_ONCE }, work));
  t.comment(`${((performance.now() - startMs) / 1_000).toFixed(1)} s, seed ${SEED}`);
  const faults = played.flatMap((one) => {
    const fault = faultOf(one);
    return fault === undefined ? [] : [{ fault, ...one }];
  });
  t.strictSame(faults.slice(0, 5), [], `seed ${SEED}: ${faults.length} of ${CALLS} calls break the contract`);
  const free = played.filter(({ spent, received }) => spent === 0 && received.words > 0);
  const cut = played.filter(({ spent, received }) => spent > 0 && !received.isWhole);
  t.comment(`${free.length} given away, ${cut.length} charged for a part`);
  t.ok(free.length > 0 && cut.length > 0, 'both kinds were played');
  t.notMatch(gateway.log().join('\n'), /inside of the gateway|invariant/);
  t.equal(await gateway.stop(), 0);
});

/** So that no bill is bounded by the hold. */
function withRoom(settings: object): object {
  const { models } = settings as { models: object[] };
  return { ...settings, models: models.map((model) => ({ ...model, max_output_tokens: 10_000_000 })) };
}

void t.test('a caller who does not read, and the timeout of a whole call', async (t) => {
  const upstream = await BilledUpstream.start(t);
  // Its stall is longer than the timeout of a whole call, and shorter than what a caller may stall.
  const settings = testSettings(upstream.url, {
    upstream: { ...UPSTREAM, total_timeout_ms: TOTAL_TIMEOUT_MS },
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
  };
  const caller: Caller = {
    kind: 'stalls',
    leaves: false,
    stream: true,
    atBytes: 0,
    stallMs: 3 * TOTAL_TIMEOUT_MS,
    key: undefined,
  };
  const { accountId, key } = await gateway.admin.customer({ credit: '1000.00' });
  upstream.expect('stalled', script);
  const received = await callAs(caller, gateway.port, key, 'stalled');
  const { spent } = await eventually('nothing held', async () => {
    const view = await gateway.admin.account(accountId);
    return view.held === '0.00' ? view : undefined;
  });
  t.equal(received.words, words, `${received.words} of ${words}${WORD}s received, charged ${spent}`);
  t.ok(Number(picoUnitsOf(spent)!) >= received.words * OUTPUT * (1 - TOLERANCE), 'and they are paid for');
  t.notOk(received.hasError);
  t.equal(await gateway.stop(), 0);
});
