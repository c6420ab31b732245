import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { commandFolder, makeBooks, SETTINGS } from './support.js';

void t.test('all quotas of plans, and those of single models', async (t) => {
  const { folder, run } = commandFolder(t);
  const limited =
    '  - { id: team, requests_per_minute: 60, calls_per_day: 1000, models: ["*"], tokens_per_month: 2000000, ' +
    'spend_per_day: "5.00", models_limits: [{ model: small, requests_per_minute: 10, spend_per_month: "1" }] }\n';
  writeFileSync(join(folder, 'tollgate.yaml'), SETTINGS + limited);
  await makeBooks(folder);
  const rules = { requests_per_minute: 10, spend_per_month: '1.00' };
  t.match((await run('plans', 'list', '--json')).json(), {
    data: [
      { id: 'free', tokens_per_month: null, spend_per_day: null, models_limits: [] },
      { id: 'paid' },
      {
        id: 'team',
        tokens_per_minute: null,
        tokens_per_month: 2_000_000,
        spend_per_day: '5.00',
        models_limits: [{ model: 'small', limits: rules }],
      },
    ],
  });
  const table = (await run('plans', 'list')).stdout.split('\n');
  t.match(table[0], / QUOTAS +MODELS$/);
  t.match(table[1], /^free +60 +1000 .* – +small$/);
  t.match(
    table[3],
    / 2,000,000 tokens per month, 5\.00 spend per day, small: 10 requests per minute and 1\.00 spend per month {2}small$/,
  );
});

void t.test('prices of long prompts', async (t) => {
  const { folder, run } = commandFolder(t);
  const long = 'price: { input: "1", output: "2", long: [{ above: 200000, input: "2", output: "3" }] }';
  const settings = SETTINGS.replace(/price: \{[^}]*\}/, long);
  t.ok(settings.includes(long));
  writeFileSync(join(folder, 'tollgate.yaml'), settings);
  await makeBooks(folder);
  t.match((await run('models', 'list', '--json')).json(), {
    data: [{ price: { input: '1.00', long: [{ above: 200_000, input: '2.00', reasoning: '3.00' }] } }],
  });
  const table = (await run('models', 'list')).stdout.split('\n');
  t.match(table[0], / LONG PROMPTS +MAX OUTPUT TOKENS/);
  t.match(table[1], / 2\.00 \/ 3\.00 above 200,000 /);
});
