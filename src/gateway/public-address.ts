/**
 * Where this process reaches its own listeners. Pure; main thread.
 */
import type { PublicAddress } from '../admin/playground.js';
import type { Settings } from '../config/schema.js';

/** On loopback, where they listen on all addresses. `port`: the one in use. */
export function publicAddressOf({ listen }: Settings, port: number): PublicAddress {
  const host = listen.host === '0.0.0.0' ? '127.0.0.1' : listen.host === '::' ? '::1' : listen.host;
  return { host, port, tls: listen.tls !== undefined };
}
