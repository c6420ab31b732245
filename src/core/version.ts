/**
 * The version of the package, for the banner, the User-Agent and the status. Any thread. No test of its own.
 */
import { readFileSync } from 'node:fs';

let version: string | undefined;

/** The version, such as `0.1.0`. The first call reads package.json, two folders above the built file. */
export function packageVersion(): string {
  version ??= (
    JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
  ).version;
  return version;
}
