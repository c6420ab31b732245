/**
 * One change appended to the log that hosts share, once, also over a connection that breaks. Main thread.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { RegistryPosition, RegistryRow } from '../store/registry-copy.js';
import type { RegistryServer } from './registry-server.js';
import { ValkeyError } from './valkey-client.js';

/** A change whose fate is not known is sent again: it names its place in the log, so it is made once. */
const SENDS_MAX = 3;
const RETRY_MS = 500;

/**
 * False where another change came first. Rejects with ValkeyError: `refused` where the change was not made, any other where that
 * is not known.
 */
export async function appendOnce(
  server: Pick<RegistryServer, 'append' | 'pull'>,
  position: RegistryPosition,
  id: string,
  rows: readonly RegistryRow[],
): Promise<boolean> {
  let unsure: ValkeyError | undefined;
  for (let sends = 1; ; sends++) {
    try {
      const reply = await server.append(position, id, rows);
      if (reply === 'done' || unsure === undefined) return reply === 'done';
      // What came first may be an earlier sending of this.
      const found = await server.pull(position);
      return found?.changes[0]?.id === id;
    } catch (error) {
      if (!(error instanceof ValkeyError)) throw error;
      // A refusal tells nothing of an earlier sending.
      if (unsure === undefined || error.code !== 'refused') unsure = error;
      if (unsure.code === 'refused' || sends >= SENDS_MAX) throw unsure;
      await pause(RETRY_MS);
    }
  }
}
