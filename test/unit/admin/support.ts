/**
 * The admin interface on a port of its own, over a store with nothing in it.
 */
import type { Test } from 'tap';
import { startAdmin } from '#src/admin/server.js';
import { request, type Answer, type RequestOptions } from '../../support/http.js';
import { ListLog, openHouse, type House } from '../store/support.js';

export const TOKEN = 'operator-token-0123456789';

export interface AdminHouse extends House {
  readonly port: number;
  readonly log: ListLog;
  /** What `/readyz` is told. */
  ready: boolean;
  /** A request with the token, unless other headers are given. */
  send(method: string, path: string, body?: unknown, more?: Partial<RequestOptions>): Promise<Answer>;
}

export async function startAdminHouse(t: Test): Promise<AdminHouse> {
  const house = openHouse(t.testdir());
  const log = new ListLog();
  const started = {
    ...house,
    port: 0,
    log,
    ready: true,
    send: (method: string, path: string, body?: unknown, more: Partial<RequestOptions> = {}) =>
      request({
        port: started.port,
        method,
        path,
        body,
        headers: { authorization: `Bearer ${TOKEN}` },
        ...more,
      }),
  };
  const server = await startAdmin({
    host: '127.0.0.1',
    port: 0,
    token: TOKEN,
    registry: house.registry,
    readiness: () => started.ready,
    status: () => ({ calls_in_flight: 3 }),
    log,
  });
  started.port = server.port;
  t.teardown(async () => {
    server.close();
    await house.store.close();
  });
  return started;
}
