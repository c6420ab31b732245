/**
 * What is measured: calls, and who is asked. A contender is a port and the processes behind it.
 */
import { startGateway, testSettings, TEST_MODEL } from '../../test/support/gateway.js';
import { startMock, type Scope } from '../../test/support/mock.js';
import { processTree } from '../support/proc.js';

export interface Contender {
  readonly name: string;
  readonly port: number;
  /** All its processes that live now. */
  pids(): number[];
}

export interface Scenario {
  readonly name: string;
  readonly contender: Contender;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Every answer must have this status. */
  readonly status: number;
}

const PROMPT = 'How many roads must a man walk down before you call him a man? '.repeat(4).slice(0, 200);
/** Of text, which makes a body of some 550 bytes. */
const ANSWER_BYTES = 240;
const CHUNKS = 20;
const UNKNOWN_KEY = `sk-${'A'.repeat(43)}`;

const bodyOf = (stream: boolean): string =>
  JSON.stringify({
    model: TEST_MODEL,
    messages: [{ role: 'user', content: PROMPT }],
    ...(stream ? { stream: true, stream_options: { include_usage: true } } : {}),
  });

/** Starts the upstream and the gateway, one process tree each, and lists what to measure in the order of measuring. */
export async function startScenarios(scope: Scope): Promise<Scenario[]> {
  const mock = await startMock(scope, ['--bytes', String(ANSWER_BYTES), '--chunks', String(CHUNKS)]);
  const settings = testSettings(mock.url, {
    plans: [{ id: 'one-a-minute', requests_per_minute: 1, calls_per_day: 1_000_000 }],
  });
  const gateway = await startGateway(scope, { config: settings });
  const rich = await gateway.admin.customer({ credit: '1000000.00' });
  const limited = await gateway.admin.customer({ plan: 'one-a-minute' });
  const upstream: Contender = { name: 'upstream', port: mock.port, pids: () => processTree(mock.child.pid) };
  const front: Contender = {
    name: 'gateway',
    port: gateway.port,
    pids: () => processTree(gateway.child.pid),
  };
  const scenario = (
    name: string,
    contender: Contender,
    key: string,
    stream: boolean,
    status: number,
  ): Scenario => ({
    name,
    contender,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: bodyOf(stream),
    status,
  });
  return [
    scenario('whole', upstream, rich.key, false, 200),
    scenario('whole', front, rich.key, false, 200),
    scenario('stream of 20 chunks', upstream, rich.key, true, 200),
    scenario('stream of 20 chunks', front, rich.key, true, 200),
    scenario('401 unknown key', front, UNKNOWN_KEY, false, 401),
    scenario('429 over the limit', front, limited.key, false, 429),
  ];
}
