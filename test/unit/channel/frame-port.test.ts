import t, { type Test } from 'tap';
import { asAccountIndex } from '#src/core/units.js';
import {
  createFrameChannel,
  createLocalChannel,
  FramePort,
  type FrameChannel,
} from '#src/channel/frame-port.js';
import { RECORD_BYTES_MAX } from '#src/channel/frame-codec.js';
import {
  FRAME_CALL,
  FRAME_CANCEL,
  FRAME_STOP,
  FRAME_CREDIT,
  FRAME_CUT,
  FRAME_DATA,
  FRAME_END,
  FRAME_FAIL,
  type DataFrame,
  type Frame,
} from '#src/channel/messages.js';
import { asCallId, type CallId } from '#src/channel/open-calls.js';
import { type Usage, USAGE_SOURCES, usageWithoutParts } from '#src/core/token-counts.js';
import { UNRECORDED, type CarriedTrace } from '#src/telemetry/trace-context.js';
import { pick, randomOf } from '../../support/random.js';

const SEED = 20_261_122;
/** More than a ring holds, in one turn. */
const BURST_FRAMES = 200;
const ROUNDS = 30;

/**
 * What of a frame must be the same at the other end; bytes are read at once, for they are valid during the
 * call only.
 */
function textOf(frame: Frame): string {
  return JSON.stringify(
    'bytes' in frame ? { ...frame, bytes: Buffer.from(frame.bytes).toString('hex') } : frame,
  );
}

const CHANNELS = { 'between threads': createFrameChannel, 'within a thread': createLocalChannel };

