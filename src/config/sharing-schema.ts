/**
 * The settings of gateways on several hosts that share their limits and their registry through a Valkey or Redis: one
 * declaration each, and what must hold between them. Main threads and commands.
 */
import { Type } from 'typebox';
import { whole, type Annotations } from './annotations.js';
import type { SettingPath } from './config-error.js';
import type { SettingsDraft } from './schema.js';
import { parseSharingUrl } from './sharing-url.js';

/** The coordinator looks at every host when it is asked whether all have reported. */
export const SHARING_HOSTS_MAX = 1_000;
/** A partition is one script call of an exchange: more than servers of a Cluster are calls for nothing. */
const PARTITIONS_MAX = 64;
/** A day: a host that has been silent for longer is not coming back by itself. */
const NODE_EXPIRY_SECONDS_MAX = 86_400;

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
        description: 'User at the server; its default user where it is left out.',
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
    namespace: Type.String({
      pattern: '^[A-Za-z0-9._-]{1,64}$',
      default: 'tollgate',
      description: 'Begins every key at the server: gateways of one namespace share.',
      'x-want': 'a name of 1 to 64 letters, digits, dots, hyphens and underscores',
    } satisfies Annotations),
    hosts: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: SHARING_HOSTS_MAX,
        description: 'How many hosts share; equal_share divides by it.',
        'x-unit': 'hosts',
      } satisfies Annotations),
    ),
    on_authority_loss: Type.Enum(['refuse', 'equal_share'], {
      default: 'refuse',
      description:
        'Once what a gateway has leased is used up and the server cannot be reached: 503, or what was set aside for it of the money and the calls of the day, and after two minutes an equal share of the requests a minute.',
    } satisfies Annotations),
    node_expiry_seconds: whole(
      60,
      NODE_EXPIRY_SECONDS_MAX,
      900,
      'seconds',
      'After so long in silence the calls in flight of a gateway are taken for ended; at least the longest call.',
    ),
    partitions: whole(
      1,
      PARTITIONS_MAX,
      1,
      'partitions',
      'Parts that accounts are spread over: 1 for one server, some for each server of a Cluster. The same on all hosts.',
    ),
  },
  {
    description:
      'Hosts that share limits, accounts and keys through Valkey or Redis; without it there is one host.',
    'x-want': 'a map of settings',
    'x-applies': 'restart',
  } satisfies Annotations,
);

type Report = (path: SettingPath, text: string) => void;

/** What single declarations cannot say. */
export function checkSharing(draft: SettingsDraft, report: Report): void {
  const { sharing } = draft;
  if (sharing === undefined) return;
  if (sharing.on_authority_loss === 'equal_share' && sharing.hosts === undefined)
    report(
      ['sharing', 'hosts'],
      'missing, want the number of hosts: on_authority_loss equal_share divides by it',
    );
  const upstreams = draft.models?.flatMap((model) => model?.upstreams ?? []) ?? [];
  const longestMs = Math.max(0, ...upstreams.map((upstream) => upstream?.total_timeout_ms ?? 0));
  const expirySeconds = sharing.node_expiry_seconds;
  if (expirySeconds !== undefined && expirySeconds * 1_000 < longestMs)
    report(
      ['sharing', 'node_expiry_seconds'],
      `got ${expirySeconds}, want at least ${Math.ceil(longestMs / 1_000)}, the longest total_timeout_ms of an upstream in seconds`,
    );
}
