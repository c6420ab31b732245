/** Which calls count as missing: in the call log, in what is exported, or nowhere. */
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import type { CallRecordNames } from '#src/gateway/call-lines.js';
import { GatewayLogs } from '#src/gateway/gateway-logs.js';
import { CallOutbox } from '#src/gateway/traces.js';
import { CallRingWriter } from '#src/telemetry/call-ring-writer.js';
import { createCallRing, DROPPED, DROPPED_LOG_ONLY } from '#src/telemetry/call-ring-layout.js';
import { createContentsBudget } from '#src/telemetry/contents-budget.js';
import { createLogSwitch, LogSwitch } from '#src/telemetry/log-switch.js';
import { createExportBudget, ExportBudget } from '#src/telemetry/export-budget.js';
import { SOUND_YAML, worldOf } from '../config/support.js';
import { ListLog } from '../store/support.js';

const FLOOD = 5_000;
const STORED_A_SECOND = 1_000;
const RING_FULL = 7;
/** Records that only the access log wanted: neither the call log nor the export lacks them. */
const LOG_ONLY = 3;

for (const [keeps, exports] of [
  [true, true],
  [true, false],
  [false, true],
  [false, false],
] as const) {
  void t.test(`call log ${keeps}, export ${exports}`, (t) => {
    const { settings } = worldOf(t, { 'tollgate.yaml': SOUND_YAML }).load();
    const control = createLogSwitch();
    const ring = createCallRing();
    const budget = createExportBudget();
    const log = new ListLog();
    const logs = new GatewayLogs({
      settings: {
        ...settings,
        data: t.testdir(),
        call_log: { ...settings.call_log, enabled: keeps },
        access_log: { ...settings.access_log, enabled: false },
      },
      logSwitch: control,
      rings: [ring],
      contentsBudgets: [createContentsBudget()],
      names: { ids: { forgetOld: () => undefined } } as unknown as CallRecordNames,
      secrets: () => [],
      upstreamErrors: { append: () => undefined },
      clock: new SystemClock(),
      log,
    });
    if (exports) logs.exportTo(new CallOutbox(budget, () => undefined));
    const writer = new CallRingWriter(ring, new LogSwitch(control));
    for (let calls = 0; calls < FLOOD; calls++) writer.chooseStored('rejected', 1_000);
    Atomics.add(new Int32Array(ring.dropped), DROPPED, RING_FULL);
    Atomics.add(new Int32Array(ring.dropped), DROPPED_LOG_ONLY, LOG_ONLY);
    logs.drain();
    const missing = FLOOD - STORED_A_SECOND;
    t.equal(logs.dropped.rejected, keeps ? missing : 0);
    t.equal(logs.dropped.records, keeps ? RING_FULL : 0);
    t.equal(new ExportBudget(budget).counts().dropped, exports ? missing + RING_FULL : 0);
    Atomics.add(new Int32Array(ring.dropped), DROPPED, 1);
    logs.drain();
    logs.close();
    t.same(
      log.fields,
      [{ dropped: RING_FULL + LOG_ONLY }, { dropped: 1 }],
      'the last ones are told at the end',
    );
    t.end();
  });
}
