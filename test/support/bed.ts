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

/**
 * A bed that tests of a file share, which must have accounts of their own: the first that asks starts it, and
 * it ends with the file. A gateway's start and end take more than 1 s of CPU.
 */
export function shareBed(
  root: Scope,
  ...more: [settings?: Parameters<typeof testSettings>[1], options?: BedOptions]
): () => Promise<Bed> {
  let bed: Promise<Bed> | undefined;
  return () => (bed ??= startBed(root, ...more));
}
