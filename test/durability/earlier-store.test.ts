/**
 * A store that an earlier Tollgate has written is audited, opened and served. `stores/format-3.lmdb.gz` is
 * the file of build 9ea85a0 of 2026-11-22, before keys and accounts had quotas: two accounts, three keys of
 * which one is disabled, a second payment, four calls and a stored response.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import t from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import { storePath } from '#src/store/store-file.js';
import { runCommand } from '../support/command.js';
import { startGateway, temporaryFolder, TEST_MODEL, testSettings } from '../support/gateway.js';
import { startMock } from '../support/mock.js';

const STORE = new URL('../../../test/fixtures/stores/format-3.lmdb.gz', import.meta.url);
/** Of acme. Made for this file, so it opens nothing elsewhere. */
const LAPTOP = 'sk-onU5sdFFV9ccVBXNiclBCdp3xn9lyd8H32GEhm7uU8A';
const ACME = 'acct_j7nggjqj75e5p30f';
const PLANS = [
  { id: 'free', requests_per_minute: 60, calls_per_day: 1_000 },
  { id: 'paid', requests_per_minute: 600, calls_per_day: 100_000 },
];

void t.test('a store of format 3', async (t) => {
  const folder = temporaryFolder(t);
  const data = join(folder, 'data');
  mkdirSync(data, { mode: 0o700 });
  writeFileSync(storePath(data), gunzipSync(readFileSync(STORE)), { mode: 0o600 });
  const { url } = await startMock(t, ['--prompt-tokens', '10', '--chunks', '10']);
  const audit = async (when: string): Promise<void> => {
    const args = ['audit', '--config', join(folder, 'tollgate.yaml')];
    const { code, stdout, stderr } = await runCommand(folder, args, { TOLLGATE_DATA: data });
    t.equal(code, 0, `${when}: ${stdout}${stderr}`);
  };
  const config = testSettings(url, { plans: PLANS });
  writeFileSync(join(folder, 'tollgate.yaml'), JSON.stringify(config));
  await audit('before a start');

  const gateway = await startGateway(t, { folder, config });
  const { admin } = gateway;
  t.match(await admin.account(ACME), {
    name: 'acme',
    plan: 'free',
    active: true,
    credited: '11.25',
    spent: '0.0002418',
    balance: '11.2497582',
    held: '0.00',
    uncovered: '0.00',
  });
  const rows = async (path: string) => ((await admin.send('GET', path)).json() as { data: unknown[] }).data;
  t.match(await rows(`/admin/v1/accounts/acme/credits`), [
    { amount: '10.00' },
    { amount: '1.25', note: 'second payment' },
  ]);
  t.match(await rows('/admin/v1/keys?account=acme'), [
    { name: 'laptop', active: true },
    { name: 'spare', active: false },
  ]);
  t.match(await rows('/admin/v1/usage?account=acme&from=2026-11-30&to=2026-12-01'), [
    { calls: 4, failed_calls: 0, prompt_tokens: 12, completion_tokens: 400, cost: '0.0002418' },
  ]);

  const answer = await gateway.chat(LAPTOP, 'Hello');
  t.equal(answer.status, 200);
  t.equal((answer.json() as { model: string }).model, TEST_MODEL);
  t.equal(await gateway.stop(), 0);
  await audit('after a call');
  const again = await startGateway(t, { folder, config });
  const { spent, balance } = await again.admin.account(ACME);
  t.not(spent, '0.0002418', 'the call was charged');
  t.equal(picoUnitsOf(spent)! + picoUnitsOf(balance)!, picoUnitsOf('11.25'));
  t.equal(await again.stop(), 0);
});
