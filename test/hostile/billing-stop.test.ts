/**
 * A gateway that ends while streams go on: it waits for `drain_timeout_ms`, then cuts them, and who knows
 * when gateways are replaced shall not eat for nothing. After each way to end in order the books show what
 * was delivered: charged is at least what was received and at most what was sent, within 2 %; nothing is
 * held; and whoever got nothing has paid nothing.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import {
  eventually,
  HIDDEN_MODEL,
  startGateway,
  TEST_MODEL,
  testSettings,
  type Gateway,
} from '../support/gateway.js';
import { BilledUpstream, ONE_CHOICE, WORD, type Script, type Sent } from '../support/billed-upstream.js';
import { SlowReader } from '../support/slow-reader.js';

const FULL = process.env.TOLLGATE_HOSTILE_FULL !== undefined;
const STREAMS = FULL ? 100 : 20;
const DRAIN_MS = 300;
const INPUT = 1_500_000;
const OUTPUT = 2_250_000;
const PROMPT_TOKENS_MAX = 40;
const TOLERANCE = 0.02;
const QUICK = 1e9;
const PIECE = 1_024;

/**
 * They end with the gateway alone. Where the caller does not read, the events are long: what it has not taken
 * is much.
 */
const scriptOf = (number: number, reads: boolean): Script => ({
  events: 1_000_000,
  wordsPerEvent: 1 + (number % 3),
  pauseMs: reads ? 5 : 0,
  usage: number % 4 === 1 ? 'each' : 'none',
  ending: 'end',
  endingAt: 0,
  padding: reads ? 0 : 10_000,
  ...ONE_CHOICE,
});

type End = 'stop' | 'replace' | 'supervisor killed';
interface Case {
  readonly end: End;
  readonly durability: 'interval' | 'commit';
  readonly listeners: number;
}

const CASES: readonly Case[] = [
  { end: 'stop', durability: 'interval', listeners: 2 },
  { end: 'replace', durability: 'commit', listeners: 1 },
  ...(FULL
    ? ([
        { end: 'stop', durability: 'commit', listeners: 1 },
        { end: 'replace', durability: 'interval', listeners: 2 },
        { end: 'supervisor killed', durability: 'commit', listeners: 2 },
      ] as const)
    : []),
];

interface Guest {
  readonly number: number;
  readonly accountId: string;
  readonly reads: boolean;
  readonly sent: Sent;
  readonly reader: SlowReader;
}

/** An upstream that takes calls and never answers. */
async function startSilent(t: Test): Promise<string> {
  const server = createServer((socket) => socket.resume().on('error', () => undefined));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
}

function settingsOf({ end, durability, listeners }: Case, url: string, silentUrl: string): object {
  const settings = testSettings(url, {
    durability,
    // A lone process is not replaced while it serves.
    processes: end === 'replace' ? 2 : 1,
    drain_timeout_ms: DRAIN_MS,
    // What is on disk in the end is there because of the end.
    flush_interval_ms: 60_000,
    listen: { port: 0, listeners },
  }) as { models: { id: string }[] };
  return {
    ...settings,
    models: settings.models.map((model) => ({
      ...model,
      // So that no bill is bounded by the hold.
      max_output_tokens: 10_000_000,
      ...(model.id === HIDDEN_MODEL && { upstreams: [{ url: silentUrl }] }),
    })),
  };
}

const callOf = (model: string, content: string): object => ({
  model,
  messages: [{ role: 'user', content }],
  stream: true,
});

const allReady = (gateway: Gateway): Promise<true> =>
  eventually('two processes', async () => {
    const status = (await gateway.admin.send('GET', '/admin/v1/status')).json();
    const { processes } = status as { readonly processes: readonly { readonly ready: boolean }[] };
    return processes.filter(({ ready }) => ready).length === 2 ? true : undefined;
  });

async function end(how: End, gateway: Gateway): Promise<void> {
  if (how === 'stop') {
    await gateway.stop();
  } else if (how === 'replace') {
    process.kill(gateway.child.pid, 'SIGUSR2');
    await eventually('the end of the replacement', () =>
      gateway.log().some((line) => line.includes('gateways are replaced')) ? true : undefined,
    );
  } else {
    const pid = gateway.pid();
    await gateway.child.stop('SIGKILL', 60_000);
    await eventually('the end of the gateway', () => {
      try {
        process.kill(pid, 0);
        return undefined;
      } catch {
        return true;
      }
    });
  }
}

