/**
 * Which files the settings are made of. supervisor.ts has file-watch.ts watch them. Pure.
 *
 * Must hold: each file whose content config/load.ts reads into the settings is here, or a change of it is not
 * seen. Not here is what others read when they need it, and again by themselves: `credentials_file`
 * (providers/credentials). Test: test/unit/supervisor/watched-files.test.ts, which knows all settings that
 * are called `…_file`.
 */
import type { Settings } from '../config/schema.js';

/** Returns `source`, the file of the settings, if there is one, and each file that a setting names, once. */
export function filesOf(source: string | undefined, settings: Settings): string[] {
  const { models, notify, admin, listen } = settings;
  const upstreams = models.flatMap((model) => model.upstreams);
  const paths = [source, ...upstreams.flatMap(({ key_file: key, ca_file: ca }) => [key, ca])];
  paths.push(notify?.secret_file, admin.oidc?.client_secret_file);
  paths.push(listen.tls?.cert_file, listen.tls?.key_file);
  return [...new Set(paths)].filter((path) => path !== undefined);
}
