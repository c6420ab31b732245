/**
 * The address of the Valkey or Redis that hosts share: one server, the servers of a Cluster, or the Sentinels that know the
 * master. Pure; main threads and commands.
 *
 *     redis://10.0.0.5:6379/0                                   one server, database 0
 *     redis-sentinel://10.0.0.5:26379,10.0.0.6:26379/0#main     Sentinels, and the name that they know the master by
 *     redis-cluster://10.0.0.5:6379,10.0.0.6:6379               some servers of a Cluster
 *
 * `rediss…` is the same over TLS, as clients of Redis write it everywhere; the two longer forms are those of Lettuce.
 */

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
}

export interface SharingAddress {
  readonly kind: 'server' | 'sentinel' | 'cluster';
  readonly tls: boolean;
  /** At least one; exactly one of a server. */
  readonly servers: readonly ServerAddress[];
  /** A Cluster has 0 alone. */
  readonly database: number;
  /** The name that Sentinels know the master by; empty without them. */
  readonly master: string;
}

/** More seeds than anybody needs to find the rest. */
const SERVERS_MAX = 16;
const FORM =
  /^redis(?<tls>s?)(?:-(?<kind>sentinel|cluster))?:\/\/(?<servers>[^/#?@]+)(?:\/(?<database>\d{1,4})?)?(?:#(?<master>[A-Za-z0-9._-]{1,128}))?$/;
const SERVER = /^(?:\[(?<v6>[0-9A-Fa-f:.]{2,64})\]|(?<host>[0-9A-Za-z._-]{1,255}))(?::(?<port>\d{1,5}))?$/;
const SERVER_PORT = 6_379;
const SENTINEL_PORT = 26_379;

/** Undefined where the text has none of the three forms. */
export function parseSharingUrl(text: string): SharingAddress | undefined {
  const form = FORM.exec(text)?.groups;
  if (form === undefined) return undefined;
  const kind = form.kind === 'sentinel' || form.kind === 'cluster' ? form.kind : 'server';
  const servers = form.servers!.split(',').map((server) => serverOf(server, kind));
  const sound = servers.filter((server) => server !== undefined);
  const database = Number(form.database ?? 0);
  if (sound.length < servers.length || servers.length > SERVERS_MAX) return undefined;
  if (kind === 'server' && servers.length > 1) return undefined;
  if (kind === 'cluster' && database !== 0) return undefined;
  if ((kind === 'sentinel') !== (form.master !== undefined)) return undefined;
  return { kind, tls: form.tls === 's', servers: sound, database, master: form.master ?? '' };
}

function serverOf(text: string, kind: SharingAddress['kind']): ServerAddress | undefined {
  const parts = SERVER.exec(text)?.groups;
  if (parts === undefined) return undefined;
  const port = Number(parts.port ?? (kind === 'sentinel' ? SENTINEL_PORT : SERVER_PORT));
  return port >= 1 && port <= 65_535 ? { host: (parts.v6 ?? parts.host)!, port } : undefined;
}
