import t, { type Test } from 'tap';
import { once } from 'node:events';
import type { MessagePort } from 'node:worker_threads';
import type { ErrorRecord } from '#src/core/errors.js';
import { asAccountIndex, asCallSlot, asMonotonicMs } from '#src/core/units.js';
import type { Usage } from '#src/core/token-counts.js';
import { CallTable, createCallTable } from '#src/channel/call-table.js';
import { createFrameChannel, createLocalChannel, type FrameChannel } from '#src/channel/frame-port.js';
import { ListenerChannel, type CallReceiver } from '#src/channel/listener-channel.js';
import type { DownstreamHandle, UpstreamRequest } from '#src/channel/messages.js';
import { WorkerChannel } from '#src/channel/worker-channel.js';

const USAGE: Usage = {
  promptTokens: 7,
  cachedTokens: 2,
  cacheWriteTokens: 4,
  cacheWrite1hTokens: 1,
  completionTokens: 3,
  reasoningTokens: 2,
  source: 'counted',
};
const REQUEST: UpstreamRequest = {
  requestId: 'req-1',
  door: 0,
  betas: '',
  modelIndex: 4,
  stream: true,
  includeUsage: false,
  modelStart: 9,
  modelEnd: 12,
  body: '{"model":"é","messages":[]}',
  bodyIsAscii: false,
  account: asAccountIndex(0x7fffff),
  outputTokensMax: 100,
  choices: 2,
  mediaParts: 0,
  repeatedTokens: 0,
};
const FAILURE: ErrorRecord = { code: 'provider_unavailable', message: 'gone', retryAfterSeconds: 3 };

interface Session {
  readonly request: UpstreamRequest;
  readonly downstream: DownstreamHandle;
  readonly told: string[];
}

/** Both ends of a link in one thread; sessions are what the worker's side was asked to start. */
function bed(t: Test, slots = 4) {
  const buffer = createCallTable(64, 128);
  const link = new ListenerChannel(new CallTable(buffer), { first: 8, count: slots });
  const sessions: Session[] = [];
  const workerLinks: WorkerChannel[] = [];
  const addWorker = (index: number): MessagePort => {
    const [ours, theirs] = createFrameChannel();
    link.attachWorker(index, ours);
    serve(theirs, sessions);
    return theirs.port;
  };
  /** Returns the sessions of the worker in the listener's thread. */
  const addOwnWorker = (hasTime: () => boolean): Session[] => {
    const [ours, theirs] = createLocalChannel();
    link.attachOwnWorker(ours, hasTime);
    const own: Session[] = [];
    serve(theirs, own);
    return own;
  };
  const serve = (theirs: FrameChannel, sessions: Session[]): void => {
    workerLinks.push(
      new WorkerChannel(theirs, new CallTable(buffer), (request, downstream) => {
        const told: string[] = [];
        sessions.push({ request, downstream, told });
        const heard = (what: string): void => {
          told.push(what);
          if (request.requestId === 'broken') throw new Error('a bug');
        };
        return {
          onCredit: () => heard('credit'),
          onCancel: () => heard('cancel'),
          onStop: () => heard('stop'),
          crash: (error) => void told.push(String(error)),
        };
      }),
    );
  };
  t.teardown(() => {
    link.close();
    for (const workerLink of workerLinks) workerLink.close();
  });
  return { buffer, link, sessions, addWorker, addOwnWorker, workerLinks };
}

function recorder(): CallReceiver & { readonly heard: string[] } {
  const heard: string[] = [];
  return {
    heard,
    onTried: ({ upstreamSlot, code, error }) => void heard.push(`tried ${upstreamSlot} ${code} ${error}`),
    onData: (bytes, more) => heard.push(`data ${Buffer.from(bytes).toString()}${more ? ' and more' : ''}`),
    onEnd: (bytes, usage, waitMs) =>
      heard.push(`end ${Buffer.from(bytes).toString()} ${JSON.stringify(usage)} ${waitMs}`) > 0,
    onCut: (usage, waitMs) => heard.push(`cut ${JSON.stringify(usage)} ${waitMs}`) > 0,
    onFail: (error) => heard.push(`fail ${JSON.stringify(error)}`) > 0,
  };
}

