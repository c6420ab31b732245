/** Calls over the interface: by filters, page by page, as they come, and by request id. */
import t, { type Test } from 'tap';
import type { CallsPageView, CallView } from '#src/admin/call-routes.js';
import { type Catalog, mergeCatalogs } from '#src/registry/catalog.js';
import type { CallWriter } from '#src/call-log/call-writer.js';
import { requestIdOf, type CallRecord } from '#src/telemetry/call-record.js';
import { checkError } from '../../support/error-answer.js';
import { passes, randomCall } from '../../support/stored-calls.js';
import { type AdminHouse, keepCalls, keepContents, startAdminHouse } from './support.js';
import { randomOf } from '../../support/random.js';

const DAY = '2025-11-24';
const START_MS = Date.parse(`${DAY}T00:00:00Z`);
const COUNT = 600;
const DELETED = 'acct_0123456789abcdef';

interface Kept {
  readonly house: AdminHouse;
  readonly calls: readonly CallRecord[];
  readonly writer: CallWriter;
  /** The page at that query, which must be answered. */
  readonly page: (query: string) => Promise<CallsPageView>;
}

async function keep(t: Test): Promise<Kept> {
  const house = await startAdminHouse(t);
  const { id } = (await house.send('POST', '/admin/v1/accounts', { name: 'acme', plan: 'free' })).json() as {
    id: string;
  };
  const random = randomOf(7);
  const kinds = { accounts: 5, models: 2, upstreams: 3 };
  // Ids as the registry makes them; acct_1 was deleted.
  const ids: Record<string, string> = { acct_0: id, acct_1: DELETED };
  const calls = Array.from({ length: COUNT }, (_, number) => {
    const call = randomCall(random, number, START_MS + number * 240_000, kinds);
    return { ...call, account: ids[call.account ?? ''] ?? call.account };
  });
  const writer = keepCalls(t, house, calls);
  const page = async (query: string): Promise<CallsPageView> => {
    const answer = await house.send('GET', `/admin/v1/calls?${query}`);
    t.equal(answer.status, 200, answer.body.slice(0, 200));
    return answer.json() as CallsPageView;
  };
  return { house, calls, writer, page };
}

const idOf = ({ requestPrefix, request }: CallRecord): string => requestIdOf(requestPrefix, request);
const idsOf = ({ data }: CallsPageView): string[] => data.map(({ request_id: id }) => id);

void t.test('calls by what they were', async (t) => {
  const { calls, page } = await keep(t);
  const acme = calls.find(
    ({ account }) => account?.length === DELETED.length && account !== DELETED,
  )!.account!;
  const dayMs = 86_400_000;
  const wanted: readonly (readonly [string, (call: CallRecord) => boolean])[] = [
    ['', () => true],
    ['account=acme', ({ account }) => account === acme],
    [`account=${DELETED}`, ({ account }) => account === DELETED],
    [`account=${acme}&failed=true`, ({ account, code }) => account === acme && code !== null],
    ['account=acct_0123456789abcdee', () => false],
    ['status=5xx', (call) => passes(call, { status: 5 })],
    ['status=502', ({ status }) => status === 502],
    ['code=client_gone', ({ code }) => code === 'client_gone'],
    ['code=internal_error,client_gone', (call) => passes(call, { code: 'internal_error,client_gone' })],
    ['upstream=upstream-1', (call) => passes(call, { upstream: 'upstream-1' })],
    ['model=model-1&failed=false', (call) => passes(call, { model: 'model-1', failed: false })],
    [`from=${DAY}&to=${DAY}`, ({ endedMs }) => endedMs < START_MS + dayMs],
    [`from=${DAY}T12:00Z`, ({ endedMs }) => endedMs >= START_MS + dayMs / 2],
    [`to=${START_MS / 1_000 + 240}`, ({ endedMs }) => endedMs < START_MS + 240_000],
  ];
  for (const [query, is] of wanted) {
    const found: string[] = [];
    // A search ends when its time is over, which comes soon on a busy machine.
    for (let cursor = ''; ;) {
      const { next, ...more } = await page(`limit=1000&${query}${cursor}`);
      found.push(...idsOf({ next, ...more }));
      if (next === null) break;
      t.ok(more.searched_to);
      cursor = `&cursor=${next}`;
    }
    t.same(found, calls.filter(is).map(idOf).reverse(), query);
  }
  const first = await page('account=acme&limit=3');
  const second = await page(`account=acme&limit=3&cursor=${first.next}`);
  const all = await page('account=acme&limit=6');
  t.same([...idsOf(first), ...idsOf(second)], idsOf(all));
  t.equal(first.data[0]!.account_name, 'acme');
  t.equal((await page(`account=${DELETED}&limit=1`)).data[0]!.account_name, null);
});

