/**
 * The version of the package: for `tollgate --version`, the banner, the User-Agent of requests that the
 * gateway sends, the OpenAPI documents, the traces, the metrics, and `/admin/v1/status`. Any thread.
 *
 * Must hold: the file that runs lies two folders below package.json: in dist/core, or in dist/chunks, where
 * scripts/bundle.mjs writes it. Otherwise no process starts (test/deploy/package.test.ts).
 */
import { readFileSync } from 'node:fs';

let version: string | undefined;

/** Returns the version, such as `0.1.0`. The first call of each thread reads package.json. */
export function packageVersion(): string {
  version ??= (
    JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
  ).version;
  return version;
}
