/**
 * The upstreams of a model, as upstream workers have them (route-table.ts). gateway/settings-records.ts makes
 * them from the settings, in the main thread, also to test upstreams (gateway/upstream-probe.ts).
 *
 * Must hold: a target has the provider's key, so no listener, log or response gets a target
 * (test/e2e/secrets.test.ts). A new field gets its place in TELLS_APART, or after a reload a target may get
 * the breaker of another (also test/unit/upstream/route-table.test.ts).
 */
import { isDeepStrictEqual } from 'node:util';
import type { Settings } from '../config/schema.js';
import type { DoorName } from '../core/door-names.js';
import type { UpstreamLimits } from '../core/quotas.js';
import { SECRET_CHARS_MIN, secretsInPath, withoutPathSecrets } from '../core/secret-url.js';
import type { UpstreamScopeIndex } from '../core/units.js';
import type { HttpClient, HttpTarget } from '../http1/http-client.js';
import type { ProviderSettings } from '../providers/provider.js';
import type { MemberNames } from './upstream-body.js';

/** The limits of an upstream, which it may share with others. */
export interface TargetQuotas {
  readonly scope: UpstreamScopeIndex;
  readonly limits: UpstreamLimits;
  /** How long a call may wait while the upstream is at its limits; 0: it does not wait. */
  readonly queueMs: number;
}

export interface UpstreamTarget extends HttpTarget {
  /** Slot of the upstream's counters in the metrics. */
  readonly slot: number;
  /** The upstream's name of the model; undefined if it is the model's id. */
  readonly model: string | undefined;
  /** Share of the calls among targets of the same priority; at least 1. */
  readonly weight: number;
  /** 1 is best. */
  readonly priority: number;
  /** How many failures open the upstream's breaker; 0: it never opens. */
  readonly breakerFailuresMax: number;
  /** How long the upstream's Retry-After is obeyed if no other upstream is left; 0: never, even then. */
  readonly parkMsMax: number;
  /** What happens to an attempt that is charged, if its client leaves. */
  readonly whenClientLeaves: 'abort' | 'finish';
  /** Undefined if the upstream has no limits. */
  readonly quotas: TargetQuotas | undefined;
  /** The path of each door besides chat whose protocol it speaks; empty if the provider's client makes it. */
  readonly doors: Readonly<Partial<Record<DoorName, string>>>;
  /** Undefined if the upstream speaks OpenAI's protocol, so that bodies pass byte for byte. */
  readonly provider: ProviderSettings | undefined;
  /** The setting `member_names`. Only for an upstream that speaks OpenAI's protocol. */
  readonly memberNames?: MemberNames | undefined;
  /** Whether it wants the thoughts of earlier turns back. Only for one that speaks OpenAI's protocol. */
  readonly thoughtsBack?: boolean | undefined;
}

/** Origin of the built-in echo model (echo-client.ts). */
export const ECHO_ORIGIN = 'echo:';

type ModelSettings = Settings['models'][number];

/** The names in settings. tokenizer.ts has a table and a pattern for each but `none`, which estimates. */
export type Tokenizer = ModelSettings['tokenizer'];

/** Why a fallback gets a call. `unavailable`: no upstream of the model could serve the call. */
export type FallbackReason = ModelSettings['fallback_on'][number];

/** One model's upstreams. Routes are listed in the order of the catalogue. */
export interface ModelRoute {
  readonly id: string;
  /** The maker of the model. */
  readonly ownedBy: string;
  readonly tokenizer: Tokenizer;
  /** The most tokens that the model can generate for one choice. */
  readonly outputTokensMax: number;
  /** Tokens that each media part of a prompt counts for, besides its bytes. */
  readonly mediaPartTokens: number;
  /** After which failures the model's fallbacks get a call. */
  readonly fallbackOn: readonly FallbackReason[];
  /** Sorted by priority, best first. */
  readonly targets: readonly UpstreamTarget[];
  /** The model was removed from the settings. A call on its way to a worker still finds its upstreams. */
  readonly retired?: true;
}

/**
 * By field: whether a target with another value there is another upstream, so that after a reload it begins
 * with a closed breaker. What is true here is the service, the credentials, and what its Breaker was made of.
 */
const TELLS_APART: Readonly<Record<keyof UpstreamTarget, boolean>> = {
  origin: true,
  path: true,
  key: true,
  headers: true,
  ca: true,
  provider: true,
  doors: true,
  breakerFailuresMax: true,
  // What a call is told, how long it may take, and which call comes here.
  name: false,
  slot: false,
  model: false,
  memberNames: false,
  thoughtsBack: false,
  connectTimeoutMs: false,
  firstByteTimeoutMs: false,
  idleTimeoutMs: false,
  totalTimeoutMs: false,
  connectionsMax: false,
  weight: false,
  priority: false,
  parkMsMax: false,
  whenClientLeaves: false,
  quotas: false,
};
const TELLING_FIELDS = (Object.keys(TELLS_APART) as (keyof UpstreamTarget)[]).filter(
  (field) => TELLS_APART[field],
);

/** Whether one target's breaker and calls in flight go to the other: same service, same credentials. */
export function isSameUpstream(first: UpstreamTarget, second: UpstreamTarget): boolean {
  return TELLING_FIELDS.every((field) => isDeepStrictEqual(first[field], second[field]));
}

/** The target's address for operators, without the query and what else may be a key in it. */
export function addressOf({ origin, path }: HttpTarget): string {
  return origin === ECHO_ORIGIN ? ECHO_ORIGIN : `${origin}${withoutPathSecrets(path.replace(/\?.*/s, ''))}`;
}

/**
 * The secrets of a target that its upstream could repeat: the key, also one in the query or the path of its
 * address, each word of its headers' values, and the project or resource that is billed. Long ones first.
 */
export function secretsOf({ path, key, headers, provider }: UpstreamTarget): string[] {
  const billed =
    provider === undefined ? [] : [provider.project, provider.name === 'azure' ? provider.host : ''];
  const words = [...Object.values(headers).flatMap((value) => value.split(/[\s,;=]+/)), ...billed].filter(
    (word) => word.length >= SECRET_CHARS_MIN,
  );
  const secrets = [...(key === undefined || key === '' ? [] : [key]), ...secretsInPath(path), ...words];
  // A short secret may be part of a long one. If it were cut out first, the rest of the long one would stay.
  return secrets.sort((first, second) => second.length - first.length);
}

/** What calls a target: Http1Client, ProviderClient or EchoClient, as attempts use them. */
export type AttemptClient = Pick<HttpClient<UpstreamTarget>, 'start'>;
