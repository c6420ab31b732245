/**
 * Declares the section `sharing`, for gateways on several hosts that share limits and accounts through a
 * Valkey or Redis, and parses the address of that server. schema.ts has the section as part of all settings;
 * rules between settings are in cross-checks.ts. Main threads and commands.
 *
 * Must hold (test/unit/config/sharing-schema.test.ts, which tests the rules of cross-checks.ts too):
 * - An address that is accepted at the start is one that `parseSharingUrl` can parse, so the schema asks that
 *   function.
 * - No address has a user or a password, because `url` is no secret: it is shown and logged.
 * - A namespace has no braces.
 */
import { isIPv6 } from 'node:net';
import * as Type from 'typebox';
import { optionalLimit, settingsMap, wholeNumber, type Annotations } from './annotations.js';
import { TIMEOUT_MS_MAX } from './upstream-schema.js';

/** After a loss a script visits all nodes, and the server serves nobody meanwhile. More hosts could join. */
const SHARING_HOSTS_MAX = 1_000;
/** Each partition costs a script call. More partitions than servers of a Cluster gain nothing. */
const PARTITIONS_MAX = 64;
/** The longest total_timeout_ms of an upstream, because cross-checks.ts wants an expiry of at least that. */
const NODE_EXPIRY_SECONDS_MAX = TIMEOUT_MS_MAX / 1_000;

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
}

export interface SharingAddress {
  readonly kind: 'server' | 'sentinel' | 'cluster';
  readonly tls: boolean;
  /** At least one; exactly one if `kind` is `server`. */
  readonly servers: readonly ServerAddress[];
  /** 0 for a Cluster, which has no other database. */
  readonly database: number;
  /** The name by which the Sentinels know the master; empty without Sentinels. */
  readonly master: string;
}

