/**
 * A memory cgroup for a process of a test, by version 1 or 2, as a container's limit is one. Both need root.
 */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Scope } from './mock.js';

const V1 = '/sys/fs/cgroup/memory';
const V2 = '/sys/fs/cgroup';
let groups = 0;

export class MemoryCgroup {
  readonly #folder: string;
  readonly #isV1: boolean;

  /** With `limitBytes` of memory and no swap; undefined where this machine lets us make none. */
  static create(t: Scope, limitBytes: number): MemoryCgroup | undefined {
    const isV1 = existsSync(join(V1, 'memory.limit_in_bytes'));
    const folder = join(isV1 ? V1 : V2, `tollgate-test-${process.pid}-${++groups}`);
    try {
      mkdirSync(folder);
    } catch {
      return undefined;
    }
    // A group with processes in it stays; they end soon.
    t.teardown(() => {
      try {
        rmdirSync(folder);
      } catch {
        // It is empty but for its processes, and costs nothing.
      }
    });
    const group = new MemoryCgroup(folder, isV1);
    try {
      if (isV1) {
        group.#write('memory.limit_in_bytes', limitBytes);
        group.#writeIfThere('memory.memsw.limit_in_bytes', limitBytes);
      } else {
        group.#write('memory.max', limitBytes);
        group.#writeIfThere('memory.swap.max', 0);
      }
      return group;
    } catch {
      return undefined;
    }
  }

  private constructor(folder: string, isV1: boolean) {
    this.#folder = folder;
    this.#isV1 = isV1;
  }

  /** What is put before a command line, so that its process and those that it starts are in the group. */
  get launcher(): readonly string[] {
    return ['/bin/sh', '-c', `echo $$ > ${join(this.#folder, 'cgroup.procs')} && exec "$@"`, 'sh'];
  }

  /** Memory that cannot be had back from its owners: without the files' cache. */
  residentBytes(): number {
    return this.#stat(this.#isV1 ? 'rss' : 'anon');
  }

  /** Processes that were killed for want of memory. */
  kills(): number {
    return this.#count(this.#isV1 ? 'memory.oom_control' : 'memory.events', 'oom_kill');
  }

  #stat(name: string): number {
    return this.#count('memory.stat', name);
  }

  #count(file: string, name: string): number {
    const line = new RegExp(`^${name} (\\d+)$`, 'm').exec(readFileSync(join(this.#folder, file), 'utf8'));
    return Number(line?.[1] ?? 0);
  }

  #write(file: string, value: number): void {
    writeFileSync(join(this.#folder, file), String(value));
  }

  /** Without swap accounting there is no such file. */
  #writeIfThere(file: string, value: number): void {
    if (existsSync(join(this.#folder, file))) this.#write(file, value);
  }
}
