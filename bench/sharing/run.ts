/**
 * `npm run bench:sharing -- [--hosts N] [--accounts N] [--rate N] [--seconds N] [--seed N] [--limit N]`:
 * prints what the simulation finds. `--limit`: requests a minute of every account, in place of what its rank
 * gives it.
 */
import { parseArgs } from 'node:util';
import { simulate } from './simulation.js';

const { values } = parseArgs({
  options: {
    hosts: { type: 'string', default: '1000' },
    accounts: { type: 'string', default: '1000000' },
    rate: { type: 'string', default: '5000' },
    seconds: { type: 'string', default: '90' },
    seed: { type: 'string', default: '1' },
    limit: { type: 'string' },
  },
});
const options = {
  hosts: Number(values.hosts),
  accounts: Number(values.accounts),
  requestsPerSecond: Number(values.rate),
  seconds: Number(values.seconds),
  seed: Number(values.seed),
  requestsPerMinute: values.limit === undefined ? undefined : Number(values.limit),
};
const beganMs = performance.now();
const result = await simulate(options);
console.log(
  JSON.stringify(
    { ...options, ...result, tookSeconds: Math.round((performance.now() - beganMs) / 1_000) },
    null,
    2,
  ),
);
