/**
 * The logs of calls: when lines of the usage log and calls of the call log are written, and that each gateway
 * of a group has files of its own.
 */
import t from 'tap';
import { callReaderOf } from '#src/call-log/call-reader.js';
import { SystemClock } from '#src/core/clock.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import type { CallRecordNames } from '#src/gateway/call-lines.js';
import { UsageLog } from '#src/gateway/usage-log.js';
import { GatewayLogs, withOwnLogs } from '#src/gateway/gateway-logs.js';
import type { JournalRecord } from '#src/ledger/journal-layout.js';
import { CallRingWriter } from '#src/telemetry/call-ring-writer.js';
import { createCallRing, type EndedCall } from '#src/telemetry/call-ring-layout.js';
import { createContentsBudget } from '#src/telemetry/contents-budget.js';
import { createLogSwitch, LogSwitch } from '#src/telemetry/log-switch.js';
import { SOUND_YAML, worldOf } from '../config/support.js';
import { ListLog } from '../store/support.js';

void t.test('the first writes where the settings say, the others beside it', (t) => {
  const { settings } = worldOf(t, { 'tollgate.yaml': SOUND_YAML }).load();
  const log = { rotate_bytes: 1_000, keep: 2 };
  const given = {
    ...settings,
    usage_log: { path: '/logs/usage', ...log },
    access_log: { ...settings.access_log, path: '/logs/access' },
  };
  const pathsOf = (slot: number) => {
    const own = withOwnLogs(given, slot);
    return [own.usage_log?.path, own.access_log.path];
  };
  t.same(pathsOf(0), ['/logs/usage', '/logs/access']);
  t.same(pathsOf(3), ['/logs/usage.p3', '/logs/access.p3']);
  t.same(withOwnLogs(settings, 3), settings, 'where none are written');
  t.end();
});

const RECORD: JournalRecord = {
  request: 35,
  endedMs: asWallMs(Date.UTC(2025, 0, 31, 12)),
  promptTokens: 9,
  cachedTokens: 4,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  reasoningTokens: 0,
  completionTokens: 12,
  charged: asPicoUnits(8_550_000n),
  uncovered: asPicoUnits(0n),
  account: asAccountIndex(2),
  key: asKeyIndex(7),
  model: 0,
  requested: 0,
  outcome: 'served',
  source: 1,
  durationMs: 640,
};
const ROW = { keyId: 'key_a', modelId: 'small' };

function world() {
  const written: number[] = [];
  const names = {
    ids: { accountIdOf: () => null, keyIdOf: () => null },
    modelIdOf: () => 'small',
  };
  const output = {
    append: (lines: readonly string[]) => void written.push(lines.length),
    close: () => undefined,
  };
  return { log: new UsageLog(names, output), written };
}

void t.test('lines of the usage log wait for the end of the flush', (t) => {
  const { log, written } = world();
  log.add('req_1-', RECORD, ROW);
  t.same(written, [], 'not before the flush has ended');
  log.write();
  log.write();
  t.same(written, [1]);
  t.end();
});

void t.test('many lines do not wait for the flush', (t) => {
  const { log, written } = world();
  for (let calls = 0; calls < 20_001; calls++) log.add('req_0-', RECORD, ROW);
  t.same(written, [20_000]);
  log.write();
  t.same(written, [20_000, 1]);
  t.end();
});

const CALL: EndedCall = {
  request: 1,
  door: 0,
  endedMs: asWallMs(Date.UTC(2025, 0, 31, 12)),
  outcome: 'invalid_api_key',
  begun: false,
  stream: false,
  cache: undefined,
  account: undefined,
  key: undefined,
  model: undefined,
  upstream: undefined,
  usage: undefined,
  firstTokenMs: undefined,
  durationMs: 0.25,
  queuedMs: 0,
  admittedMs: undefined,
  quotas: undefined,
  attempts: [],
  error: 'The key is not known.',
};

void t.test('a call of an idle process is written as soon as it is taken out of its ring', async (t) => {
  const { settings } = worldOf(t, { 'tollgate.yaml': SOUND_YAML }).load();
  const data = t.testdir();
  const control = createLogSwitch();
  const ring = createCallRing();
  let forgotten = 0;
  const names = { ids: { forgetOld: () => (forgotten += 1) }, requestPrefixOf: () => 'req_idle-' };
  const logs = await new Promise<GatewayLogs>((resolve) => {
    const begun = new GatewayLogs({
      settings: { ...settings, data },
      logSwitch: control,
      rings: [ring],
      contentsBudgets: [createContentsBudget()],
      names: names as unknown as CallRecordNames,
      secrets: () => [],
      // It gets the call within the drain. What follows the drain at once is done by the next turn.
      upstreamErrors: { append: () => void setImmediate(() => resolve(begun)) },
      clock: new SystemClock(),
      log: new ListLog(),
    });
    new CallRingWriter(ring, new LogSwitch(control)).append(CALL, { log: false, store: true });
  });
  t.teardown(() => logs.close());
  t.ok(logs.growingCalls, 'without another second for its block');
  t.ok(await callReaderOf(data).find('req_idle-1'));
  t.ok(forgotten > 0, 'each drain forgets ids whose slots may be those of other keys by now');
});
