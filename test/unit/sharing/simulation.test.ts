/** The simulation at smoke size: see bench/sharing. */
import t from 'tap';
import { simulate } from '../../../bench/sharing/simulation.js';

void t.test('twenty hosts, two thousand accounts', async (t) => {
  const result = await simulate({ hosts: 20, accounts: 2_000, requestsPerSecond: 60, seconds: 70, seed: 3 });
  t.comment(result);
  t.equal(result.overshootMax, 0, 'no limit is passed');
  t.ok(result.admittedShare >= 0.95, `${result.admittedShare} of what one limiter admits`);
  t.ok(result.requests > 4_000);
  t.ok(result.asksPerRequest < 3);
});
