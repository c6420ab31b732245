/** Connections over which bodies come as fast as they are read, as µWS reads them. */
import { setImmediate as turnEnd } from 'node:timers/promises';
import t from 'tap';
import type { HttpResponse } from 'uWebSockets.js';
import type { MonotonicMs } from '#src/core/units.js';
import type { IntakeContext } from '#src/request/context.js';
import type { ChatExchange } from '#src/request/chat-exchange.js';
import { Intake } from '#src/request/intake.js';
import { BodyTurns, ReadTurns } from '#src/request/read-turns.js';
import { UWS_TIMER_RESTART_MS } from '#src/request/response-writer.js';

/** What µWS reads of a connection at a time. */
const READ_BYTES = 512 * 1024;
const BODY_READS = 20;
const SENDERS = 200;
/** What turns may bring, once each connection was read, with those four that were not paused before. */
const TURN_BYTES_MAX = 4 * 1024 * 1024;

const REJECTIONS_A_TURN_MAX = 8;

class Sender {
  isPaused = false;
  reads = 0;
  isGone = false;

  pause = (): HttpResponse => {
    if (this.isGone) throw new Error('paused after its end');
    this.isPaused = true;
    return this as unknown as HttpResponse;
  };

  resume = (): HttpResponse => {
    if (this.isGone) throw new Error('resumed after its end');
    this.isPaused = false;
    return this as unknown as HttpResponse;
  };
}

/** One look of µWS at its sockets. Returns the bytes that it read. */
function poll(turns: ReadTurns, senders: readonly Sender[]): number {
  let bytes = 0;
  for (const sender of senders) {
    if (sender.isPaused || sender.isGone || sender.reads === BODY_READS) continue;
    sender.reads += 1;
    bytes += READ_BYTES;
    if (sender.reads < BODY_READS) turns.take(sender, READ_BYTES);
    else turns.resume(sender);
  }
  return bytes;
}

const newTurns = (): ReadTurns => new ReadTurns(4 * READ_BYTES, 4);
const newSenders = (count: number): Sender[] => Array.from({ length: count }, () => new Sender());

void t.test('many large bodies come by turns: little a turn, all alike, each to its end', async (t) => {
  const turns = newTurns();
  const senders = newSenders(SENDERS);
  poll(turns, senders);
  let mostBytes = 0;
  let mostAhead = 0;
  while (senders.some(({ reads }) => reads < BODY_READS)) {
    await turnEnd();
    const bytes = poll(turns, senders);
    if (bytes === 0) break;
    mostBytes = Math.max(mostBytes, bytes);
    const reads = senders.map((sender) => sender.reads);
    mostAhead = Math.max(mostAhead, Math.max(...reads) - Math.min(...reads));
  }
  t.ok(
    senders.every(({ reads }) => reads === BODY_READS),
    'nobody waits for ever',
  );
  t.ok(mostBytes <= TURN_BYTES_MAX, `at most ${mostBytes} bytes a turn`);
  t.ok(mostAhead <= 2, `nobody is ahead of another by more than ${mostAhead} reads`);
});

void t.test('a sender that is alone is never paused', async (t) => {
  const turns = newTurns();
  const [sender] = newSenders(1);
  for (let turn = 0; turn < BODY_READS; turn++) {
    poll(turns, [sender!]);
    t.equal(sender!.isPaused, false);
    await turnEnd();
  }
});

void t.test('who is rejected is read on at once, and who has left is not touched', async (t) => {
  const turns = newTurns();
  const senders = newSenders(SENDERS);
  poll(turns, senders);
  const [rejected, gone] = senders.slice(-2);
  t.equal(rejected!.isPaused && gone!.isPaused, true);
  turns.resume(rejected!);
  t.equal(rejected!.isPaused, false);
  turns.forget(gone!);
  gone!.isGone = true;
  for (let turn = 0; turn < SENDERS; turn++) await turnEnd();
  t.ok(senders.every((sender) => sender.isGone || !sender.isPaused));
});

void t.test('intake tells of the chunks, and of the end', (t) => {
  const bodyTurns = new BodyTurns();
  const senders = newSenders(SENDERS);
  let leave = (): void => undefined;
  const intakes = senders.map((sender) => {
    const res = Object.assign(sender, { onAborted: (handler: () => void) => (leave = handler) });
    const exchange = {
      res,
      stopSweep: () => undefined,
      finish: () => undefined,
      isOver: false,
      clientGone: false,
    };
    return new Intake(exchange as unknown as ChatExchange, { bodyTurns } as unknown as IntakeContext);
  });
  for (const intake of intakes) intake.onBodyProgress(READ_BYTES);
  t.equal(senders.filter(({ isPaused }) => isPaused).length, SENDERS - 4);
  leave();
  senders.at(-1)!.isGone = true;
  return turnEnd();
});

void t.test('to keep a slow sender, nobody is read before its turn', async (t) => {
  const bodyTurns = new BodyTurns();
  const senders = newSenders(SENDERS);
  const limits = { clientIdleTimeoutMs: 60_000 };
  const intakes = senders.map((sender) => {
    const res = Object.assign(sender, { onAborted: () => undefined });
    return new Intake({ res } as unknown as ChatExchange, { bodyTurns, limits } as unknown as IntakeContext);
  });
  for (const intake of intakes) intake.onBodyProgress(READ_BYTES);
  const paused = senders.filter(({ isPaused }) => isPaused);
  t.equal(paused.length, SENDERS - 4);
  for (const nowMs of [1, UWS_TIMER_RESTART_MS + 1])
    for (const intake of intakes) intake.onSweep(nowMs as MonotonicMs);
  t.ok(paused.every(({ isPaused }) => isPaused));
  t.notOk(
    senders.some((sender) => sender.isPaused && !paused.includes(sender)),
    'nor does anybody else stay paused',
  );
  for (let turn = 0; turn < SENDERS; turn++) await turnEnd();
  t.notOk(senders.some(({ isPaused }) => isPaused));
});

void t.test('large bodies are rejected by turns, but for those whose clients have left', async (t) => {
  const bodyTurns = new BodyTurns();
  const senders = newSenders(SENDERS);
  let rejected = 0;
  for (const sender of senders) {
    bodyTurns.onBytes(sender, READ_BYTES);
    bodyTurns.reject(sender, () => {
      t.equal(sender.isGone, false);
      t.equal(sender.isPaused, false);
      rejected += 1;
    });
  }
  const atOnce = rejected;
  t.ok(atOnce > 0 && atOnce <= REJECTIONS_A_TURN_MAX, `${atOnce} at once`);
  t.equal(senders.filter(({ isPaused }) => isPaused).length, SENDERS - atOnce, 'the others are not read');
  const [gone] = senders.slice(-1);
  bodyTurns.leave(gone!, true);
  gone!.isGone = true;
  while (rejected < SENDERS - 1) {
    const before = rejected;
    await turnEnd();
    t.ok(rejected > before && rejected - before <= REJECTIONS_A_TURN_MAX, `${rejected - before} in a turn`);
  }
  await turnEnd();
  t.equal(rejected, SENDERS - 1);
});