void t.test('calls of a group are those of the accounts in it and below it', async (t) => {
  const house = await startAdminHouse(t);
  const make = async (path: string, body: object): Promise<string> => {
    const answer = await house.send('POST', `/admin/v1/${path}`, body);
    t.ok(answer.status < 300, answer.body.slice(0, 200));
    return (answer.json() as { id: string }).id;
  };
  const outer = await make('groups', { name: 'outer' });
  await make('groups', { name: 'inner', parent: 'outer' });
  await make('groups', { name: 'empty' });
  const inOuter = await make('accounts', { name: 'a', plan: 'free', group: 'outer' });
  const inInner = await make('accounts', { name: 'b', plan: 'free', group: 'inner' });
  const inNone = await make('accounts', { name: 'c', plan: 'free' });
  const owners = [inOuter, inInner, inNone, DELETED, null];
  const random = randomOf(9);
  const kinds = { accounts: 5, models: 2, upstreams: 3 };
  const calls = Array.from({ length: 2_000 }, (_, number) => ({
    ...randomCall(random, number, START_MS + number, kinds),
    account: owners[Math.floor(random() * owners.length)]!,
  }));
  const writer = keepCalls(t, house, calls);
  const page = async (query: string): Promise<CallsPageView> =>
    (await house.send('GET', `/admin/v1/calls?${query}`)).json() as CallsPageView;
  const wanted: readonly (readonly [string, readonly (string | null)[]])[] = [
    ['group=outer', [inOuter, inInner]],
    [`group=${outer}&failed=true`, [inOuter, inInner]],
    ['group=inner', [inInner]],
    ['group=empty', []],
    [`group=outer&account=${inInner}`, [inInner]],
    [`group=inner&account=${inOuter}`, []],
  ];
  for (const [query, accounts] of wanted) {
    const found: string[] = [];
    for (let cursor = ''; ;) {
      const { next, ...more } = await page(`limit=1000&${query}${cursor}`);
      found.push(...idsOf({ next, ...more }));
      if (next === null) break;
      cursor = `&cursor=${next}`;
    }
    const isWanted = ({ account, code }: CallRecord): boolean =>
      accounts.includes(account) && (!query.includes('failed') || code !== null);
    t.same(found, calls.filter(isWanted).map(idOf).reverse(), query);
  }
  const { newest } = await page('limit=1');
  for (const call of calls.slice(0, 200)) writer.append({ ...call, requestPrefix: 'req_more-' });
  writer.flush();
  const news = await page(`after=${newest}&group=outer`);
  t.equal(
    news.data.length,
    calls.slice(0, 200).filter(({ account }) => [inOuter, inInner].includes(account)).length,
  );
  // Who leaves the group takes the calls along.
  await house.send('POST', `/admin/v1/accounts/${inInner}/set-group`, { group: null });
  t.same((await page('group=inner')).data, []);
  checkError(t, await house.send('GET', '/admin/v1/calls?group=nobody'), 'not_found', 'no such group');
});

void t.test('calls as they come', async (t) => {
  const { calls, writer, page } = await keep(t);
  const { newest } = await page('limit=1');
  t.same((await page(`after=${newest}`)).data, []);
  const more = calls.slice(0, 30).map((call) => ({ ...call, requestPrefix: 'req_more-' }));
  for (const call of more) writer.append(call);
  writer.flush();
  const news = await page(`after=${newest}&limit=20`);
  const rest = await page(`after=${news.newest}&limit=20`);
  t.same([...idsOf(news), ...idsOf(rest)], more.map(idOf), 'oldest first, each once');
  t.same((await page(`after=${rest.newest}`)).data, []);
  const failed = await page(`after=${newest}&failed=true`);
  t.same(idsOf(failed), more.filter(({ code }) => code !== null).map(idOf));
});

void t.test('a call by its request id', async (t) => {
  const { house, calls } = await keep(t);
  const call = calls.find(({ attempts, usage }) => attempts.length > 1 && usage !== undefined)!;
  const answer = await house.send('GET', `/admin/v1/calls/${idOf(call)}`);
  t.equal(answer.status, 200);
  const view = answer.json() as CallView;
  t.equal(view.request_id, idOf(call));
  t.equal(view.duration_ms, call.durationMs);
  t.same(
    view.attempts.map(({ start_ms: startMs, error }) => [startMs, error]),
    call.attempts.map(({ startMs, error }) => [startMs, error]),
  );
  const none = await house.send('GET', '/admin/v1/calls/req_none-1');
  t.match(checkError(t, none, 'not_found', 'no such call'), /on this host.*of several hosts ask each/);
});

