import { findPort } from '#src/gateway/find-port.js';

/**
 * A port of loopback that is free and that the kernel gives no connection, for a program that cannot choose
 * one itself or is started again on it.
 */
export async function freePort(): Promise<number> {
  const { port, release } = await findPort('127.0.0.1', 0, 'listen');
  release();
  return port;
}
