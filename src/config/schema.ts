/**
 * Declares every setting of `tollgate.yaml` once: type, bounds, unit, default, description, environment
 * variable, and when a change applies. The type `Settings`, the JSON Schema, docs/configuration.md and what a
 * reload adopts are derived from the declarations. load.ts reads the file by them; main threads and commands
 * use the result. Listeners and workers get plain records that gateway/settings-records.ts makes of the
 * settings. `wholeNumber` declares a number by its lowest and highest value, its default and its unit
 * (annotations.ts).
 *
 * Must hold:
 * - Every setting has a description, every number bounds, every text a rule in words
 *   (test/unit/config/schema.test.ts).
 * - Names, units and defaults stay, because operators' files rely on them. `npm run docs` copies the
 *   descriptions to docs/configuration.md.
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import {
  ACCOUNTS_MAX,
  CALLS_IN_FLIGHT_MAX,
  FRAME_BYTES_MAX,
  GROUPS_MAX,
  KEYS_MAX,
  PROCESSES_MAX,
  STORE_BYTES_MAX,
  UPSTREAM_RESPONSE_BYTES_MAX,
  WORKERS_MAX,
} from '../core/limits.js';
import { isTimezone, SPECIFIED_TIMEZONE } from '../core/calendar.js';
import {
  BODY_BYTES_MAX,
  BODY_BYTES_MIN,
  switchSetting,
  optionalLimit,
  section,
  settingsMap,
  wholeNumber,
  type Annotations,
  type Declaration,
} from './annotations.js';
import { cacheSchema } from './cache-schema.js';
import { MODELS_MAX, modelSchema, planSchema } from './catalog-schema.js';
import { adminSchema, listenSchema } from './listen-schema.js';
import { accessLogSchema, callLogSchema, logSchema, usageLogSchema } from './log-schema.js';
import { notifySchema } from './notify-schema.js';
import { sharingSchema } from './sharing-schema.js';

/** Every listener and worker has a copy of all plans in memory. */
const PLANS_MAX = 1_000;
/** The listener itself parses bodies up to this size. Above 1 MiB its other calls would wait too long. */
const PARSE_INLINE_BYTES_MAX = 1024 * 1024;
/** Memory for each stream with a slow reader. */
const STREAM_BUFFER_BYTES_MAX = 16 * 1024 * 1024;
/** 1 TiB: 2^30 KiB, which counters of 32 bits with a sign can hold (request/body-budget.ts). */
const BODIES_IN_WORK_BYTES_MAX = 2 ** 40;
/** 31 days. An equal request after this time is no retry. */
const KEEP_HOURS_MAX = 744;
/** Stored responses: space for two of the longest. */
const STORED_BYTES_MIN = 2 * UPSTREAM_RESPONSE_BYTES_MAX;
/** Half of the largest store, which has the books too. */
const STORED_BYTES_MAX = STORE_BYTES_MAX / 2;
const RESPONSE_BYTES_MIN = 1_024;

const idempotencySchema = Type.Object(
  {
    keep_hours: wholeNumber(1, KEEP_HOURS_MAX, 24, 'hours', {
      description: 'How long a repeat with the same Idempotency-Key gets the answer of the first.',
    }),
    store_bytes: wholeNumber(STORED_BYTES_MIN, STORED_BYTES_MAX, 268_435_456, 'bytes', {
      description: 'Answers that are kept, of all accounts; the oldest go first.',
    }),
    answer_bytes: wholeNumber(RESPONSE_BYTES_MIN, UPSTREAM_RESPONSE_BYTES_MAX, 4_194_304, 'bytes', {
      description:
        'Longest answer that is kept; a repeat of a longer one is refused with 400, and not charged again.',
    }),
  },
  section('Answers that are kept for repeats with the same Idempotency-Key.', 'replacement'),
);

