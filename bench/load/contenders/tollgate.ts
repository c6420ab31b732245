/**
 * The gateway as it ships, in its default configuration with everything on: keys, minute, day, balance with
 * holds, usage, metrics, flush. It gets one model at the mock, two plans and two customers.
 */
import { eventually, startGateway, testSettings } from '../../../test/support/gateway.js';
import type { Mock, Scope } from '../../../test/support/mock.js';
import { processTree } from '../../support/proc.js';
import { CHAT_PATH, JSON_HEADERS, type Caller, type Contender, type ContenderName } from './contender.js';

const LIMITED_PLAN = { id: 'one-a-minute', requests_per_minute: 1, calls_per_day: 1_000_000 };

interface StatusView {
  readonly processes: readonly { readonly ready: boolean }[];
}

/** `threads`: listeners, and as many workers, of each of the `processes`; one of each is the default. */
export async function startTollgate(
  scope: Scope,
  mock: Mock,
  name: ContenderName = 'tollgate',
  threads = 1,
  processes = 1,
): Promise<Contender> {
  const settings = testSettings(mock.url, {
    plans: [LIMITED_PLAN],
    ...(processes === 1 ? {} : { processes }),
    ...(threads === 1 ? {} : { listen: { listeners: threads }, workers: threads }),
  });
  const gateway = await startGateway(scope, { config: settings });
  await eventually('all processes', async () => {
    const status = (await gateway.admin.send('GET', '/admin/v1/status')).json() as StatusView;
    return status.processes.filter(({ ready }) => ready).length === processes ? true : undefined;
  });
  const paying = await gateway.admin.customer({ credit: '1000000.00' });
  const limited = await gateway.admin.customer({ plan: LIMITED_PLAN.id });
  const keys: Readonly<Record<Caller, string>> = {
    paying: paying.key,
    limited: limited.key,
    unknown: `sk-${'A'.repeat(43)}`,
  };
  return {
    name,
    port: gateway.port,
    pids: () => processTree(gateway.child.pid),
    callOf: ({ caller }) => ({
      path: CHAT_PATH,
      headers: { ...JSON_HEADERS, authorization: `Bearer ${keys[caller]}` },
    }),
  };
}
