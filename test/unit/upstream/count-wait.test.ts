/** A counter that is late or dead is replaced by an estimate. */
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import type { Usage } from '#src/protocol/usage.js';
import { COUNT_TIMEOUT, countOrEstimate } from '#src/upstream/count-wait.js';
import { FaultLog } from '#src/upstream/fault-log.js';
import type { CountRequest } from '#src/upstream/token-count.js';
import { FakeLog } from '../../fixtures/upstream-server.js';

const REQUEST: CountRequest = {
  tokenizer: 'o200k_base',
  body: '{"messages":[{"role":"user","content":"12345678"}]}',
  completionForm: 'none',
  texts: new Map(),
  completion: '',
  completionBytes: 0,
  relayedBytes: 0,
};
const COUNTED: Usage = { promptTokens: 1, cachedTokens: 0, completionTokens: 2, source: 'counted' };
const ESTIMATED: Usage = { promptTokens: 9, cachedTokens: 0, completionTokens: 0, source: 'estimated' };

void t.test('the count where there is one, else an estimate and a line in the log', async (t) => {
  const log = new FakeLog();
  const faults = new FaultLog(log, new SystemClock());
  t.strictSame(await countOrEstimate(() => Promise.resolve(COUNTED), REQUEST, 60_000, faults), COUNTED);
  t.equal(log.lines.length, 0);
  const dead = (): Promise<Usage> => Promise.reject(new Error('dead'));
  t.strictSame(await countOrEstimate(dead, REQUEST, 60_000, faults), ESTIMATED);
  t.match(log.lines[0]?.fields.cause, /dead/);

  const other = new FakeLog();
  const never = (): Promise<Usage> => new Promise(() => undefined);
  t.strictSame(await countOrEstimate(never, REQUEST, 10, new FaultLog(other, new SystemClock())), ESTIMATED);
  t.match(other.lines[0]?.fields.cause, new RegExp(COUNT_TIMEOUT));
});