export const settingsSchema = Type.Object(
  {
    listen: listenSchema,
    admin: adminSchema,
    workers: wholeNumber(0, WORKERS_MAX, 1, 'threads', {
      description:
        'Threads that call upstreams and relay their answers while listeners are busy (`workers_from_load_percent`). With 0 each listener always does that itself.',
      applies: 'replacement',
    }),
    workers_from_load_percent: wholeNumber(0, 100, 50, 'percent', {
      description:
        'How much of its time a listener may be busy before it hands calls to the workers. Below that it calls upstreams itself, because a call that comes alone is answered sooner and for less CPU if no thread has to be woken. 0: the workers get all calls, and listeners have no keys of providers.',
      applies: 'replacement',
    }),
    sharing: Type.Optional(sharingSchema),
    processes: wholeNumber(1, PROCESSES_MAX, 1, 'processes', {
      description:
        'Gateway processes on one port, each with its own listeners, workers and limits.calls_in_flight; accounts and limits are shared. One that dies takes only its own calls with it.',
      applies: 'restart',
    }),
    data: Type.String({
      minLength: 1,
      maxLength: 4_096,
      default: './data',
      description:
        'Folder of the books; relative to the configuration file, without one to the working directory.',
      'x-environment': 'TOLLGATE_DATA',
      'x-want': 'the path of a folder',
      'x-applies': 'restart',
    } satisfies Annotations),
    models: Type.Array(modelSchema, {
      minItems: 1,
      maxItems: MODELS_MAX,
      description: 'Models that callers can name.',
      'x-want': 'a list of at least one model',
      'x-applies': 'reload',
    } satisfies Annotations),
    plans: Type.Array(planSchema, {
      minItems: 1,
      maxItems: PLANS_MAX,
      description: 'Plans that accounts can have.',
      'x-want': 'a list of at least one plan',
      'x-applies': 'reload',
    } satisfies Annotations),
    limits: Type.Object(
      {
        body_bytes: wholeNumber(BODY_BYTES_MIN, BODY_BYTES_MAX, 10_485_760, 'bytes', {
          description: 'Largest body of a request.',
          applies: 'reload',
        }),
        bodies_in_work_bytes: optionalLimit(BODY_BYTES_MIN, BODIES_IN_WORK_BYTES_MAX, 'bytes', {
          description:
            'Memory that the bodies of all calls in work may take in a process; a body takes twice its length, one account at most half, and the longest body is always had. Beyond it a call is told 503 before its body is read. Where it is left out: a quarter of the memory of the container, or of the machine, divided by processes, and at most 4 GiB.',
          applies: 'reload',
        }),
        calls_in_flight: wholeNumber(1, CALLS_IN_FLIGHT_MAX, 20_000, 'calls', {
          description: 'Calls at a time; one more is told 503.',
          applies: 'replacement',
        }),
        parse_inline_bytes: wholeNumber(0, PARSE_INLINE_BYTES_MAX, 65_536, 'bytes', {
          description:
            'Bodies up to this are parsed by the listener, larger ones by a thread that may stall.',
          applies: 'reload',
        }),
        parse_wait_ms: wholeNumber(100, 600_000, 5_000, 'milliseconds', {
          description:
            'A call whose larger body has waited so long to be parsed is told 503; accounts have their turns, so it is others of its own that it waits for.',
          applies: 'reload',
        }),
        calls_in_flight_per_account: wholeNumber(1, CALLS_IN_FLIGHT_MAX, 20_000, 'calls', {
          description:
            'Calls at a time of one account; one more is told 503, so that no account takes all of calls_in_flight.',
          applies: 'reload',
        }),
        // A worker sends whole frames: a stream without space for one frame would never go on.
        stream_buffer_bytes: wholeNumber(FRAME_BYTES_MAX, STREAM_BUFFER_BYTES_MAX, 262_144, 'bytes', {
          description: 'What is held for a slow reader of one stream before its upstream is paused.',
          applies: 'replacement',
        }),
        client_idle_timeout_ms: wholeNumber(1_000, 3_600_000, 120_000, 'milliseconds', {
          description: 'A caller that neither sends nor reads for so long is disconnected.',
          applies: 'reload',
        }),
        accounts: wholeNumber(1, ACCOUNTS_MAX, 1_000_000, 'accounts', {
          description: 'Accounts that the shared tables can hold.',
          applies: 'replacement',
        }),
        keys: wholeNumber(1, KEYS_MAX, 2_000_000, 'keys', {
          description: 'Keys that the shared tables can hold.',
          applies: 'replacement',
        }),
        groups: wholeNumber(1, GROUPS_MAX, 10_000, 'groups', {
          description: 'Groups of accounts that the shared tables can hold.',
          applies: 'replacement',
        }),
      },
      section('Bounds.'),
    ),
    token_quota: Type.Enum(['reserve', 'settle'], {
      default: 'reserve',
      description:
        'Quotas of tokens: hold the most that a call may use before it is sent, so that none is ever exceeded, or admit calls while there is room and count what they used (settle): calls in flight may then exceed a quota together.',
      'x-applies': 'reload',
    } satisfies Annotations),
    quota_cached_input: Type.Enum(['count', 'free'], {
      default: 'count',
      description: 'Whether prompt tokens that a provider had in its cache count toward quotas of tokens.',
      'x-applies': 'reload',
    } satisfies Annotations),
    quota_timezone: Type.Refine(
      Type.String({
        default: SPECIFIED_TIMEZONE,
        description:
          'Where days and months of quotas begin at 00:00: an offset such as +08:00, or a name such as Europe/Berlin. calls_per_day begins at 00:00 UTC+8 always.',
        'x-want': 'an offset such as +08:00 or the name of a time zone such as Europe/Berlin',
        'x-applies': 'replacement',
      } satisfies Annotations),
      isTimezone,
    ),
    low_balance: Type.Enum(['refuse', 'clamp'], {
      default: 'refuse',
      description:
        'A balance or a quota of spending below the worst case of a call: refuse the call, or lower its max_tokens.',
      'x-applies': 'reload',
    } satisfies Annotations),
    durability: Type.Enum(['interval', 'commit'], {
      default: 'interval',
      description:
        'When charges are on disk: within flush_interval_ms, or before the end of each answer is given (commit).',
      'x-applies': 'reload',
    } satisfies Annotations),
    on_store_error: Type.Enum(['serve', 'refuse'], {
      default: 'serve',
      description:
        'While the disk takes no charges: keep them in memory and go on, or refuse new calls with 503. With durability commit calls are refused in either case.',
      'x-applies': 'reload',
    } satisfies Annotations),
    flush_interval_ms: wholeNumber(10, 60_000, 1_000, 'milliseconds', {
      description: 'Period in which charges are written to disk.',
      applies: 'reload',
    }),
    idempotency: idempotencySchema,
    cache: cacheSchema,
    log: logSchema,
    access_log: accessLogSchema,
    call_log: callLogSchema,
    usage_log: Type.Optional(usageLogSchema),
    notify: Type.Optional(notifySchema),
    watch: switchSetting({
      description:
        'Whether a change of the configuration file, or of a key, certificate or ca file that it names, reloads the settings by itself.',
      applies: 'reload',
    }),
    metrics: Type.Object(
      {
        account_labels: switchSetting({
          description:
            'Balance, spending and calls of the first 1,000 accounts on /metrics, by name: it is open to whoever reaches the admin port.',
        }),
      },
      section('What /metrics tells beyond the usual.', 'replacement'),
    ),
    drain_timeout_ms: wholeNumber(0, 3_600_000, 30_000, 'milliseconds', {
      description: 'How long calls in flight may go on after the stop was asked for.',
      applies: 'reload',
    }),
  },
  settingsMap('Settings of Tollgate.'),
);

