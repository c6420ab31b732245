/** What the recorder of the history logs while the supervisor is late. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { HistoryRecorder } from '#src/gateway/history-recorder.js';
import type { HistoryRows } from '#src/store/history-rows.js';
import type { StatusDocument } from '#src/telemetry/status-document.js';
import { ListLog } from '../store/support.js';

const NO_ROWS = { read: () => [], readAccounts: () => [], put: () => undefined } as unknown as HistoryRows;
const STATUS = {
  outcomes: {},
  tokens: { prompt: 0, cached: 0, completion: 0 },
  cost: '0.00',
  duration_ms: { bounds: [10], counts: [0, 0] },
  first_token_ms: { bounds: [10], counts: [0, 0] },
  calls_in_flight: 0,
  refusals: {},
  models: [],
} as unknown as StatusDocument;

/** Takes the place of the thread's timers: `tick` calls what waits for one. */
function takeTimers(t: Test): { readonly tick: () => Promise<void> } {
  let waiting: (() => void) | undefined;
  t.intercept(globalThis, 'setTimeout', {
    value: (act: () => void) => {
      waiting = act;
      return { unref: () => undefined };
    },
  });
  return {
    tick: async () => {
      waiting?.();
      await nextTurn();
    },
  };
}

const BEGUN = 'error the history was not recorded, or not shown';
const OVER = 'warn the history is recorded again';

for (const late of ['status', 'accounts'] as const)
  void t.test(`${late}: an episode of late replies is logged as it begins and as it ends`, async (t) => {
    const { tick } = takeTimers(t);
    const log = new ListLog();
    let isLate = false;
    let tries = 0;
    const read = <Reply>(name: string, reply: Reply): Promise<Reply> => {
      if (name !== late) return Promise.resolve(reply);
      tries += 1;
      return isLate ? Promise.reject(new Error('the supervisor is late')) : Promise.resolve(reply);
    };
    const recorder = new HistoryRecorder({
      status: () => read('status', STATUS),
      accountReports: () => read('accounts', []),
      rows: NO_ROWS,
      clock: new SystemClock(),
      log,
    });
    t.teardown(() => recorder.close());
    await nextTurn();
    t.same(log.lines, [], 'nothing to tell');
    for (const episode of [1, 2]) {
      isLate = true;
      for (let turn = 0; turn < 5; turn++) await tick();
      t.same(log.lines.splice(0), [BEGUN], `episode ${episode} begins`);
      t.match(log.fields.splice(0), [{ error: 'Error: the supervisor is late' }]);
      isLate = false;
      for (let turn = 0; turn < 3; turn++) await tick();
      t.same(log.lines.splice(0), [OVER], `episode ${episode} is over`);
      log.fields.length = 0;
    }
    t.equal(tries, 1 + 2 * 8, 'each tick tries again');
  });
