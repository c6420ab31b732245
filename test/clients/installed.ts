/**
 * Packages of npm that are not dependencies of Tollgate: what `test/setup-tools.sh clients` has put into
 * build/tools/clients. The tests declare of their types what they use.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

export const FOLDER = resolve('build/tools/clients');

/** Options of a test that wants them: it is skipped where they are not. */
export const WANTS_CLIENTS = existsSync(resolve(FOLDER, 'installed.json'))
  ? {}
  : { skip: 'no client libraries: test/setup-tools.sh clients' };

const load = createRequire(resolve(FOLDER, 'package.json'));

/** Returns what a package exports, as the caller says. Throws if it is not there. */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- else a cast at each call
export function installed<Exports>(name: string): Exports {
  return load(name) as Exports;
}