/** The schema as data: TypeBox's types hide the JSON Schema keywords that its values have. */
export const settingsDeclaration = settingsSchema as unknown as Declaration;

type DeepReadonly<T> = T extends object ? { readonly [K in keyof T]: DeepReadonly<T[K]> } : T;

/**
 * The settings with the names of the file, complete; load.ts has frozen them. `upstreams[].key` and others
 * are secrets.
 */
export type Settings = DeepReadonly<Static<typeof settingsSchema>>;

/** A draft of the settings: what was read of a file, in which a value with an error is undefined. */
type Draft<T> = T extends object
  ? T extends readonly (infer Item)[]
    ? (Draft<Item> | undefined)[]
    : { [K in keyof T]?: Draft<T[K]> | undefined }
  : T;
export type SettingsDraft = Draft<Static<typeof settingsSchema>>;

/** The JSON Schema 2020-12 of the file, for `tollgate config schema` and `dist/tollgate.schema.json`. */
export function settingsSchemaText(): string {
  const $schema = 'https://json-schema.org/draft/2020-12/schema';
  return `${JSON.stringify({ $schema, ...asWritten(settingsDeclaration) }, null, 2)}\n`;
}

/**
 * Returns the declaration as the file may be written: what has a default may be left out of the file, though
 * it is always in the program's settings, and undeclared settings are not permitted. `patternProperties`
 * stay, because their values have no defaults.
 */
function asWritten(declaration: Declaration): Declaration {
  const { items, required = [] } = declaration;
  const properties = declaration.properties && Object.entries(declaration.properties);
  return {
    ...declaration,
    ...(properties && {
      properties: Object.fromEntries(properties.map(([name, property]) => [name, asWritten(property)])),
      required: properties.flatMap(([name, property]) =>
        required.includes(name) && property.default === undefined ? [name] : [],
      ),
      additionalProperties: false,
    }),
    ...(items && { items: asWritten(items) }),
  };
}