/** How many servers an address may name. A client needs few to find all others. */
const SERVERS_MAX = 16;
/** Scheme, servers with commas between them, `/database`, `#master`. Without `@` there is no user. */
const ADDRESS =
  /^redis(?<tls>s?)(?:-(?<kind>sentinel|cluster))?:\/\/(?<servers>[^/#?@]+)(?:\/(?<database>\d{1,4})?)?(?:#(?<master>[A-Za-z0-9._-]{1,128}))?$/;
/** A name, an IPv4 address, or an IPv6 address in brackets; then `:port`, or none for a default port. */
const SERVER = /^(?:\[(?<v6>[0-9A-Fa-f:.]{2,64})\]|(?<host>[0-9A-Za-z._-]{1,255}))(?::(?<port>\d{1,5}))?$/;
const SERVER_PORT = 6_379;
const SENTINEL_PORT = 26_379;

/**
 * Parses the address of one server, of the servers of a Cluster, or of the Sentinels that know the master:
 *
 *     redis://10.0.0.5:6379/0                                   one server, database 0
 *     redis-sentinel://10.0.0.5:26379,10.0.0.6:26379/0#main     Sentinels, and their name for the master
 *     redis-cluster://10.0.0.5:6379,10.0.0.6:6379               some servers of a Cluster
 *     redis://[fd00::5]                                         IPv6, with the port and database of the first
 *
 * The ports in these examples, and database 0, are the defaults. `rediss…` is the same over TLS, as clients
 * of Redis write it; the two longer schemes are those of Lettuce. Returns undefined if the text has none of
 * these forms.
 */
export function parseSharingUrl(text: string): SharingAddress | undefined {
  const fields = ADDRESS.exec(text)?.groups;
  if (fields === undefined) return undefined;
  const kind = fields.kind === 'sentinel' || fields.kind === 'cluster' ? fields.kind : 'server';
  // `!`: the servers are not optional in ADDRESS.
  const servers = fields.servers!.split(',').map((server) => serverOf(server, kind));
  const valid = servers.filter((server) => server !== undefined);
  const database = Number(fields.database ?? 0);
  if (valid.length < servers.length || servers.length > SERVERS_MAX) return undefined;
  if (kind === 'server' && servers.length > 1) return undefined;
  if (kind === 'cluster' && database !== 0) return undefined;
  if ((kind === 'sentinel') !== (fields.master !== undefined)) return undefined;
  return { kind, tls: fields.tls === 's', servers: valid, database, master: fields.master ?? '' };
}

/** Returns undefined if the text is no server. `kind` decides the default port. */
function serverOf(text: string, kind: SharingAddress['kind']): ServerAddress | undefined {
  const fields = SERVER.exec(text)?.groups;
  if (fields === undefined || (fields.v6 !== undefined && !isIPv6(fields.v6))) return undefined;
  const port = Number(fields.port ?? (kind === 'sentinel' ? SENTINEL_PORT : SERVER_PORT));
  return port >= 1 && port <= 65_535 ? { host: (fields.v6 ?? fields.host)!, port } : undefined;
}

export const sharingSchema = Type.Object(
  {
    url: Type.Refine(
      Type.String({
        maxLength: 2_000,
        description:
          'redis://host:6379/0, redis-sentinel://host:26379,host:26379/0#name or redis-cluster://host:6379,host:6379; rediss…: TLS.',
        'x-environment': 'TOLLGATE_SHARING_URL',
        'x-want':
          'redis://host:port/database, redis-sentinel://host:port,host:port/database#name or redis-cluster://host:port,host:port, or the same with rediss, without user and password',
      } satisfies Annotations),
      (text) => parseSharingUrl(text) !== undefined,
    ),
    username: Type.Optional(
      Type.String({
        pattern: '^[!-~]{1,256}$',
        description: 'User at the server; its default user if it is left out.',
        'x-want': 'a name of 1 to 256 visible ASCII characters',
      } satisfies Annotations),
    ),
    password: Type.Optional(
      Type.String({
        pattern: '^[!-~]{1,1024}$',
        description: 'Password at the server, as a reference to an environment variable.',
        'x-want': 'a reference such as "${VALKEY_PASSWORD}" (visible characters, no spaces)',
        'x-secret': true,
      } satisfies Annotations),
    ),
    // No braces: the keys of a partition lie on one server by their hash tag, {namespace:partition}.
    namespace: Type.String({
      pattern: '^[A-Za-z0-9._-]{1,64}$',
      default: 'tollgate',
      description: 'Begins every key at the server: gateways of one namespace share.',
      'x-want': 'a name of 1 to 64 letters, digits, dots, hyphens and underscores',
    } satisfies Annotations),
    hosts: optionalLimit(1, SHARING_HOSTS_MAX, 'hosts', {
      description: 'How many hosts share; equal_share divides by it.',
    }),
    // Without a default here, because it depends on `hosts`: sharing/open-hosts.ts has it.
    on_authority_loss: Type.Optional(
      Type.Enum(['refuse', 'equal_share'], {
        description:
          'Default equal_share if hosts is given, else refuse. Once what a gateway has leased is used up and the server cannot be reached: 503, or what was set aside for it of the money and the calls of the day, and after two minutes an equal share of the requests a minute.',
      } satisfies Annotations),
    ),
    node_expiry_seconds: wholeNumber(60, NODE_EXPIRY_SECONDS_MAX, 900, 'seconds', {
      description:
        'A gateway that the server has not answered for so long begins no call; after as long again, or as long as a call can last on several upstreams, its calls in flight are taken for ended. At least the longest total_timeout_ms.',
    }),
    partitions: wholeNumber(1, PARTITIONS_MAX, 1, 'partitions', {
      description:
        'Parts that accounts are spread over: 1 for one server, some for each server of a Cluster. The same on all hosts.',
    }),
  },
  settingsMap(
    'Hosts that share limits, accounts and keys through Valkey or Redis; without it there is one host.',
    'restart',
  ),
);
