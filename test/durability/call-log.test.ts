/**
 * What becomes of the records of calls when a gateway is killed or the disk is full: at most the last flush
 * is lost, and calls and books are as without them. The disk is a tmpfs of its own, so that needs root.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { CallReader } from '#src/call-log/call-reader.js';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import {
  TEST_PRICE,
  eventually,
  startGateway,
  temporaryFolder,
  testSettings,
  type Gateway,
} from '../support/gateway.js';
import { startMock, steered } from '../support/mock.js';
import { empty, fill, mountDisk, reasonToSkip } from '../support/small-disk.js';

const PROMPT = steered('prompt_tokens=10&cached_tokens=0&completion_tokens=10');
const COST = (10n * (picoUnitsOf(TEST_PRICE.input)! + picoUnitsOf(TEST_PRICE.output)!)) / 1_000_000n;
const LONG_PROMPT_BYTES = 60_000;
/** Their contents are 12 MB. */
const LONG_CALLS = 200;

const readerOf = ({ dataFolder }: Gateway): CallReader => new CallReader(join(dataFolder, 'calls'));

/** Calls one after the other. Returns the ids of those that were answered, and when. */
async function callFor(gateway: Gateway, key: string, ms: number): Promise<Map<string, number>> {
  const answered = new Map<string, number>();
  const endMs = performance.now() + ms;
  while (performance.now() < endMs) {
    const { status, headers } = await gateway.chat(key, PROMPT);
    if (status !== 200) throw new Error(`a call got ${status}`);
    answered.set(String(headers['x-request-id']), performance.now());
  }
  return answered;
}

async function kept(gateway: Gateway, ids: Iterable<string>): Promise<Set<string>> {
  const reader = readerOf(gateway);
  const found = new Set<string>();
  for (const id of ids) if ((await reader.find(id)) !== undefined) found.add(id);
  return found;
}

void t.test('kill -9: the calls of the last moments are lost, and nothing of the books', async (t) => {
  const mock = await startMock(t);
  const folder = temporaryFolder(t);
  const config = testSettings(mock.url, { durability: 'commit' });
  let gateway = await startGateway(t, { folder, config });
  const { key, accountId } = await gateway.admin.customer();
  const early = await callFor(gateway, key, 500);
  await eventually('the first calls are on disk', async () =>
    (await kept(gateway, early.keys())).size === early.size ? true : undefined,
  );
  const late = await callFor(gateway, key, 1_500);
  const pid = gateway.pid();
  gateway.child.signal('SIGKILL');
  process.kill(pid, 'SIGKILL');
  await gateway.child.stop('SIGKILL', 60_000);
  gateway = await startGateway(t, { folder, config });
  t.same(await kept(gateway, early.keys()), new Set(early.keys()), `${early.size} calls were on disk`);
  const ids = [...late.keys()];
  const found = await kept(gateway, ids);
  t.same(
    [...found],
    ids.slice(0, found.size),
    `${found.size} of the ${ids.length} last ones: none is missing between`,
  );
  const { spent } = await gateway.admin.account(accountId);
  t.equal(spent, decimalOf(BigInt(early.size + late.size) * COST), 'each is in the books, once');
  const next = await callFor(gateway, key, 100);
  await eventually('records are kept as before', async () =>
    (await kept(gateway, next.keys())).size === next.size ? true : undefined,
  );
  await gateway.stop();
});

void t.test('a full disk stops records, not calls', { skip: reasonToSkip() }, async (t) => {
  const mock = await startMock(t);
  const folder = temporaryFolder(t);
  const disk = join(folder, 'data', 'calls');
  mkdirSync(disk, { recursive: true });
  mountDisk(t, '1m', disk);
  const gateway = await startGateway(t, { folder, config: testSettings(mock.url) });
  const { key, accountId } = await gateway.admin.customer();
  const first = await callFor(gateway, key, 100);
  await eventually('records are kept', async () =>
    (await kept(gateway, first.keys())).size === first.size ? true : undefined,
  );
  fill(disk);
  const during = await callFor(gateway, key, 3_000);
  await eventually('the log says it', () =>
    gateway.log().some((line) => line.includes('the call log cannot be written')) ? true : undefined,
  );
  t.equal(
    (await gateway.admin.account(accountId)).spent,
    decimalOf(BigInt(first.size + during.size) * COST),
    'all are served and charged',
  );
  empty(disk);
  const after = await callFor(gateway, key, 100);
  await eventually('records are kept again', async () =>
    (await kept(gateway, after.keys())).size === after.size ? true : undefined,
  );
  t.equal((await kept(gateway, during.keys())).size, during.size, 'those that waited in memory too');
  await gateway.stop();
});

void t.test('contents that find no room are dropped and counted', { skip: reasonToSkip() }, async (t) => {
  const mock = await startMock(t);
  const folder = temporaryFolder(t);
  const disk = join(folder, 'data', 'contents');
  mkdirSync(disk, { recursive: true });
  mountDisk(t, '16m', disk);
  const call_log = { contents: 'all', contents_body_bytes: LONG_PROMPT_BYTES };
  const gateway = await startGateway(t, { folder, config: testSettings(mock.url, { call_log }) });
  const { key, accountId } = await gateway.admin.customer({ credit: '100.00' });
  const droppedOf = async (part: string): Promise<number> => {
    const { body } = await gateway.admin.send('GET', '/metrics');
    return Number(new RegExp(`tollgate_call_log_dropped_total\\{part="${part}"\\} (\\d+)`).exec(body)?.[1]);
  };
  t.equal(await droppedOf('contents'), 0);
  fill(disk);
  // More than the writer keeps in memory while the disk takes nothing.
  for (let call = 0; call < LONG_CALLS; call++) {
    const { status } = await gateway.chat(key, `${PROMPT} ${'x'.repeat(LONG_PROMPT_BYTES)}`);
    if (status !== 200) t.fail(`call ${call}: ${status}`);
  }
  const dropped = await eventually('some are dropped', async () => {
    const count = await droppedOf('contents');
    return count > 0 ? count : undefined;
  });
  t.ok(dropped < LONG_CALLS, `${dropped} of ${LONG_CALLS}`);
  t.equal(await droppedOf('records'), 0, 'records are on another disk');
  t.equal(
    (await gateway.admin.account(accountId)).spent,
    decimalOf(BigInt(LONG_CALLS) * COST),
    'all are served and charged',
  );
  empty(disk);
  const after = await gateway.chat(key, 'Hello');
  await eventually('contents are kept again', async () => {
    const path = `/admin/v1/calls/${String(after.headers['x-request-id'])}/contents`;
    return (await gateway.admin.send('GET', path)).status === 200 ? true : undefined;
  });
  await gateway.stop();
});
