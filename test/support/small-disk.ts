/** A disk that can be filled: a tmpfs of its own, which needs root. */
import { execFileSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, rmdirSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { temporaryFolder } from './gateway.js';
import type { Scope } from './mock.js';

const mount = (folder: string, size: string): unknown =>
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'tollgate-test', folder], { stdio: 'pipe' });

/** False, or why there can be no disk. */
export function reasonToSkip(): string | false {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-disk-'));
  try {
    mount(folder, '1m');
    execFileSync('umount', [folder]);
    return false;
  } catch {
    return 'a tmpfs cannot be mounted here: root is needed';
  } finally {
    rmdirSync(folder);
  }
}

/** Mounts a disk of `size`, such as `16m`, on `folder` until the test ends. Returns the folder. */
export function mountDisk(t: Scope, size: string, folder = temporaryFolder(t)): string {
  mount(folder, size);
  // Lazily: a process that was killed may still be going.
  t.teardown(() => execFileSync('umount', ['-l', folder]));
  return folder;
}

/** Takes all that is left of the disk, to the last byte. */
export function fill(folder: string): void {
  const file = openSync(join(folder, 'filler'), 'w');
  for (const bytes of [65_536, 4_096, 1]) {
    const chunk = Buffer.alloc(bytes);
    try {
      for (;;) writeSync(file, chunk);
    } catch (error) {
      if ((error as { code?: string }).code !== 'ENOSPC') throw error;
    }
  }
  closeSync(file);
}

export const empty = (folder: string): void => rmSync(join(folder, 'filler'));