void t.test('a call, and its contents, whose caller asks before the listener has recorded it', async (t) => {
  const { house, calls, writer } = await keep(t);
  const request = calls.length + 1;
  const late: CallRecord = { ...calls[0]!, request };
  const ask = (part = '') => house.send('GET', `/admin/v1/calls/${idOf(late)}${part}`);
  let flushes = 0;
  house.flushCalls = () => {
    flushes += 1;
    if (flushes !== 2) return;
    writer.append(late);
    writer.flush();
  };
  const answer = await ask();
  t.equal(answer.status, 200);
  t.equal((answer.json() as CallView).request_id, idOf(late));
  flushes = 0;
  house.flushCalls = () => {
    flushes += 1;
    if (flushes === 2) keepContents(t, house, [idOf(late)]);
  };
  t.equal((await ask('/contents')).status, 200);
});

void t.test(
  'an alias of a removed model finds its calls, and hides no model that has the name now',
  async (t) => {
    const { house, page } = await keep(t);
    const [model] = house.registry.catalog.models;
    const catalogOf = (id: string, alias: string): Catalog => ({
      models: [{ ...model!, id, aliases: [alias] }],
      plans: [],
    });
    const isOf = async (name: string, wanted: string): Promise<void> => {
      const { data } = await page(`limit=1000&model=${name}`);
      t.ok(data.length > 0);
      t.ok(data.every(({ model: named, answered_model: by }) => named === wanted || by === wanted));
    };
    house.registry.catalog = catalogOf('model-0', 'model-1');
    await isOf('model-1', 'model-0');
    house.registry.catalog = mergeCatalogs(house.registry.catalog, catalogOf('model-1', 'other'));
    await isOf('model-1', 'model-1');
    house.registry.catalog = mergeCatalogs(catalogOf('model-0', 'former'), catalogOf('model-1', 'other'));
    await isOf('former', 'model-0');
    house.registry.catalog = mergeCatalogs(house.registry.catalog, catalogOf('model-1', 'former'));
    await isOf('former', 'model-1');
  },
);

void t.test('wrong queries are explained', async (t) => {
  const { house } = await keep(t);
  const refused: readonly (readonly [string, RegExp])[] = [
    ['status=abc', /^status must be an HTTP status such as 502, or a class such as 5xx, got "abc"$/],
    ['status=600', /^status must be/],
    ['from=yesterday', /^from must be/],
    ['from=2025-13-01T00:00Z', /^from must be/],
    [
      'from=2025-01-31T12:00',
      /^from must be Unix seconds, a time such as 2025-01-31T12:00Z or a day \(UTC\), got "2025-01-31T12:00"$/,
    ],
    ['from=2025-03-02&to=2025-03-01', /^from must not be after to$/],
    ['from=2025-02-30T12:00Z', /^from must be/],
    ['to=2025-02-31', /^to must be/],
    ['cursor=x', /^cursor must be one that a page has given, got "x"$/],
    ['cursor=01_1_1_1', /^cursor must be/],
    ['cursor=1_1_1_9007199254740993', /^cursor must be/],
    ['after=!', /^after must be one that a page has given, got "!"$/],
    ['after=1_z.0.0', /^after must be one that a page has given, got "1_z.0.0"$/],
    ['after=1_1.0.0', /^after must be/],
    ['after=01', /^after must be/],
    ['after=2_1.0.0_1.1.0', /^after must be/],
    ['after=1&cursor=1_1_1_1', /^give one of cursor and after$/],
    ['limit=0', /^limit must be/],
    ['failed=maybe', /^failed must be/],
    ['acount=x', /^unknown query parameter acount, the nearest known one is account$/],
  ];
  for (const [query, message] of refused) {
    const answer = await house.send('GET', `/admin/v1/calls?${query}`);
    t.match(checkError(t, answer, 'invalid_parameters', query), message);
  }
  const nobody = await house.send('GET', '/admin/v1/calls?account=nobody');
  checkError(t, nobody, 'not_found', 'no account of that name');
  for (const query of ['account=key_0123456789abcdef', 'key=acct_0123456789abcdef']) {
    const other = await house.send('GET', `/admin/v1/calls?${query}`);
    checkError(t, other, 'not_found', `an id of another kind: ${query}`);
  }
});
