/**
 * A wire of loopback that can be cut: what goes through it is lost, or held back, as long as the test says.
 */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import type { Scope } from './mock.js';

/**
 * `open` carries; `held` keeps connections and lets nothing through; `cut` breaks them and refuses new ones.
 */
export type WireState = 'open' | 'held' | 'cut';

export interface Wire {
  readonly host: string;
  readonly port: number;
  /** Connections that came through since the start. */
  readonly connections: number;
  set(state: WireState): void;
}

export async function startWire(t: Scope, targetPort: () => number): Promise<Wire> {
  const pairs = new Set<readonly [Socket, Socket]>();
  let state: WireState = 'open';
  let connections = 0;
  const server = createServer((near) => {
    if (state === 'cut') {
      near.destroy();
      return;
    }
    connections += 1;
    const far = connect({ host: '127.0.0.1', port: targetPort() });
    const pair = [near, far] as const;
    pairs.add(pair);
    for (const [from, to] of [pair, [far, near]] as const) {
      from.on('data', (data) => to.write(data));
      from.on('error', () => undefined);
      from.on('close', () => {
        to.destroy();
        pairs.delete(pair);
      });
      if (state === 'held') from.pause();
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const wire = {
    host: '127.0.0.1',
    port: (server.address() as AddressInfo).port,
    get connections() {
      return connections;
    },
    set(next: WireState): void {
      state = next;
      for (const pair of pairs) {
        for (const end of pair) {
          if (next === 'cut') end.destroy();
          else if (next === 'held') end.pause();
          else end.resume();
        }
      }
    },
  };
  t.teardown(() => {
    wire.set('cut');
    server.close();
  });
  return wire;
}
