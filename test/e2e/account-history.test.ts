/** Who calls most, while several processes serve: what each has counted is added up, once. */
import t from 'tap';
import { startBed } from '../support/bed.js';
import { eventually } from '../support/gateway.js';

interface Busiest {
  readonly data: readonly {
    readonly account: string;
    readonly calls: number;
    readonly prompt_tokens: number;
    readonly cost: string;
  }[];
}

/** Each on a connection of its own, so that both processes have some. */
const CALLS = 24;

void t.test('calls of two processes are the account’s', async (t) => {
  const { gateway } = await startBed(t, { processes: 2, flush_interval_ms: 100 });
  const { key, accountId } = await gateway.admin.customer();
  const quiet = await gateway.admin.customer();
  await eventually('both serve', () =>
    gateway.log().filter((line) => line.includes('"gateway serves"')).length === 2 ? true : undefined,
  );
  t.equal((await gateway.chat(quiet.key, 'Hello')).status, 200);
  for (let call = 0; call < CALLS; call++) t.equal((await gateway.chat(key, 'Hello')).status, 200);
  let most = 0;
  const busiest = await eventually('all calls to be told', async () => {
    const answer = await gateway.admin.send('GET', '/admin/v1/history/accounts?range=5m');
    const { data } = answer.json() as Busiest;
    const calls = data.reduce((sum, line) => sum + line.calls, 0);
    most = Math.max(most, calls);
    return calls >= CALLS + 1 ? data : undefined;
  });
  t.equal(most, CALLS + 1, 'and none twice');
  t.match(busiest, [
    { account: accountId, calls: CALLS },
    { account: quiet.accountId, calls: 1 },
  ]);
  const { spent } = (await gateway.admin.send('GET', `/admin/v1/accounts/${accountId}`)).json() as {
    spent: string;
  };
  t.equal(busiest[0]?.cost, spent, 'the cost is that of the books');
  t.equal(await gateway.stop(), 0);
});
