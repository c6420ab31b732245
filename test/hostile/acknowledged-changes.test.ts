/**
 * What an operator was told is done is done in every process: a request that is sent after the
 * acknowledgement sees the change, on whichever process its connection is, for every kind of change.
 */
import t from 'tap';
import { shareBed, startBed } from '../support/bed.js';
import { eventually, HIDDEN_MODEL, TEST_MODEL, type Gateway } from '../support/gateway.js';
import { RawConnection, type RawAnswer } from '../support/raw-connection.js';

const PROCESSES = 2;
const ROUNDS = process.env.TOLLGATE_HOSTILE_FULL === undefined ? 10 : 200;
/**
 * Of those opened until each process has one: that one of two gets none is to be expected once in a million
 * times.
 */
const OPENED_MAX = 40;
/**
 * Of the changes: those after which an operator was told that a process is behind, since it had no processor
 * for a second and a half.
 */
const WARNED_SHARE_MAX = 0.05;

const askText = (key: string, method: string, path: string, body = ''): string =>
  `${method} ${path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${key}\r\ncontent-length: ${body.length}\r\n\r\n${body}`;

const models = (key: string): string => askText(key, 'GET', '/v1/models');
const chat = (key: string): string =>
  askText(
    key,
    'POST',
    '/v1/chat/completions',
    JSON.stringify({ model: TEST_MODEL, max_tokens: 10, messages: [{ role: 'user', content: 'Hello' }] }),
  );

/** One connection to each process: a process has its own beginning of request ids. */
async function connectAll({ port }: Gateway): Promise<RawConnection[]> {
  const found = new Map<string, RawConnection>();
  for (let opened = 0; found.size < PROCESSES && opened < OPENED_MAX; opened += 1) {
    const connection = await RawConnection.open(port);
    connection.send(askText('sk-unknown', 'GET', '/v1/models'));
    const id = (await connection.answer()).headers.get('x-request-id') ?? '';
    const prefix = id.slice(0, id.lastIndexOf('-'));
    if (found.has(prefix)) connection.close();
    else found.set(prefix, connection);
  }
  return [...found.values()];
}

interface Checked {
  readonly text: string;
  readonly isSeen: (answer: RawAnswer) => boolean;
}

const answers =
  (status: number) =>
  (answer: RawAnswer): boolean =>
    answer.status === status;

const hidden = { requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000, models: [TEST_MODEL] };
const sharedBed = shareBed(t, { processes: PROCESSES, plans: [{ id: 'narrow', ...hidden }] });

