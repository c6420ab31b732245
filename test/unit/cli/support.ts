/**
 * Commands without a gateway: on the store itself, in a folder with a configuration of two plans.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { Store } from '#src/store/store.js';
import { runCommand, type CommandEnd } from '../../support/command.js';

export const SETTINGS = `
models:
  - { id: small, owned_by: house, price: { input: "1", output: "2" }, upstreams: [{ url: "echo:" }] }
plans:
  - { id: free, requests_per_minute: 60, calls_per_day: 1000, models: ["*"] }
  - { id: paid, requests_per_minute: 600, calls_per_day: 100000, models: ["*"] }
`;

export type Run = (...args: string[]) => Promise<CommandEnd>;

export function commandFolder(t: Test): { folder: string; run: Run } {
  const folder = t.testdir();
  writeFileSync(join(folder, 'tollgate.yaml'), SETTINGS);
  return { folder, run: (...args) => runCommand(folder, args) };
}

/** Makes empty books in the folder, as the first start of a gateway does. */
export async function makeBooks(folder: string): Promise<void> {
  await Store.hold(join(folder, 'data'), { kind: 'command' }).close();
}

/** Refused: exit code 1, the reason on standard error in one line, nothing on standard output. */
export function checkRefused(t: Test, end: CommandEnd, reason: RegExp): void {
  t.match(end, { code: 1, stdout: '', stderr: reason });
  t.equal(end.stderr.trimEnd().split('\n').length, 1, 'one line and no stack');
}

/** Misused: exit code 2, what was wrong on standard error. */
export function checkMisused(t: Test, end: CommandEnd, reason: RegExp): void {
  t.match(end, { code: 2, stdout: '', stderr: reason });
}