/** Polls in turns of the event loop; a named error where it takes too long. */
async function until(what: string, condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 5_000;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`timed out waiting until ${what}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

void t.test('a bug in one session ends its call alone', async (t) => {
  const { link, sessions, addWorker, workerLinks } = bed(t);
  addWorker(0);
  const slot = link.acquire()!;
  link.dispatch(slot, { ...REQUEST, requestId: 'broken' }, recorder());
  link.dispatch(link.acquire()!, REQUEST, recorder());
  await until('the calls arrive', () => sessions.length === 2);
  const [broken, other] = sessions;
  link.cancel(slot);
  await until('the news arrives', () => broken!.told.length === 2);
  t.same(broken!.told, ['cancel', 'Error: a bug']);
  t.same(other!.told, []);
  workerLinks[0]!.cancelAll();
  t.same(broken!.told.slice(2), ['stop', 'Error: a bug']);
  t.same(other!.told, ['stop'], 'and the others are cancelled with it');
});

void t.test('a call goes over whole, its answer comes back in order, its slot is free again', async (t) => {
  const { link, sessions, addWorker } = bed(t);
  addWorker(0);
  const slot = link.acquire()!;
  const receiver = recorder();
  t.equal(link.dispatch(slot, REQUEST, receiver), true);
  await until('the call arrives', () => sessions.length === 1);
  t.same(sessions[0]!.request, REQUEST);
  t.equal(link.inFlight, 1);
  sessions[0]!.downstream.data(Buffer.from('a'));
  sessions[0]!.downstream.data(Buffer.from('b'));
  sessions[0]!.downstream.end(Buffer.from('c'), USAGE, 1.5);
  await until('the end arrives', () => receiver.heard.length === 3);
  t.same(receiver.heard, ['data a and more', 'data b and more', `end c ${JSON.stringify(USAGE)} 1.5`]);
  t.equal(link.inFlight, 0);
  t.throws(() => sessions[0]!.downstream.fail(FAILURE), /a call ends once/);
  t.throws(() => sessions[0]!.downstream.data(Buffer.from('d')), /no data after the end/);
});

void t.test('a failure arrives as the record it was', async (t) => {
  const { link, sessions, addWorker } = bed(t);
  addWorker(0);
  const receiver = recorder();
  link.dispatch(link.acquire()!, REQUEST, receiver);
  await until('the call arrives', () => sessions.length === 1);
  sessions[0]!.downstream.fail(FAILURE);
  await until('it fails', () => receiver.heard.length === 1);
  t.same(receiver.heard, [`fail ${JSON.stringify(FAILURE)}`]);
});

void t.test('a cut comes after what was sent before it, and with its bill', async (t) => {
  const { link, sessions, addWorker } = bed(t);
  addWorker(0);
  const receiver = recorder();
  link.dispatch(link.acquire()!, REQUEST, receiver);
  await until('the call arrives', () => sessions.length === 1);
  sessions[0]!.downstream.data(Buffer.from('a'));
  sessions[0]!.downstream.cut(USAGE, 1.5);
  await until('the cut arrives', () => receiver.heard.length === 2);
  t.same(receiver.heard, ['data a and more', `cut ${JSON.stringify(USAGE)} 1.5`]);
  t.equal(link.inFlight, 0);
  t.throws(() => sessions[0]!.downstream.fail(FAILURE), /a call ends once/);
});

void t.test('slots are bounded: one more is refused, and one given back can be had again', (t) => {
  const { link } = bed(t, 2);
  const first = link.acquire()!;
  const second = link.acquire()!;
  t.same([first, second].sort(), [8, 9], 'out of its own range');
  t.equal(link.acquire(), undefined);
  link.release(first);
  t.equal(link.acquire(), first);
  t.end();
});

void t.test(
  'a slot that is free, foreign or with a worker is not released: two calls would get it',
  async (t) => {
    const { link, sessions, addWorker } = bed(t, 2);
    addWorker(0);
    const slot = link.acquire()!;
    link.release(slot);
    for (const free of [slot, asCallSlot(9), asCallSlot(7), asCallSlot(10)])
      t.throws(() => link.release(free), /released once/, `slot ${free}`);
    link.dispatch(link.acquire()!, REQUEST, recorder());
    await until('the call arrives', () => sessions.length === 1);
    t.throws(() => link.release(slot), /after the last frame/);
    sessions[0]!.downstream.end(new Uint8Array(0), USAGE, 1.5);
    await until('the slot is free', () => link.inFlight === 0);
    t.throws(() => link.release(slot), /released once/, 'the channel has released it');
    t.same([link.acquire(), link.acquire(), link.acquire()].sort(), [8, 9, undefined]);
  },
);

void t.test('without a worker nothing is dispatched', (t) => {
  const { link } = bed(t);
  t.equal(link.dispatch(link.acquire()!, REQUEST, recorder()), false);
  t.end();
});

void t.test('a listener that ends stops the calls whose clients have left, or leave then', async (t) => {
  const { link, sessions, addWorker } = bed(t);
  addWorker(0);
  const slots = [0, 1, 2].map(() => link.acquire()!);
  for (const slot of slots) link.dispatch(slot, REQUEST, recorder());
  await until('the calls arrive', () => sessions.length === 3);
  link.cancel(slots[0]!);
  await until('the first is told', () => sessions[0]!.told.length === 1);
  link.stopLeftCalls();
  link.cancel(slots[1]!);
  await until('both are told', () => sessions[1]!.told.length === 1);
  t.same(
    sessions.map(({ told }) => told),
    [['cancel', 'stop'], ['stop'], []],
    'who is there is served on',
  );
});

void t.test('credits stop a worker and start it again', async (t) => {
  const { link, sessions, addWorker } = bed(t);
  addWorker(0);
  const slot = link.acquire()!;
  const receiver = recorder();
  link.dispatch(slot, REQUEST, receiver);
  await until('the call arrives', () => sessions.length === 1);
  const { downstream, told } = sessions[0]!;
  t.equal(downstream.data(Buffer.alloc(63)), true);
  t.equal(downstream.data(Buffer.alloc(1)), false, 'the window is spent');
  await until('both arrive', () => receiver.heard.length === 2);
  link.refund(slot, 64);
  await until('the worker is told', () => told.length === 1);
  t.same(told, ['credit']);
});

void t.test('a cancel reaches the session, and its end frees the slot', async (t) => {
  const { link, sessions, addWorker } = bed(t);
  addWorker(0);
  const slot = link.acquire()!;
  const receiver = recorder();
  link.dispatch(slot, REQUEST, receiver);
  await until('the call arrives', () => sessions.length === 1);
  link.cancel(slot);
  t.equal(sessions[0]!.downstream.data(Buffer.from('unseen')), true, 'known from the shared word at once');
  await until('the session is told', () => sessions[0]!.told.length === 1);
  t.equal(link.inFlight, 1, 'the slot is not free before the last frame');
  sessions[0]!.downstream.end(new Uint8Array(0), USAGE, 1.5);
  await until('the slot is free', () => link.inFlight === 0);
  t.match(receiver.heard, [/^end /]);
});

void t.test('a client that was cut is no client that left: the session is stopped', async (t) => {
  const { link, sessions, addWorker } = bed(t);
  addWorker(0);
  const slot = link.acquire()!;
  link.dispatch(slot, REQUEST, recorder());
  await until('the call arrives', () => sessions.length === 1);
  link.stop(slot);
  await until('the session is told', () => sessions[0]!.told.length === 1);
  t.same(sessions[0]!.told, ['stop']);
});

void t.test(
  'a worker that dies fails its own calls; late frames of an earlier call are dropped',
  async (t) => {
    const { link, sessions, addWorker } = bed(t);
    addWorker(0);
    addWorker(1);
    const receivers = [recorder(), recorder()];
    for (const receiver of receivers) link.dispatch(link.acquire()!, REQUEST, receiver);
    await until('both calls arrive', () => sessions.length === 2);
    link.detachWorker(0);
    const failed = receivers.filter(({ heard }) => heard.length > 0);
    t.equal(failed.length, 1, 'least in flight: one call went to each worker, and one of them failed');
    t.match(failed[0]!.heard, [/"code":"internal_error"/]);
    t.equal(link.inFlight, 1);
    // The dead worker's port is closed; the other one's call ends as always.
    for (const { downstream } of sessions) downstream.end(Buffer.from('late'), USAGE, 1.5);
    await until('the other call ends', () => link.inFlight === 0);
    t.equal(failed[0]!.heard.length, 1, 'the failed call hears nothing more');
  },
);

void t.test('the worker in the same thread gets calls while there is time, and no large body', async (t) => {
  const { link, sessions, addWorker, addOwnWorker } = bed(t, 8);
  let hasTime = true;
  const own = addOwnWorker(() => hasTime);
  const dispatch = (more: Partial<UpstreamRequest> = {}): void => {
    t.ok(link.dispatch(link.acquire()!, { ...REQUEST, ...more }, recorder()));
  };
  hasTime = false;
  dispatch();
  await until('its call arrives, as there is no other worker', () => own.length === 1);
  addWorker(0);
  dispatch();
  await until('a call goes to the thread', () => sessions.length === 1);
  hasTime = true;
  dispatch();
  dispatch({ largeBody: new Uint8Array(10) });
  await until('both arrive', () => own.length === 2 && sessions.length === 2);
  t.ok(sessions[1]!.request.largeBody, 'the large body went to the thread');
  link.stopLeftCalls();
  link.cancel(asCallSlot(10));
  await until('its call is stopped as any other', () => own[1]!.told.length === 1);
  t.same(own[1]!.told, ['stop']);
  link.detachWorker(0);
  for (let call = 0; call < 2; call += 1) dispatch();
  await until('it has all calls when the thread has died', () => own.length === 4);
});

void t.test('of calls that come at once the worker in the same thread gets a few', async (t) => {
  const { link, sessions, addWorker, addOwnWorker } = bed(t, 30);
  addWorker(0);
  const own = addOwnWorker(() => true);
  const CALLS = 10;
  for (const turn of [1, 2, 3]) {
    for (let call = 0; call < CALLS; call += 1) link.dispatch(link.acquire()!, REQUEST, recorder());
    await until('the calls arrive', () => own.length + sessions.length === turn * CALLS);
    t.equal(own.length, turn * 8);
  }
});

void t.test('a listener that goes cancels its calls in the worker', async (t) => {
  const { link, sessions, addWorker } = bed(t);
  const port = addWorker(0);
  link.dispatch(link.acquire()!, REQUEST, recorder());
  await until('the call arrives', () => sessions.length === 1);
  link.close();
  await once(port, 'close');
  t.same(sessions[0]!.told, ['stop'], 'nobody could be told of an end');
  sessions[0]!.downstream.end(new Uint8Array(0), USAGE, 1.5);
});

void t.test('a call of a listener that has died changes nothing of the next call in its slot', async (t) => {
  const { buffer, link, sessions, addWorker } = bed(t);
  addWorker(0);
  link.dispatch(link.acquire()!, REQUEST, recorder());
  await until('the call arrives', () => sessions.length === 1);
  const [dead] = sessions;
  // Its successor has the same slots. The worker has not heard of the death yet.
  const successor = new ListenerChannel(new CallTable(buffer), { first: 8, count: 4 });
  const [ours, theirs] = createFrameChannel();
  successor.attachWorker(0, ours);
  const heard: DownstreamHandle[] = [];
  const worker = new WorkerChannel(theirs, new CallTable(buffer), (_request, downstream) => {
    heard.push(downstream);
    const nothing = () => undefined;
    return { onCredit: nothing, onCancel: nothing, onStop: nothing, crash: nothing };
  });
  const slot = successor.acquire()!;
  successor.dispatch(slot, REQUEST, recorder());
  await until('the next call arrives', () => heard.length === 1);
  const window = Buffer.alloc(63);
  t.equal(dead!.downstream.data(window), true);
  t.equal(heard[0]!.data(window), true, 'its credits are whole');
  heard[0]!.recordUpstream(1, 0, asMonotonicMs(1));
  dead!.downstream.recordUpstream(2, 1, asMonotonicMs(1));
  dead!.downstream.recordQueued(5);
  const { table } = successor;
  t.same([table.upstreamOf(slot), table.fallbackOf(slot), table.queuedMsOf(slot)], [1, 0, 0]);
  dead!.downstream.fail(FAILURE);
  heard[0]!.fail(FAILURE);
  successor.close();
  worker.close();
});

void t.test('a receiver whose client is slow keeps the slot beyond the last frame', async (t) => {
  const { link, sessions, addWorker } = bed(t);
  addWorker(0);
  const slot = link.acquire()!;
  const heard: string[] = [];
  const receiver: CallReceiver = {
    onTried: () => undefined,
    onData: () => undefined,
    onEnd: () => heard.push('end') === 0,
    onCut: () => heard.push('cut') === 0,
    onFail: () => true,
  };
  link.dispatch(slot, REQUEST, receiver);
  await until('the call arrives', () => sessions.length === 1);
  sessions[0]!.downstream.end(Buffer.from('c'), USAGE, 1.5);
  await until('it ends', () => heard.length === 1);
  t.equal(link.inFlight, 1);
  link.refund(slot, 10);
  link.cancel(slot);
  t.same(sessions[0]!.told, [], 'the worker hears nothing more of it');
  link.release(slot);
  t.equal(link.inFlight, 0);
});

void t.test('a large body is handed over, in its order among the other frames', async (t) => {
  const { link, sessions, addWorker } = bed(t);
  addWorker(0);
  const largeBody = new TextEncoder().encode('{"model":"é"}');
  const large = { ...REQUEST, requestId: 'req-2', body: '', largeBody };
  link.dispatch(link.acquire()!, REQUEST, recorder());
  link.dispatch(link.acquire()!, large, recorder());
  link.dispatch(link.acquire()!, { ...REQUEST, requestId: 'req-3' }, recorder());
  await until('all arrive', () => sessions.length === 3);
  t.equal(largeBody.length, 0, 'the bytes have gone over, not a copy');
  t.same(
    sessions.map(({ request }) => request.requestId),
    ['req-1', 'req-2', 'req-3'],
  );
  t.equal(Buffer.from(sessions[1]!.request.largeBody!).toString(), '{"model":"é"}');
});

void t.test('bytes of an answer arrive as they were, be they few or many', async (t) => {
  const { link, sessions, addWorker } = bed(t);
  addWorker(0);
  const all = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  const heard: Buffer[] = [];
  const receiver: CallReceiver = {
    ...recorder(),
    onData: (bytes) => void heard.push(Buffer.from(bytes)),
    onEnd: (bytes) => heard.push(Buffer.from(bytes)) > 0,
  };
  link.dispatch(link.acquire()!, REQUEST, receiver);
  await until('the call arrives', () => sessions.length === 1);
  const { downstream } = sessions[0]!;
  const large = Buffer.concat(Array.from({ length: 20 }, () => all));
  for (const bytes of [Buffer.alloc(0), all, large.subarray(1, 4_097), large.subarray(1, 4_098)])
    downstream.data(bytes);
  downstream.end(large, USAGE, 1.5);
  await until('it ends', () => heard.length === 5);
  t.same(
    heard.map((bytes) => bytes.toString('hex')),
    [Buffer.alloc(0), all, large.subarray(1, 4_097), large.subarray(1, 4_098), large].map((bytes) =>
      bytes.toString('hex'),
    ),
  );
  t.equal(large.length, 5_120, 'the sender keeps its own');
});