void t.test('no request after the acknowledgement is served as before', async (t) => {
  const { gateway } = await sharedBed();
  await eventually('the processes', async () => {
    const status = (await gateway.admin.send('GET', '/admin/v1/status')).json();
    const { processes } = status as { readonly processes: readonly { readonly ready: boolean }[] };
    return processes.filter(({ ready }) => ready).length === PROCESSES ? true : undefined;
  });
  const connections = await connectAll(gateway);
  t.equal(connections.length, PROCESSES);
  const { accountId, keyId, key } = await gateway.admin.customer();
  const seen: Record<string, { asked: number; late: number }> = {};
  const warnings = { changes: 0, warned: 0 };

  const change = async (
    kind: string,
    method: string,
    path: string,
    body: object | undefined,
    check: (answer: unknown) => Checked,
  ): Promise<unknown> => {
    const told = await gateway.admin.send(method, `/admin/v1${path}`, body);
    if (told.status !== 200) throw new Error(`${kind}: ${told.status} ${told.body}`);
    warnings.changes += 1;
    const isWarned = told.headers.warning !== undefined;
    if (isWarned) warnings.warned += 1;
    const { text, isSeen } = check(told.json());
    const counts = (seen[kind] ??= { asked: 0, late: 0 });
    for (const connection of connections) connection.send(text);
    for (const answer of await Promise.all(connections.map((connection) => connection.answer()))) {
      counts.asked += 1;
      if (!isSeen(answer) && !isWarned) counts.late += 1;
    }
    return told.json();
  };
  const post = (kind: string, path: string, body: object, check: (answer: unknown) => Checked) =>
    change(kind, 'POST', path, body, check);
  const always = (text: string, isSeen: Checked['isSeen']) => () => ({ text, isSeen });
  const keyOf = (made: unknown): string => (made as { readonly key: string }).key;
  const account = `/accounts/${accountId}`;

  for (let round = 0; round < ROUNDS; round += 1) {
    await post('key disabled', `/keys/${keyId}/disable`, {}, always(models(key), answers(403)));
    await post('key enabled', `/keys/${keyId}/enable`, {}, always(models(key), answers(200)));
    const made = await post('key made', '/keys', { account: accountId, name: `k${round}` }, (answer) => ({
      text: models(keyOf(answer)),
      isSeen: answers(200),
    }));
    const { id } = made as { readonly id: string };
    const rotated = await post('key rotated', `/keys/${id}/rotate`, { grace: 0 }, () => ({
      text: models(keyOf(made)),
      isSeen: answers(403),
    }));
    await change(
      'key deleted',
      'DELETE',
      `/keys/${(rotated as { readonly id: string }).id}`,
      undefined,
      () => ({
        text: models(keyOf(rotated)),
        isSeen: answers(401),
      }),
    );
    await post('account disabled', `${account}/disable`, {}, always(models(key), answers(403)));
    await post('account enabled', `${account}/enable`, {}, always(models(key), answers(200)));
    const hasHidden = (answer: RawAnswer): boolean => answer.body.includes(HIDDEN_MODEL);
    await post('plan narrowed', `${account}/set-plan`, { plan: 'narrow' }, () => ({
      text: models(key),
      isSeen: (answer) => !hasHidden(answer),
    }));
    await post('plan widened', `${account}/set-plan`, { plan: 'ample' }, always(models(key), hasHidden));
    const bulk = { accounts: [{ name: `bulk-${round}`, plan: 'ample', keys: [{ name: 'bulk' }] }] };
    const bulkKey = (answer: unknown): string =>
      keyOf((answer as { readonly data: { readonly keys: unknown[] }[] }).data[0]!.keys[0]);
    const many = await post('bulk', '/bulk', bulk, (answer) => ({
      text: models(bulkKey(answer)),
      isSeen: answers(200),
    }));
    const poor = bulkKey(many);
    await post(
      'credit',
      `/accounts/bulk-${round}/credit`,
      { amount: '5.00' },
      always(chat(poor), answers(200)),
    );
  }
  t.comment(JSON.stringify({ ...seen, ...warnings }));
  for (const [kind, { asked, late }] of Object.entries(seen))
    t.equal(late, 0, `${kind}: ${late} of ${asked}`);
  t.ok(warnings.warned <= WARNED_SHARE_MAX * warnings.changes, `${warnings.warned} told of a process behind`);
  for (const connection of connections) connection.close();
});

void t.test('a process that stands still is named, and the change is made', async (t) => {
  const { gateway } = await sharedBed();
  const { keyId } = await gateway.admin.customer();
  const other = await eventually('the other process', async () => {
    const status = (await gateway.admin.send('GET', '/admin/v1/status')).json();
    const { processes } = status as { readonly processes: readonly { readonly pid: number }[] };
    return processes.length === PROCESSES
      ? processes.find(({ pid }) => pid !== gateway.pid())?.pid
      : undefined;
  });
  process.kill(other, 'SIGSTOP');
  try {
    const told = await gateway.admin.send('POST', `/admin/v1/keys/${keyId}/disable`, {});
    t.equal(told.status, 200);
    t.match(told.json(), { active: false });
    t.match(told.headers.warning, /^199 tollgate "The change is made\. 1 of the gateway processes/);
  } finally {
    process.kill(other, 'SIGCONT');
  }
  await eventually('no process behind', async () => {
    const told = await gateway.admin.send('POST', `/admin/v1/keys/${keyId}/enable`, {});
    return told.status === 200 && told.headers.warning === undefined ? true : undefined;
  });
  t.equal(await gateway.stop(), 0);
});

void t.test('usage shows the call that has just ended, of whichever process', async (t) => {
  const { gateway } = await startBed(t, { processes: PROCESSES, flush_interval_ms: 60_000 });
  const { key, accountId } = await gateway.admin.customer();
  for (let calls = 1; calls <= ROUNDS; calls += 1) {
    t.equal((await gateway.chat(key, 'Hello')).status, 200);
    // Many readers, as consoles that poll.
    const reads = await Promise.all(
      Array.from({ length: 5 }, () => gateway.admin.send('GET', `/admin/v1/usage?account=${accountId}`)),
    );
    for (const read of reads) t.match(read.json(), { data: [{ calls }] });
  }
  t.equal(await gateway.stop(), 0);
});
