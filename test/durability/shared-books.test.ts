/**
 * Processes that share a data directory, each killed in turn: never more than a limit in any minute or day,
 * money to the last pico-unit, nothing charged twice, and at most one flush missing.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { Calendar } from '#src/core/calendar.js';
import { asKeyIndex } from '#src/core/units.js';
import { openLeaseFile } from '#src/sharing/lease-file.js';
import { LmdbCoordinator } from '#src/sharing/lmdb-coordinator.js';
import { audit } from '#src/store/audit.js';
import { Store } from '#src/store/store.js';
import { BOUNDS } from '../support/books-member.js';
import {
  DAY_LIMIT,
  makeSharingWorld,
  MINUTE_LIMITS,
  MINUTE_MS,
  POOR,
  RICH,
  SLOTS,
} from '../support/sharing-world.js';
import { FakeLog } from '../fixtures/upstream-server.js';

const FLUSHES_BEFORE_KILL = 3;
/** What one ask gets at most, and a kill can therefore lose. */
const LENT_AT_ONCE = 3;
const POLL_MS = 5;
const WAIT_MS_MAX = 120_000;

class Spender {
  readonly slot: number;
  readonly child: ChildProcess;
  readonly #exit: Promise<unknown>;
  #text = '';

  constructor(path: string, slot: number) {
    this.slot = slot;
    const entry = new URL('../fixtures/sharing-spender.js', import.meta.url);
    this.child = fork(entry, [path, String(slot)], {
      stdio: ['pipe', 'pipe', 'inherit', 'ipc'],
    });
    this.#exit = once(this.child, 'close');
    this.child.stdout!.setEncoding('utf8').on('data', (text: string) => (this.#text += text));
  }

  tell(word: 'poor' | 'stop'): void {
    this.child.stdin!.write(`${word}\n`);
  }

  async end(signal?: 'SIGKILL'): Promise<void> {
    if (signal !== undefined) this.child.kill(signal);
    await this.#exit;
  }

  /** Whole lines: a kill may have cut the last. */
  lines(): string[][] {
    return this.#text
      .split('\n')
      .slice(0, -1)
      .map((line) => line.split(' '));
  }

  of(word: string): string[][] {
    return this.lines().filter(([first]) => first === word);
  }

  last(word: 'charged' | 'flushed'): bigint {
    return BigInt(this.of(word).at(-1)?.[1] ?? '0');
  }
}

async function until(what: string, isSo: () => boolean): Promise<void> {
  const endMs = performance.now() + WAIT_MS_MAX;
  while (!isSo()) {
    if (performance.now() > endMs) throw new Error(`not within ${WAIT_MS_MAX} ms: ${what}`);
    await sleep(POLL_MS);
  }
}

/** The most that was used within any minute. */
function mostInAMinute(uses: readonly (readonly [ms: number, calls: number])[]): number {
  const sorted = [...uses].sort(([first], [second]) => first - second);
  let most = 0;
  let sum = 0;
  let from = 0;
  for (const [ms, calls] of sorted) {
    sum += calls;
    while (sorted[from]![0] <= ms - MINUTE_MS) sum -= sorted[from++]![1];
    most = Math.max(most, sum);
  }
  return most;
}

void t.test('four processes, each killed in turn', { timeout: 600_000 }, async (t) => {
  const path = t.testdir();
  await makeSharingWorld(path);
  const lives: Spender[] = [];
  t.teardown(() => lives.forEach(({ child }) => child.kill('SIGKILL')));
  const start = (slot: number): Spender => {
    const spender = new Spender(path, slot);
    lives.push(spender);
    return spender;
  };
  const running = Array.from({ length: SLOTS }, (_, slot) => start(slot));
  const flushed = (spender: Spender, times: number) =>
    until(`slot ${spender.slot} flushes`, () => spender.of('flushed').length >= times);
  const killed: Spender[] = [];
  const kill = async (slot: number): Promise<void> => {
    const spender = running[slot]!;
    await flushed(spender, FLUSHES_BEFORE_KILL);
    await spender.end('SIGKILL');
    killed.push(spender);
  };
  for (let slot = 0; slot < SLOTS; slot++) {
    await kill(slot);
    running[slot] = start(slot);
  }
  await Promise.all(running.map((spender) => flushed(spender, FLUSHES_BEFORE_KILL)));

  running.forEach((spender) => spender.tell('poor'));
  const [last] = running.splice(0, 1) as [Spender];
  const before = last.of('flushed').length;
  await flushed(last, before + 2);
  await last.end('SIGKILL');
  killed.push(last);
  await until('all the money is spent', () => running.every((spender) => spender.of('nothing').length > 1));
  running.forEach((spender) => spender.tell('stop'));
  await Promise.all(running.map((spender) => spender.end()));

  for (const limit of MINUTE_LIMITS) {
    const uses = lives.flatMap((spender) =>
      spender
        .of('took')
        .filter(([, of]) => Number(of) === limit)
        .map(([, , calls, ms]) => [Number(ms), Number(calls)] as const),
    );
    const most = mostInAMinute(uses);
    t.ok(most <= limit, `${most} of ${limit} a minute`);
    t.ok(
      most >= limit - killed.length * LENT_AT_ONCE,
      `${most} of ${limit} a minute: no less than the kills can have lost`,
    );
  }
  const daily = lives
    .flatMap((spender) => spender.of('day'))
    .reduce((sum, [, calls]) => sum + Number(calls), 0);
  t.ok(
    daily <= DAY_LIMIT && daily >= DAY_LIMIT - killed.length * LENT_AT_ONCE,
    `${daily} of ${DAY_LIMIT} a day`,
  );

  const store = new Store(path);
  const usages = [...store.accounts()].flatMap(({ index: account }) => [
    ...store.usages({ account, fromHour: 0, toHour: 2 ** 31 }),
  ]);
  for (let slot = 0; slot < SLOTS; slot++) {
    const keyId = store.findKeyId(asKeyIndex(slot));
    const booked = usages.filter((row) => row.keyId === keyId).reduce((sum, { cost }) => sum + cost, 0n);
    // What a killed life was writing is on disk whole or not at all.
    const possible = lives
      .filter((spender) => spender.slot === slot)
      .reduce<bigint[]>(
        (sums, spender) =>
          sums.flatMap((sum) => [sum + spender.last('flushed'), sum + spender.last('charged')]),
        [0n],
      );
    t.ok(possible.includes(booked), `slot ${slot}: ${booked} is booked, of ${possible.join(' or ')}`);
  }
  t.equal(store.findSpending(POOR.index)?.spent, POOR.credit, 'spent to the last pico-unit, and no further');
  t.ok(store.findSpending(RICH.index)!.spent > 0n);

  const file = openLeaseFile(path);
  const node = { host: 'this', slot: SLOTS, incarnation: 'a look' };
  const authority = new LmdbCoordinator({
    ...{ node, file, store, clock: new SystemClock() },
    calendar: new Calendar(),
    log: new FakeLog(),
  });
  const [rich, poor] = await authority.view(
    ['rich', 'poor'].map((name) => store.findAccountByName(name)!.id),
  );
  const none = { stocks: { balance: { unused: 0n } } };
  t.match([rich, poor], [none, none], 'nobody holds any');
  await file.environment.close();
  await store.close();
  t.match(await audit(path, BOUNDS), { differences: [] });
});
