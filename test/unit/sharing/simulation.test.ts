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

void t.test('two hosts after an account turned from far to near its limit', async (t) => {
  // It rested, then wants as much as it may: its permits are first valid for long, then for a second.
  const turn = { accounts: 1, requestsPerMinute: 300, requestsPerSecond: 5, requestsPerSecondBefore: 0.25 };
  for (const [load, firstShare, least] of [
    ['even', 0.5, 0.98],
    ['uneven', 0.9, 0.98],
  ] as const) {
    const options = { hosts: 2, firstShare, measuredFromSeconds: 120, seconds: 300 };
    const results = [];
    for (const seed of [1, 2, 3]) results.push(await simulate({ ...turn, ...options, seed }));
    const shares = results.map(({ admittedShare }) => admittedShare);
    t.comment(load, shares);
    t.equal(Math.max(...results.map(({ overshootMax }) => overshootMax)), 0, 'the limit is not passed');
    t.ok(
      shares.reduce((sum, share) => sum + share, 0) / shares.length >= least,
      `${load}: ${shares.join(' ')}`,
    );
  }
});
