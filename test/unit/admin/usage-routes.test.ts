/** What the routes of usage spare the main thread: work for who has left, and for each page anew. */
import { once } from 'node:events';
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { NO_USAGE } from '#src/registry/usage-report.js';
import { checkError } from '../../support/error-answer.js';
import { startAdminHouse, TOKEN, type AdminHouse } from './support.js';

const HOUR = 482_000;
const HOURS = 5;

async function openBooks(t: Test): Promise<{ house: AdminHouse; reports: () => number; put: () => void }> {
  const house = await startAdminHouse(t);
  const { registry, store } = house;
  registry.accounts.create({ name: 'a', planId: 'free', credit: asPicoUnits(9n) });
  const row = { ...NO_USAGE, account: asAccountIndex(0), keyId: 'key_0123456789abcdef', modelId: 'small' };
  let calls = 0;
  const put = (): void => {
    calls += 1;
    const usages = Array.from({ length: HOURS }, (_, at) => ({ ...row, hour: HOUR + at, calls }));
    store.commit(() => store.putAccounting({ spendings: new Map(), usages }));
  };
  put();
  const made = t.capture(registry.usage, 'report', registry.usage.report.bind(registry.usage));
  let count = 0;
  const reports = (): number => (count += made().length);
  return { house, reports, put };
}

interface Page {
  readonly data: readonly { readonly hour: number; readonly calls: number }[];
  readonly next: string | null;
}

const pageOf = async (house: AdminHouse, query: string): Promise<Page> =>
  (await house.send('GET', `/admin/v1/usage?by=hour&${query}`)).json() as Page;

void t.test('a report of several pages is made once', async (t) => {
  const { house, reports, put } = await openBooks(t);
  const lines: number[] = [];
  let cursor = '';
  do {
    const page = await pageOf(house, `limit=2${cursor}`);
    put();
    for (const { hour, calls } of page.data) {
      lines.push(hour / 3_600 - HOUR);
      t.equal(calls, 1, 'of the moment of the first page');
    }
    cursor = page.next === null ? '' : `&cursor=${page.next}`;
  } while (cursor !== '');
  t.same(lines, [0, 1, 2, 3, 4]);
  t.equal(reports(), 1);
  const first = await pageOf(house, 'limit=2');
  t.equal(first.data[0]?.calls, 4, 'the first page is made anew');
  t.equal(reports(), 2);
  await pageOf(house, `limit=2&account=a&cursor=${first.next}`);
  t.equal(reports(), 3, 'another report');
  put();
  t.equal((await pageOf(house, `limit=9&cursor=${first.next}`)).data[0]?.calls, 5, 'it is kept no more');
  t.equal(reports(), 4);
});

void t.test('a model is found by its alias too', async (t) => {
  const { house } = await openBooks(t);
  const { registry } = house;
  const [model] = registry.catalog.models;
  registry.catalog = { ...registry.catalog, models: [{ ...model!, aliases: ['little'] }] };
  for (const [name, lines] of [
    ['small', HOURS],
    ['little', HOURS],
    ['other', 0],
  ] as const) {
    t.equal((await pageOf(house, `model=${name}`)).data.length, lines, name);
  }
});

void t.test('the account of a deleted key has its name', async (t) => {
  const { house } = await openBooks(t);
  for (const query of ['usage/rows?limit=1', 'usage?by=key']) {
    const page = (await house.send('GET', `/admin/v1/${query}`)).json() as { readonly data: object[] };
    t.match(page.data[0], { key: 'key_0123456789abcdef', key_name: null, account_name: 'a' }, query);
  }
});

void t.test('calls that could not be written are told to be missing', async (t) => {
  const { house } = await openBooks(t);
  const warningOf = async (query: string): Promise<string | undefined> => {
    const { status, headers } = await house.send('GET', `/admin/v1/${query}`);
    t.equal(status, 200, query);
    return headers.warning;
  };
  const queries = ['usage?by=hour', 'usage?by=hour&limit=2', 'usage?format=csv', 'usage/rows?limit=1'];
  for (const query of queries) t.equal(await warningOf(query), undefined, query);
  house.flushes = false;
  for (const query of queries)
    t.match(await warningOf(query), /^199 tollgate "Calls of the last moments may be missing/, query);
});

void t.test('the columns of the CSV keep their places', async (t) => {
  const { house } = await openBooks(t);
  const { body } = await house.send('GET', '/admin/v1/usage?format=csv');
  t.match(
    body,
    'day,calls,failed_calls,estimated_calls,prompt_tokens,cached_tokens,completion_tokens,cost,uncovered,' +
      'fallback_calls,cache_write_tokens,cache_write_1h_tokens,reasoning_tokens',
    'a new one comes last',
  );
});

void t.test('who leaves is not worked for', async (t) => {
  const { house } = await openBooks(t);
  for (const path of ['usage?by=hour', 'usage?format=csv']) {
    const begun = new Promise<AbortSignal>((resolve) => {
      house.registry.usage.report = (_, left) =>
        new Promise((_, reject) => {
          resolve(left!);
          left!.addEventListener('abort', () => reject(new Error('left')));
        });
    });
    const socket = connect(house.port, '127.0.0.1');
    socket.write(
      `GET /admin/v1/${path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${TOKEN}\r\n\r\n`,
    );
    const left = await begun;
    t.equal(left.aborted, false);
    const aborted = once(left, 'abort');
    socket.destroy();
    await aborted;
  }
});

void t.test('a span that ends before it begins is told', async (t) => {
  const { house } = await openBooks(t);
  for (const query of ['from=2025-01-02&to=2025-01-01', 'from=1735776001&to=1735776000']) {
    const answer = await house.send('GET', `/admin/v1/usage?by=hour&${query}`);
    t.match(checkError(t, answer, 'invalid_parameters', query), /^from must not be after to$/);
  }
  const day = new Date(HOUR * 3_600_000).toISOString().slice(0, '2025-01-01'.length);
  t.ok((await pageOf(house, `from=${day}&to=${day}`)).data.length > 0, 'a day alone is whole');
});
