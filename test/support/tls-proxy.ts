/** A proxy for tests as nginx is one: TLS ends at it, and it passes on over plain HTTP. */
import { once } from 'node:events';
import { request } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Certificate } from '../fixtures/upstream-certificate.js';
import type { Scope } from './mock.js';

export interface TlsProxy {
  readonly port: number;
  /** Where it passes requests on to. */
  target: number;
  /**
   * Whether it passes on the name that the browser asked for, and that it was HTTPS. nginx must be told to.
   */
  tells: boolean;
  /** `set-cookie` headers that came through. */
  readonly cookies: string[];
}

export async function startTlsProxy(t: Scope, { certificate, key }: Certificate): Promise<TlsProxy> {
  const server = createServer({ cert: certificate, key });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const proxy: TlsProxy = { port, target: 0, tells: true, cookies: [] };
  server.on('request', (incoming, outgoing) => {
    const { target, tells } = proxy;
    const told = tells
      ? { 'x-forwarded-proto': 'https', 'x-forwarded-for': '203.0.113.9' }
      : { host: `127.0.0.1:${target}` };
    const { method, url: path, headers } = incoming;
    const passed = request({
      port: target,
      host: '127.0.0.1',
      method,
      path,
      headers: { ...headers, ...told },
    });
    passed.once('response', (answer) => {
      proxy.cookies.push(...(answer.headers['set-cookie'] ?? []));
      outgoing.writeHead(answer.statusCode!, answer.headers);
      answer.pipe(outgoing);
    });
    passed.once('error', () => outgoing.destroy());
    outgoing.once('close', () => passed.destroy());
    incoming.pipe(passed);
  });
  return proxy;
}
