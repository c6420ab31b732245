/** Which changes of an upstream's settings make another upstream of it, that begins with a closed breaker. */
import t from 'tap';
import { isSameUpstream, type UpstreamTarget } from '#src/upstream/target.js';
import { targetOf } from '../../fixtures/upstream-server.js';

const TARGET = targetOf('http://127.0.0.1:1');

void t.test('another service, other credentials or another bound of the breaker', (t) => {
  const others: readonly Partial<UpstreamTarget>[] = [
    { origin: 'http://127.0.0.1:2' },
    { path: '/other' },
    { key: 'other' },
    { headers: { 'x-other': '1' } },
    { ca: 'other' },
    { provider: { name: 'bedrock' } as never },
    { doors: { messages: '/v1/other' } },
    { breakerFailuresMax: TARGET.breakerFailuresMax + 1 },
  ];
  for (const other of others)
    t.notOk(isSameUpstream(TARGET, { ...TARGET, ...other }), Object.keys(other).join());
  t.end();
});

void t.test('no other change', (t) => {
  const same: readonly Partial<UpstreamTarget>[] = [
    {},
    { name: 'other', slot: TARGET.slot + 1, model: 'other' },
    { memberNames: { max_tokens: 'other' }, thoughtsBack: true },
    { connectTimeoutMs: 1, firstByteTimeoutMs: 1, idleTimeoutMs: 1, totalTimeoutMs: 1, connectionsMax: 1 },
    { weight: TARGET.weight + 1, priority: TARGET.priority + 1, parkMsMax: 1 },
    { whenClientLeaves: 'finish' },
    { quotas: { scope: 0 as never, limits: {} as never, queueMs: 1 } },
    { headers: { ...TARGET.headers }, doors: { ...TARGET.doors } },
  ];
  for (const other of same) t.ok(isSameUpstream(TARGET, { ...TARGET, ...other }), Object.keys(other).join());
  t.end();
});
