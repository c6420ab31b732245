/**
 * Starts the upstream and those contenders that are wanted, each with its own processes.
 */
import { startMockProcess, type Scope } from '../../../test/support/mock.js';
import { anyContender, type AnyOptions } from './any.js';
import { startBare } from './bare.js';
import { THREADS, type Contender, type ContenderName } from './contender.js';
import { directTo } from './direct.js';
import { startHaproxy } from './haproxy.js';
import { startLitellm } from './litellm.js';
import { startLitellmRs } from './litellm-rs.js';
import { startNginx } from './nginx.js';
import { startPortkey } from './portkey.js';
import { startRelay } from './relay.js';
import { startTollgate } from './tollgate.js';

export interface Wanted {
  readonly names: readonly ContenderName[];
  /** 0: any. */
  readonly upstreamPort: number;
  readonly any: AnyOptions | undefined;
}

/** Those started, in the order of `names`, and the names of those that are not installed. */
export interface Started {
  readonly contenders: readonly Contender[];
  readonly missing: readonly ContenderName[];
}

export async function startContenders(scope: Scope, { names, upstreamPort, any }: Wanted): Promise<Started> {
  const mock = await startMockProcess(scope, ['--port', String(upstreamPort)]);
  const starts: Readonly<Record<ContenderName, () => Promise<Contender | undefined>>> = {
    bare: () => startBare(scope),
    direct: () => Promise.resolve(directTo(mock)),
    nginx: () => startNginx(scope, mock.port),
    haproxy: () => startHaproxy(scope, mock.port),
    relay: () => startRelay(scope, mock.port),
    portkey: () => startPortkey(scope, mock.url),
    litellm: () => startLitellm(scope, mock.url, 'litellm'),
    'litellm-limits': () => startLitellm(scope, mock.url, 'litellm-limits'),
    'litellm-rs': () => startLitellmRs(scope, mock.url, 'litellm-rs'),
    'litellm-rs-limits': () => startLitellmRs(scope, mock.url, 'litellm-rs-limits'),
    tollgate: () => startTollgate(scope, mock),
    any: () => Promise.resolve(any && anyContender(any)),
    'tollgate-2': () => startTollgate(scope, mock, 'tollgate-2', THREADS['tollgate-2']),
    'tollgate-2p': () => startTollgate(scope, mock, 'tollgate-2p', THREADS['tollgate-2p'], 2),
    'tollgate-4': () => startTollgate(scope, mock, 'tollgate-4', THREADS['tollgate-4']),
  };
  const contenders: Contender[] = [];
  const missing: ContenderName[] = [];
  for (const name of names) {
    const contender = await starts[name]();
    if (contender === undefined) missing.push(name);
    else contenders.push(contender);
  }
  return { contenders, missing };
}
