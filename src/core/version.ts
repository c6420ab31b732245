/**
 * The version of the package, for the banner, the User-Agent and the status. Any thread.
 */
import { readFileSync } from 'node:fs';

/** The version, such as `0.1.0`. Reads package.json, two folders above the built file, at each call. */
export function packageVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