/** Two ends in one thread; what each has heard. */
function bed(t: Test, create: () => readonly FrameChannel[] = createFrameChannel) {
  const [one, other] = create() as [FrameChannel, FrameChannel];
  const heard: string[][] = [[], []];
  const ports = [one, other].map(
    (link, end) => new FramePort(link, (frame) => heard[end]!.push(textOf(frame))),
  );
  t.teardown(() => ports.forEach((port) => port.close()));
  return { ports, heard };
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 20_000;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error('timed out waiting for frames');
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const TRACE_PARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
const TRACES: readonly (CarriedTrace | undefined)[] = [
  undefined,
  UNRECORDED,
  [TRACE_PARENT, ''],
  [TRACE_PARENT, `vendor=${'x'.repeat(200)},other=1`],
];
const BODIES = ['{}', '{"model":"é"}', '{"model":"日本語 🚪"}', '\ud800', ''];

/** Any frame, from short to longer than a record may be. */
function frameOf(random: () => number, id: CallId): Frame {
  const length = Math.floor(random() ** 4 * (RECORD_BYTES_MAX + 2_000));
  const bytes = Buffer.alloc(length, id & 0xff);
  switch (Math.floor(random() * 6)) {
    case 0: {
      const chosen = BODIES[Math.floor(random() * BODIES.length)]!;
      const body = chosen + 'x'.repeat(length);
      const isAscii = /^[\x00-\x7f]*$/.test(body);
      const request = {
        requestId: `req_${id}`,
        door: id % 8,
        betas: id % 5 === 0 ? 'one-2026-01-01,two' : '',
        modelIndex: id % 7,
        stream: id % 2 === 0,
        includeUsage: id % 3 === 0,
        modelStart: 3,
        modelEnd: 9,
        body,
        bodyIsAscii: isAscii,
        largeBody: undefined,
        trace: TRACES[Math.floor(random() * TRACES.length)],
        account: asAccountIndex(Math.floor(random() * 4_194_304)),
        outputTokensMax: Math.floor(random() * 2 ** 31),
        choices: 1 + Math.floor(random() * 128),
        mediaParts: Math.floor(random() * 500_000),
        repeatedTokens: Math.floor(random() * 67_000_000),
        fallbacks:
          random() < 0.5
            ? undefined
            : {
                models: Array.from({ length: 1 + Math.floor(random() * 8) }, () =>
                  Math.floor(random() * 1e6),
                ),
                maxTokens: { start: id % 1_000, end: id % 2_000 },
                maxCompletionTokens: { start: 0, end: 0 },
              },
      };
      return { kind: FRAME_CALL, id, request };
    }
    case 1: {
      const usage = {
        promptTokens: id,
        cachedTokens: 2 ** 40 + id,
        cacheWriteTokens: 2 ** 41 + id,
        cacheWrite1hTokens: 2 ** 42 + id,
        completionTokens: 3,
        reasoningTokens: 2 ** 43 + id,
        source: USAGE_SOURCES[id % USAGE_SOURCES.length]!,
      };
      const isCut = random() < 0.2;
      const kind = isCut ? FRAME_CUT : FRAME_END;
      return { kind, id, bytes: isCut ? new Uint8Array(0) : bytes, usage, upstreamWaitMs: random() * 1e6 };
    }
    case 2:
      return { kind: FRAME_FAIL, id, error: { code: 'internal_error', message: 'gone' } };
    case 3:
      return { kind: pick(random, [FRAME_CREDIT, FRAME_CANCEL, FRAME_STOP]), id };
    default:
      return { kind: FRAME_DATA, id, bytes };
  }
}

for (const [where, create] of Object.entries(CHANNELS)) {
  void t.test(`frames of any kind and length arrive as they were, in their order, ${where}`, async (t) => {
    const { ports, heard } = bed(t, create);
    const random = randomOf(SEED);
    const said: string[][] = [[], []];
    let id = 2 ** 45;
    for (let round = 0; round < ROUNDS; round += 1) {
      const frames = random() < 0.2 ? BURST_FRAMES : Math.floor(random() * 20);
      for (let at = 0; at < frames; at += 1) {
        const end = random() < 0.5 ? 0 : 1;
        const frame = frameOf(random, asCallId((id += 1)));
        said[1 - end]!.push(textOf(frame));
        ports[end]!.push(frame);
      }
      if (random() < 0.5) await new Promise((resolve) => setImmediate(resolve));
    }
    await until(() => heard.every((texts, end) => texts.length === said[end]!.length));
    for (const end of [0, 1]) {
      const wrong = heard[end]!.findIndex((text, at) => text !== said[end]![at]);
      t.equal(wrong, -1, `end ${end} heard all ${said[end]!.length} frames (seed ${SEED})`);
    }
  });

  void t.test(`posted bytes are whole until all frames of their message came, ${where}`, async (t) => {
    const length = RECORD_BYTES_MAX + 1;
    const kept: Uint8Array[] = [];
    const [one, other] = create() as [FrameChannel, FrameChannel];
    const sender = new FramePort(one, () => undefined);
    const reader = new FramePort(other, (frame, hasNext) => {
      kept.push((frame as DataFrame).bytes);
      t.equal(hasNext, kept.length < 3);
      t.same(
        kept.map((bytes) => bytes.length),
        kept.map(() => length),
      );
    });
    t.teardown(() => [sender, reader].forEach((port) => port.close()));
    const bytes = new Uint8Array(length);
    for (let count = 0; count < 3; count++) sender.push({ kind: FRAME_DATA, id: asCallId(1), bytes });
    await until(() => kept.length === 3);
    await new Promise((resolve) => setImmediate(resolve));
    const lengthIfFreed = 'transfer' in ArrayBuffer.prototype ? 0 : length;
    for (const posted of kept) t.equal(posted.length, lengthIfFreed, 'freed afterwards');
    t.equal(bytes.length, length, "and not the sender's");
  });

  void t.test(`what is pushed is copied: the sender may use its bytes again, ${where}`, async (t) => {
    const { ports, heard } = bed(t, create);
    const bytes = Buffer.from('first');
    ports[0]!.push({ kind: FRAME_DATA, id: asCallId(1), bytes });
    bytes.write('other');
    await until(() => heard[1]!.length === 1);
    t.equal(heard[1]![0], textOf({ kind: FRAME_DATA, id: asCallId(1), bytes: Buffer.from('first') }));
  });
}

void t.test(
  'within a thread nobody is called while it works, and early frames wait for their reader',
  async (t) => {
    const [one, other] = createLocalChannel();
    const frames = [1, 2, 3].map((id) => ({ kind: FRAME_CREDIT, id: asCallId(id) }) as const);
    const sender = new FramePort(one, () => undefined);
    for (const frame of frames.slice(0, 2)) sender.push(frame);
    await new Promise((resolve) => setImmediate(resolve));

    const heard: string[] = [];
    const reader = new FramePort(other, (frame) => heard.push(textOf(frame)));
    t.teardown(() => [sender, reader].forEach((port) => port.close()));
    t.same(heard, frames.slice(0, 2).map(textOf), 'those that came before the reader');
    sender.push(frames[2]!);
    one.port.postMessage([{ kind: FRAME_CANCEL, id: 4 }]);
    t.equal(heard.length, 2, 'none before the sender has returned');
    await until(() => heard.length === 4);
    reader.close();
    sender.push(frames[0]!);
    await new Promise((resolve) => setImmediate(resolve));
    await new Promise((resolve) => setImmediate(resolve));
    t.equal(heard.length, 4, 'none after the close');
  },
);

void t.test('small calls and answers are not serialised: their message is a number', async (t) => {
  const [one, other] = createFrameChannel();
  const port = new FramePort(one, () => undefined);
  const messages: unknown[] = [];
  other.port.on('message', (message) => messages.push(message));
  t.teardown(() => {
    port.close();
    other.port.close();
  });
  for (let call = 1; call <= 10; call += 1) {
    const id = asCallId(call);
    const request = {
      requestId: 'req_1',
      door: 0,
      betas: '',
      modelIndex: 0,
      stream: false,
      includeUsage: false,
      modelStart: 0,
      modelEnd: 1,
      body: '{"model":"m"}',
      bodyIsAscii: true,
      trace: TRACES[id % TRACES.length],
      account: asAccountIndex(3),
      outputTokensMax: 16,
      choices: 1,
      mediaParts: 0,
      repeatedTokens: 0,
    };
    const usage: Usage = usageWithoutParts({
      promptTokens: 1,
      completionTokens: 2,
      source: USAGE_SOURCES[0],
    });
    port.push({ kind: FRAME_CALL, id, request });
    port.push({ kind: FRAME_END, id, bytes: Buffer.alloc(500), usage, upstreamWaitMs: 0.5 });
    port.push({ kind: FRAME_CANCEL, id });
  }
  await until(() => messages.length > 0);
  t.equal(messages.length, 1, 'one for the turn');
  t.type(messages[0], 'number');
});

void t.test('a large body follows the record of its call, and is transferred', async (t) => {
  const { ports, heard } = bed(t);
  const request = {
    requestId: 'req_1',
    door: 0,
    betas: '',
    modelIndex: 2,
    stream: true,
    includeUsage: true,
    modelStart: 3,
    modelEnd: 9,
    body: '',
    bodyIsAscii: true,
    largeBody: Uint8Array.of(1, 2, 3),
    trace: undefined,
    account: asAccountIndex(3),
    outputTokensMax: 16,
    choices: 1,
    mediaParts: 0,
    repeatedTokens: 0,
  };
  const sent = [1, 2, 3].map((id) => {
    const frame = {
      kind: FRAME_CALL,
      id: asCallId(id),
      request: { ...request, largeBody: Uint8Array.of(id, 2, 3) },
    } as const;
    return { frame, text: textOf(frame) };
  });
  for (const { frame } of sent) {
    ports[0]!.push(frame);
    ports[0]!.push({ kind: FRAME_CANCEL, id: frame.id });
  }
  await until(() => heard[1]!.length === 6);
  for (const [index, { frame, text }] of sent.entries()) {
    t.equal(heard[1]![2 * index], text);
    t.equal(frame.request.largeBody.length, 0, 'its memory belongs to the other end');
  }
});
