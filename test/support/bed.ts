/**
 * The whole path for a test: a mock upstream, a gateway in front of it, and customers.
 */
import { startGateway, testSettings, type Gateway } from './gateway.js';
import { startMock, type Mock, type Scope } from './mock.js';

export interface Bed {
  readonly mock: Mock;
  readonly gateway: Gateway;
}

/** Of the mock's command line and the gateway's environment. */
export interface BedOptions {
  readonly mockArgs?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** Settings are those of `testSettings`, with `plans` and others over them. */
export async function startBed(
  t: Scope,
  settings: Parameters<typeof testSettings>[1] = {},
  { mockArgs, env }: BedOptions = {},
): Promise<Bed> {
  const mock = await startMock(t, mockArgs);
  const gateway = await startGateway(t, { config: testSettings(mock.url, settings), env });
  return { mock, gateway };
}
