/**
 * A main thread that waits for the lock of the store, and that nobody wakes when it is free, goes on. The
 * test holds the lock and takes away the note that somebody waits, as a process does that is killed at the
 * wrong moment (src/telemetry/main-watchdog.ts).
 */
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import t from 'tap';
import { Environment } from '#src/store/environment.js';
import { OPTIONS, storePath } from '#src/store/store-file.js';
import { startBed } from '../support/bed.js';

/** FUTEX_WAITERS of Linux: the owner must wake somebody when it frees the lock. */
const SOMEBODY_WAITS = 0x8000_0000;
const WAIT_MAX_MS = 20_000;
/** Between the note and the system call that waits. */
const ASLEEP_MS = 100;
/** main-watchdog.ts promises 5 s; a busy machine gets more, of which a stuck thread would have no use. */
const FREED_MAX_MS = 20_000;

const pause = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

/** Takes away the note from the lock in that file, which this thread holds; false if nobody waits for it. */
function forgetWaiter(lockPath: string): boolean {
  const owner = Buffer.alloc(4);
  owner.writeUInt32LE(process.pid);
  const noted = Buffer.alloc(4);
  noted.writeUInt32LE((process.pid | SOMEBODY_WAITS) >>> 0);
  const at = readFileSync(lockPath).indexOf(noted);
  if (at < 0) return false;
  pause(ASLEEP_MS);
  const file = openSync(lockPath, 'r+');
  writeSync(file, owner, 0, owner.length, at);
  closeSync(file);
  return true;
}

void t.test('a main thread that nobody wakes is interrupted', { timeout: 120_000 }, async (t) => {
  const { gateway } = await startBed(t);
  const { key, accountId } = await gateway.admin.customer();
  t.equal((await gateway.chat(key, 'to be written to the store')).status, 200);
  const path = storePath(gateway.dataFolder);
  const environment = new Environment(path, OPTIONS);
  let isForgotten = false;
  environment.write(() => {
    for (let waitedMs = 0; waitedMs < WAIT_MAX_MS && !isForgotten; waitedMs++) {
      isForgotten = forgetWaiter(`${path}-gate-lock`);
      pause(1);
    }
  });
  const freedMs = performance.now();
  t.ok(isForgotten, 'the gateway waited for the lock');
  const { id } = await gateway.admin.account(accountId);
  const tookMs = performance.now() - freedMs;
  t.equal(id, accountId, `its main thread went on after ${Math.round(tookMs)} ms`);
  t.ok(tookMs < FREED_MAX_MS);
  await environment.close();
  t.equal(await gateway.stop(), 0);
});
