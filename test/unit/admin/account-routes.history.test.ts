/** The routes of the busiest accounts and of one account's course. */
import t from 'tap';
import { startAdminHouse } from './support.js';

void t.test('who has called most, and when', async (t) => {
  const house = await startAdminHouse(t);
  const start = Math.floor(house.clock.wallMs() / 2_000) * 2 - 20;
  const idOf = async (name: string): Promise<string> => {
    const made = await house.send('POST', '/admin/v1/accounts', { name, plan: 'free' });
    return (made.json() as { id: string }).id;
  };
  const [quiet, busy] = [await idOf('quiet'), await idOf('busy')];
  const gone = 'acct_0123456789abcdef';
  const figures = { calls: 1, prompt: 7, cached: -1, completion: 2, costPicoUnits: 1.5e12 };
  const spans = [
    { start, accounts: { [quiet]: figures } },
    { start: start + 2, accounts: { [busy]: { ...figures, calls: 3 }, [gone]: figures } },
  ].map((span) => ({ ring: '5m' as const, span }));
  for (const span of spans) house.accounts.add([{ source: 'a', spans: [span] }], start + 20);

  const line = { calls: 1, prompt_tokens: 7, cached_tokens: 0, completion_tokens: 2, cost: '1.50' };
  t.same((await house.send('GET', '/admin/v1/history/accounts')).json(), {
    range: '5m',
    seconds: 2,
    data: [
      { account: busy, name: 'busy', ...line, calls: 3 },
      { account: quiet, name: 'quiet', ...line },
      { account: gone, name: gone, ...line },
    ],
  });
  const nothing = { calls: 0, prompt_tokens: 0, cached_tokens: 0, completion_tokens: 0, cost: '0.00' };
  t.same((await house.send('GET', '/admin/v1/accounts/busy/history?range=5m')).json(), {
    range: '5m',
    seconds: 2,
    data: [
      { start, ...nothing },
      { start: start + 2, ...line, calls: 3 },
    ],
  });
  t.match((await house.send('GET', '/admin/v1/history/accounts?range=24h')).json(), { data: [] });
  const wrong = await house.send('GET', '/admin/v1/history/accounts?range=2h');
  t.equal(wrong.status, 400);
  t.match(wrong.body, 'range');
  t.equal((await house.send('GET', '/admin/v1/accounts/nobody/history')).status, 404);
});
