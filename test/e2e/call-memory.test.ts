/**
 * What stays in memory of each call: a leak of 1 KB a call is twice what is allowed here. soak.test.ts and
 * hostile/memory.test.ts make too few calls to see one.
 */
import t from 'tap';
import { rssBytes } from '../../bench/support/proc.js';
import { startBed } from '../support/bed.js';
import { TEST_MODEL } from '../support/gateway.js';
import { keepAliveAgent } from '../support/http.js';

const CONNECTIONS = 32;
/** Until V8's heaps have the size that they keep: after 20,000 calls they grew by 17 MiB more. */
const WARM_CALLS = 40_000;
const CALLS = 60_000;
/** 500 bytes a call, 29 MiB. In two runs it was -8 to 6 MiB, and 83 MiB with 1 KB kept of each call. */
const GROWTH_BYTES_MAX = CALLS * 500;
const MIB = 1024 * 1024;

void t.test('of many calls no more stays in memory than of few', { timeout: 600_000 }, async (t) => {
  const { gateway } = await startBed(t, { listen: { listeners: 1 }, workers: 1 });
  const { key } = await gateway.admin.customer({ credit: '100000.00' });
  const agent = keepAliveAgent(CONNECTIONS);
  t.teardown(() => agent.destroy());
  const body = { model: TEST_MODEL, messages: [{ role: 'user', content: 'Hello' }] };
  const statuses = new Set<number>();
  const bytesAfter = async (calls: number): Promise<number> => {
    let left = calls;
    const caller = async (): Promise<void> => {
      while (left-- > 0) statuses.add((await gateway.request(key, { agent, body })).status);
    };
    await Promise.all(Array.from({ length: CONNECTIONS }, caller));
    return rssBytes(gateway.pid());
  };
  const warmBytes = await bytesAfter(WARM_CALLS);
  const grownBytes = (await bytesAfter(CALLS)) - warmBytes;
  t.same([...statuses], [200]);
  const told = `${(grownBytes / MIB).toFixed(1)} MiB more than ${(warmBytes / MIB).toFixed(1)}`;
  t.ok(grownBytes < GROWTH_BYTES_MAX, `${CALLS} calls: ${told}`);
  t.equal(await gateway.stop(), 0);
});