/** Why the account breaks the contract; undefined where it holds. */
function faultOf(spent: number, sentWords: number, receivedWords: number): string | undefined {
  const most = (PROMPT_TOKENS_MAX * INPUT + (sentWords + 2) * OUTPUT) * (1 + TOLERANCE);
  if (receivedWords > 0 && spent === 0) return 'text for nothing';
  if (spent < receivedWords * OUTPUT * (1 - TOLERANCE))
    return `charged ${spent / OUTPUT} of ${receivedWords}`;
  if (spent > most) return `charged ${spent / OUTPUT}, sent were ${sentWords}`;
  return undefined;
}

for (const one of CASES) {
  const name = `${one.end}, durability ${one.durability}, ${one.listeners} listeners, ${STREAMS} streams`;
  void t.test(name, async (t) => {
    const upstream = await BilledUpstream.start(t);
    const config = settingsOf(one, upstream.url, await startSilent(t));
    const gateway = await startGateway(t, { config });
    if (one.end === 'replace') await allReady(gateway);

    const guests: Guest[] = [];
    for (let number = 0; number < STREAMS; number += 1) {
      const reads = number % 2 === 0;
      const { key, accountId } = await gateway.admin.customer({ credit: '1000.00' });
      const text = `stream ${number}`;
      const sent = upstream.expect(text, scriptOf(number, reads));
      // Who does not read has taken one piece before.
      const reader = new SlowReader(gateway.port, key, callOf(TEST_MODEL, text), reads ? QUICK : PIECE, true);
      if (!reads) reader.bytesPerSecond = 0;
      guests.push({ number, accountId, reads, sent, reader });
    }
    const unanswered = await gateway.admin.customer({ credit: '1000.00' });
    const waiting = new SlowReader(gateway.port, unanswered.key, callOf(HIDDEN_MODEL, 'wait'), QUICK, true);
    await eventually('text for all', () =>
      guests.every(({ sent, reads, reader }) => sent.words > 10 && (!reads || reader.readBytes > 1_000))
        ? true
        : undefined,
    );
    await end(one.end, gateway);
    // What the kernel still has for those who did not read was delivered.
    for (const { reader } of guests) reader.bytesPerSecond = QUICK;
    await Promise.all([...guests, { reader: waiting }].map(({ reader }) => reader.closed));

    const after =
      one.end === 'replace'
        ? gateway
        : await startGateway(t, {
            folder: gateway.folder,
            args: ['--config', `${gateway.folder}/tollgate.yaml`],
          });
    const faults: object[] = [];
    let delivered = 0;
    for (const { number, accountId, reads, sent, reader } of guests) {
      const { held, credited, balance, spent } = await after.admin.account(accountId);
      const received = reader.text().split(WORD).length - 1;
      delivered += received;
      const spentUnits = picoUnitsOf(spent)!;
      const law = picoUnitsOf(credited)! - picoUnitsOf(balance)! - picoUnitsOf(held)! - spentUnits;
      const fault =
        faultOf(Number(spentUnits), sent.words, received) ??
        (held === '0.00' ? undefined : `held ${held}`) ??
        (law === 0n ? undefined : `credited = available + held + spent fails by ${law}`);
      if (fault !== undefined) faults.push({ number, fault, reads, received, sent: sent.words, spent });
    }
    t.comment(`${delivered} words delivered`);
    t.ok(delivered > STREAMS * 5, 'there was something to pay');
    t.strictSame(faults.slice(0, 5), [], `${faults.length} of ${STREAMS} accounts break the contract`);
    t.notOk(gateway.log().some((line) => line.includes('cut with their listener')));
    const free = await after.admin.account(unanswered.accountId);
    t.match(free, { held: '0.00', spent: '0.00', balance: '1000.00' }, 'who got nothing has paid nothing');
    t.equal(await after.stop(), 0);
  });
}
