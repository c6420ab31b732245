/**
 * The usage log of a running gateway tells every call that was admitted, agrees with the books, and the audit
 * holds beside the gateway and after it.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { startBed } from '../support/bed.js';
import { eventually, TEST_MODEL } from '../support/gateway.js';
import { steered } from '../support/mock.js';

interface Line {
  readonly time: string;
  readonly request_id: string;
  readonly account: string;
  readonly key: string;
  readonly model: string;
  readonly outcome: string;
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly completion_tokens: number;
  readonly source: string | null;
  readonly cost: string;
  readonly uncovered: string;
  readonly duration_ms: number;
}

const AUDIT_TIMEOUT_MS = 120_000;

function audit(dataFolder: string): { status: number | null; spent: string; output: string } {
  const main = new URL(import.meta.resolve('#src/cli/main.js')).pathname;
  const end = spawnSync(process.execPath, [main, 'audit', '--data', dataFolder, '--json'], {
    cwd: dataFolder,
    env: { ...process.env, TOLLGATE_CONFIG: '', TOLLGATE_DATA: '' },
    encoding: 'utf8',
    timeout: AUDIT_TIMEOUT_MS,
  });
  const { spent } = JSON.parse(end.stdout) as { spent: string };
  return { status: end.status, spent, output: end.stdout };
}

void t.test('every call is a line, and the lines are the bill', async (t) => {
  const { gateway } = await startBed(t, { usage_log: { path: 'usage.ndjson' }, flush_interval_ms: 50 });
  const path = join(gateway.folder, 'usage.ndjson');
  const customer = await gateway.admin.customer({ credit: '10.00' });
  const linesNow = (): Line[] =>
    readFileSync(path, 'utf8')
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Line);

  const answers = [
    await gateway.chat(customer.key, steered('prompt_tokens=7&cached_tokens=3&completion_tokens=9')),
    await gateway.chat(customer.key, steered('prompt_tokens=1&completion_tokens=2'), { stream: true }),
    await gateway.chat(customer.key, steered('status=500')),
    await gateway.chat(customer.key, 'hello', { model: 'unknown' }),
  ];
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 502, 400],
  );
  const lines = await eventually('three lines', () => (linesNow().length >= 3 ? linesNow() : undefined));
  t.equal(lines.length, 3, 'the call that was never admitted is none');
  t.same(
    lines.map(({ request_id: id }) => id),
    answers.slice(0, 3).map(({ headers }) => headers['x-request-id']),
  );
  const common = { account: customer.accountId, model: TEST_MODEL, uncovered: '0.00' };
  const [whole, streamed, failed] = lines;
  t.match(whole, {
    ...common,
    outcome: 'served',
    prompt_tokens: 7,
    cached_tokens: 3,
    completion_tokens: 9,
    source: 'reported',
  });
  t.match(streamed, { ...common, outcome: 'served', prompt_tokens: 1, completion_tokens: 2 });
  t.match(failed, { ...common, outcome: 'provider_unavailable', source: null, cost: '0.00' });
  for (const line of lines) {
    t.match(line.key, /^key_/);
    t.ok(Math.abs(Date.parse(line.time) - Date.now()) < 60_000, line.time);
    t.ok(line.duration_ms >= 0 && line.duration_ms < 60_000);
  }
  t.equal(statSync(path).mode & 0o777, 0o600);

  const bill = decimalOf(lines.reduce((sum, { cost }) => sum + picoUnitsOf(cost)!, 0n));
  t.equal((await gateway.admin.account(customer.accountId)).spent, bill);
  const beside = audit(gateway.dataFolder);
  t.same([beside.status, beside.spent], [0, bill], beside.output);

  const last = await gateway.chat(customer.key, steered('prompt_tokens=5&completion_tokens=5'));
  t.equal(await gateway.stop(), 0);
  t.equal(linesNow().at(-1)?.request_id, last.headers['x-request-id'], 'the last call before the end too');
  const after = audit(gateway.dataFolder);
  const total = decimalOf(linesNow().reduce((sum, { cost }) => sum + picoUnitsOf(cost)!, 0n));
  t.same([after.status, after.spent], [0, total], after.output);
});
