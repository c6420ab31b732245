/** The metric of a balance that two hosts use: on the page of each it is what all of them have left. */
import t from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import { eventually } from '../support/gateway.js';
import { startHosts, type Host } from '../support/hosts.js';
import { scrape } from '../support/metrics.js';
import { NO_REDIS } from '../support/redis-server.js';

const SETTINGS = { flush_interval_ms: 200, metrics: { account_labels: true } };

void t.test('two hosts spend of one account', { ...NO_REDIS, timeout: 400_000 }, async (t) => {
  const { hosts } = await startHosts(t, { count: 2, settings: SETTINGS });
  const { admin } = hosts[0]!.gateway;
  const { accountId, key } = await admin.customer({ credit: '1.00' });
  const spentBy = async (host: Host, isAll: (spent: bigint) => boolean) => {
    await eventually('a call', async () =>
      (await host.gateway.chat(key, 'Hello')).status === 200 ? true : undefined,
    );
    return eventually('the call is reported', async () => {
      const view = await admin.account(accountId);
      return isAll(picoUnitsOf(view.spent)!) && view.held === '0.00' ? view : undefined;
    });
  };
  const [one, other] = hosts as [Host, Host];
  const cost = picoUnitsOf((await spentBy(one, (spent) => spent > 0n)).spent)!;
  const account = await spentBy(other, (spent) => spent === 2n * cost);
  t.equal(picoUnitsOf(account.balance), picoUnitsOf('1.00')! - 2n * cost);
  for (const { gateway } of hosts)
    await eventually('its balance on the page', async () => {
      const { samples } = await scrape(gateway.admin.port);
      const valueOf = (name: string): number | undefined =>
        samples.find((sample) => sample.name === name && sample.labels.account === accountId)?.value;
      if (valueOf('tollgate_account_balance') !== Number(account.balance)) return undefined;
      t.equal(valueOf('tollgate_account_calls_today'), 1, 'calls are those of the host');
      return true;
    });
});
