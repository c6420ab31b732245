/** Calls and usage of a day as lines, beside a gateway and on the books alone. */
import { join } from 'node:path';
import t from 'tap';
import type { CallsPageView, CallView } from '#src/admin/call-routes.js';
import type { UsageRowView } from '#src/admin/views.js';
import { CallWriter } from '#src/call-log/call-writer.js';
import { CALLS_FOLDER } from '#src/call-log/segment-files.js';
import { SystemClock } from '#src/core/clock.js';
import { asWallMs } from '#src/core/units.js';
import { requestIdOf } from '#src/telemetry/call-record.js';
import { runCommand } from '../support/command.js';
import { startGateway, TEST_MODEL, testSettings } from '../support/gateway.js';
import { randomCall } from '../support/stored-calls.js';
import { randomOf } from '../support/random.js';

const PAST_DAY = '2025-11-24';
const PAST_MS = Date.parse(`${PAST_DAY}T12:00:00Z`);
/** More than a page has. */
const PAST_CALLS = 2_300;

const linesOf = (text: string): unknown[] =>
  text
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as unknown);

void t.test('calls and usage of a day', async (t) => {
  const gateway = await startGateway(t, { config: testSettings('echo:') });
  const run = (...args: string[]) => runCommand(gateway.folder, args);
  const { key } = await gateway.admin.customer();
  for (let call = 0; call < 3; call++) t.equal((await gateway.chat(key, 'Good day')).status, 200);

  const random = randomOf(5);
  const kinds = { accounts: 3, models: 2, upstreams: 2 };
  const writer = new CallWriter({
    folder: join(gateway.folder, 'data', CALLS_FOLDER),
    retention: { keepHours: 1_000_000, keepBytes: 1e9, processes: 1 },
    clock: new SystemClock(),
    log: { error: () => undefined, warn: () => undefined, info: () => undefined, record: () => undefined },
  });
  const past = Array.from({ length: PAST_CALLS }, (_, number) => {
    const call = randomCall(random, number, PAST_MS + number, kinds);
    return { ...call, error: call.error === null ? null : '=1+1, "quoted"' };
  });
  for (const call of past) writer.append(call);
  writer.append({ ...past[0]!, request: 9_999_999, endedMs: asWallMs(PAST_MS + 86_400_000) });
  writer.close();

  const check = async (): Promise<void> => {
    const calls = await run('export', 'calls', '--day', PAST_DAY);
    t.equal(calls.code, 0, calls.stderr);
    t.same(
      (linesOf(calls.stdout) as CallView[]).map(({ request_id: id }) => id),
      past.map(({ requestPrefix, request }) => requestIdOf(requestPrefix, request)).reverse(),
    );
    const csv = (await run('export', 'calls', '--day', PAST_DAY, '--format', 'csv')).stdout.split('\r\n');
    t.equal(csv.length, PAST_CALLS + 2, 'titles once, and an end of the last line');
    t.match(csv[0]!, /^time,request_id,/);
    const failed = csv.find((line) => line.includes('quoted'))!;
    t.match(failed, /,"'=1\+1, ""quoted"""$/, 'no text is a formula');
    const listed = await run('calls', 'list', '--code', 'client_gone', '--limit', '3', '--csv');
    t.equal(listed.stdout.split('\r\n').length, 5);
    const pageOf = async (limit: number): Promise<CallsPageView> =>
      (
        await run('calls', 'list', '--from', PAST_DAY, '--to', PAST_DAY, '--limit', String(limit), '--json')
      ).json() as CallsPageView;
    t.match(await pageOf(3), { data: { length: 3 }, next: String }, 'there are more');
    t.match(await pageOf(PAST_CALLS + 1), { data: { length: PAST_CALLS }, next: null });
    const [newest] = past.slice(-1);
    const shown = await run('calls', 'show', requestIdOf(newest!.requestPrefix, newest!.request));
    t.match(shown.stdout, /^request id +req_abcdefgh-_12-/);
    t.match(shown.stdout, /\+0\.0 ms +came, 2025-11-24 /);
    const today = new Date().toISOString().slice(0, PAST_DAY.length);
    const [row, ...others] = linesOf((await run('export', 'usage', '--day', today)).stdout) as UsageRowView[];
    t.match(row, { model: TEST_MODEL, calls: 3, failed_calls: 0, cost: /^0\.\d+$/, hour: /:00:00Z$/ });
    t.same(others, []);
    const [titles, cells, end] = (
      await run('export', 'usage', '--day', today, '--format', 'csv')
    ).stdout.split('\r\n');
    t.same(
      cells!.split(','),
      titles!.split(',').map((name) => String(row![name as keyof UsageRowView])),
    );
    t.equal(end, '');
    t.match(await run('export', 'usage', '--day', PAST_DAY), { code: 0, stdout: '' });
    t.match(await run('calls', 'show', 'req_none-1'), { code: 1, stderr: /^there is no call "req_none-1"/ });
  };
  await check();
  t.equal(await gateway.stop(), 0);
  await check();
  t.match(await run('calls', 'tail'), { code: 1, stderr: /^No gateway serves/ });
});
