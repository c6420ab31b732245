/** Plain calls go from the ring to a block without becoming records, and are read as the records they are. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { SEGMENT_START } from '#src/call-log/call-block.js';
import { CallReader } from '#src/call-log/call-reader.js';
import { CallWriter } from '#src/call-log/call-writer.js';
import { SystemClock } from '#src/core/clock.js';
import { DOOR_NAMES } from '#src/core/door-names.js';
import { quotaCode } from '#src/core/quotas-left.js';
import { QUOTA_NAMES, QUOTA_SCOPES } from '#src/core/quotas.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { callRecordOf, type CallRecordNames } from '#src/gateway/call-lines.js';
import { slotNamesOf } from '#src/gateway/gateway-logs.js';
import { USAGE_SOURCES } from '#src/core/token-counts.js';
import { requestIdOf } from '#src/telemetry/call-record.js';
import { createCallRing, type EndedCall } from '#src/telemetry/call-ring-layout.js';
import { CallRingReader } from '#src/telemetry/call-ring-reader.js';
import { CallRingWriter } from '#src/telemetry/call-ring-writer.js';
import { createLogSwitch, LogSwitch } from '#src/telemetry/log-switch.js';
import { appendPlain } from '../../support/plain-calls.js';
import { randomOf } from '../../support/random.js';

const RETENTION = { keepHours: 72, keepBytes: 1024 ** 3, processes: 1 };
const STORED = { log: false, store: true };
const BOTH = { log: true, store: true };
const quiet = {
  error: () => undefined,
  warn: () => undefined,
  info: () => undefined,
  record: () => undefined,
};

function bed(folder: string) {
  const life = { generation: 0 };
  const names: CallRecordNames = {
    ids: {
      accountIdOf: (account) => (account === 7 ? null : `acct_${account}`),
      keyIdOf: (key) => `key_${key}`,
      forgetOld: () => undefined,
    },
    requestPrefixOf: (listener) => `req_run${life.generation}-${listener}-`,
    modelIdOf: (index) => `model-${index}`,
    upstreamNameOf: (slot) => (slot === 5 ? undefined : `upstream-${slot}.${life.generation}`),
    groupNameOf: (group) => `group-${group}`,
  };
  const ring = createCallRing();
  const writer = new CallWriter({
    folder,
    retention: RETENTION,
    names: slotNamesOf(names),
    clock: new SystemClock(),
    log: quiet,
  });
  return {
    names,
    life,
    writer,
    toRing: new CallRingWriter(ring, new LogSwitch(createLogSwitch())),
    fromRing: new CallRingReader(ring),
  };
}

function othersOf(whole: (below: number) => number, count: number): number[] {
  return Array.from({ length: count }, () => {
    const code = quotaCode(whole(QUOTA_SCOPES.length), whole(QUOTA_NAMES.length));
    return [code, whole(6), [whole(2 ** 53), whole(1_000), 0][whole(3)]!];
  }).flat();
}

function plainCall(random: () => number, request: number): EndedCall {
  const whole = (below: number): number => Math.floor(random() * below);
  const model = whole(3);
  const answered = random() < 0.8 ? model : whole(3);
  const upstream = whole(6);
  const stream = random() < 0.5;
  return {
    request,
    door: whole(DOOR_NAMES.length),
    endedMs: asWallMs(1_763_950_000_000 + request),
    outcome: 'ok',
    begun: random() < 0.5,
    stream,
    cache: random() < 0.2 ? 'miss' : undefined,
    account: asAccountIndex(whole(9)),
    key: asKeyIndex(whole(20)),
    model,
    upstream,
    usage: {
      promptTokens: whole(2 ** 31 - 1),
      cachedTokens: whole(200),
      cacheWriteTokens: whole(2 ** 31),
      cacheWrite1hTokens: whole(3),
      reasoningTokens: whole(500),
      completionTokens: whole(100_000),
      answered,
      source: whole(USAGE_SOURCES.length),
      charged: asPicoUnits(BigInt(whole(2 ** 50)) * 1_000n),
    },
    firstTokenMs: stream ? whole(900_000) / 1_000 : undefined,
    durationMs: whole(2 ** 31) / 1_000,
    queuedMs: whole(2 ** 31),
    admittedMs: whole(9_000) / 1_000,
    quotas: {
      minute: random() < 0.8 ? whole(1_000_000) : undefined,
      inFlight: whole(20_000),
      perDay: whole(2 ** 31),
      balance: [0, whole(2 ** 53), 2 ** 53, whole(9e18)][whole(4)]!,
      others: random() < 0.5 ? undefined : othersOf(whole, whole(65)),
    },
    attempts: [
      {
        upstream,
        model: answered,
        status: 200,
        code: undefined,
        startMs: whole(9_000) / 1_000,
        durationMs: whole(900_000) / 1_000,
        error: '',
      },
    ],
    error: '',
  };
}

void t.test('plain calls are read as the records that they are', async (t) => {
  const folder = t.testdir();
  const { names, life, writer, toRing, fromRing } = bed(folder);
  const random = randomOf(1);
  const wanted = [];
  let visited = 0;
  for (let request = 0, round = 0; round < 40; round++) {
    // A listener died, or a reload gave slots to others: within one block, too.
    life.generation = Math.floor(round / 3);
    const listener = round % 2;
    for (let call = 0; call < 50; call++) {
      const ended = plainCall(random, request++);
      appendPlain(toRing, ended);
      const call = callRecordOf(names, listener, ended);
      // As many are kept.
      wanted.push({ ...call, quotas: call.quotas.slice(0, 64) });
    }
    writer.forgetSlots();
    fromRing.drain(
      () => visited++,
      (call) => writer.appendPlain(call, listener),
    );
  }
  writer.close();
  t.equal(visited, 0, 'all were plain');
  const reader = new CallReader(folder);
  for (const call of wanted) {
    const found = await reader.find(requestIdOf(call.requestPrefix, call.request));
    if (!t.same(found, call)) break;
  }
  // A page takes a bounded time, so on a busy machine there may be several.
  let count = 0;
  for (let cursor: string | null | undefined; cursor !== null;) {
    const page = await reader.page({ account: 'acct_3', failed: false }, 1_000, cursor);
    count += page!.calls.length;
    cursor = page!.next;
  }
  t.equal(count, wanted.filter(({ account }) => account === 'acct_3').length);
});

void t.test('blocks of before there were plain calls are read', async (t) => {
  const folder = t.testdir();
  const { names, writer } = bed(folder);
  const random = randomOf(3);
  const calls = Array.from({ length: 20 }, (_, request) =>
    callRecordOf(names, 0, plainCall(random, request)),
  );
  for (const call of calls) writer.append(call);
  writer.flush();
  const [segment] = readdirSync(folder).map((name) => join(folder, name));
  const bytes = readFileSync(segment!);
  const magic = bytes.indexOf('TGC2');
  t.equal(magic, SEGMENT_START.length, 'the block of today');
  bytes.write('TGC1', magic);
  writeFileSync(segment!, bytes);
  const reader = new CallReader(folder);
  for (const call of calls) {
    const found = await reader.find(requestIdOf(call.requestPrefix, call.request));
    t.same(found, { ...call, quotas: call.quotas.slice(0, 64) });
  }
  writer.close();
});

void t.test('without a place for plain calls they become the records that they are', (t) => {
  const { toRing, fromRing } = bed(t.testdir());
  const random = randomOf(2);
  const calls = Array.from({ length: 200 }, (_, request) => plainCall(random, request));
  const visited: EndedCall[] = [];
  for (const call of calls) {
    appendPlain(toRing, call);
    toRing.append(call, BOTH);
  }
  fromRing.drain((call, wanted) => {
    t.same(wanted, visited.length % 2 === 0 ? STORED : BOTH);
    visited.push(call);
  });
  const seen = calls.map(({ quotas, ...call }) => ({
    ...call,
    quotas: { ...quotas, others: quotas!.others?.length === 0 ? undefined : quotas!.others },
  }));
  t.same(
    visited,
    seen.flatMap((call) => [call, call]),
  );
  t.end();
});
