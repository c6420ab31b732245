/**
 * Every setting of `tollgate.yaml`, declared once: type, bounds, unit, default, description and environment variable.
 * The type that the program uses is derived from it. Main threads and commands; workers get plain records made from it.
 */
import { Type, type Static } from 'typebox';
import {
  ACCOUNTS_MAX,
  CALLS_IN_FLIGHT_MAX,
  FRAME_BYTES_MAX,
  KEYS_MAX,
  LISTENERS_MAX,
  WORKERS_MAX,
} from '../core/limits.js';
import { whole, type Annotations, type Applies, type Declaration } from './annotations.js';
import { corsSchema } from './cors-schema.js';
import { idempotencySchema } from './idempotency-schema.js';
import { accessLogSchema, logSchema, usageLogSchema } from './log-schema.js';
import { MODELS_MAX, modelSchema } from './model-schema.js';
import { BODY_BYTES_MAX, BODY_BYTES_MIN, planSchema } from './plan-schema.js';
import { sharingSchema } from './sharing-schema.js';
import { tlsSchema } from './tls.js';

/** Every listener and worker holds the whole catalogue. */
const PLANS_MAX = 1_000;
/** Names that one admin port has. */
const ADMIN_HOSTS_MAX = 100;
/** Processes that one supervisor could watch. */
const PROCESSES_MAX = 64;
/** A listener parses smaller bodies itself: beyond 1 MiB every other call of its thread would wait for milliseconds. */
const PARSE_INLINE_BYTES_MAX = 1024 * 1024;
/** Held per stream with a slow reader; times `calls_in_flight` it is memory. */
const STREAM_BUFFER_BYTES_MAX = 16 * 1024 * 1024;
/** A terabyte; the sums are of 32 bits and count KiB. */
const BODIES_IN_WORK_BYTES_MAX = 2 ** 40;
const host = (environment: string, description: string) =>
  Type.String({
    pattern: '^[0-9A-Za-z.:_-]{1,255}$',
    default: '127.0.0.1',
    description,
    'x-environment': environment,
    'x-want': 'an address or a host name such as 127.0.0.1 or 0.0.0.0',
    'x-applies': 'restart',
  } satisfies Annotations);

const port = (environment: string, preset: number, description: string) =>
  Type.Integer({
    minimum: 0,
    maximum: 65_535,
    default: preset,
    description: `${description} 0 takes a free one.`,
    'x-environment': environment,
    'x-applies': 'restart',
  } satisfies Annotations);

const section = (description: string, applies?: Applies) =>
  ({
    default: {},
    description,
    'x-want': 'a map of settings',
    ...(applies && { 'x-applies': applies }),
  }) satisfies Annotations;

export const settingsSchema = Type.Object(
  {
    listen: Type.Object(
      {
        host: host('TOLLGATE_HOST', 'Address that callers reach.'),
        port: port('TOLLGATE_PORT', 8080, 'Port that callers reach.'),
        listeners: whole(
          1,
          LISTENERS_MAX,
          1,
          'threads',
          'Threads that accept calls, all on one port.',
          'replacement',
        ),
        tls: Type.Optional(tlsSchema),
        cors: Type.Optional(corsSchema),
      },
      section('Where callers are served.'),
    ),
    admin: Type.Object(
      {
        host: host('TOLLGATE_ADMIN_HOST', 'Address of the admin interface, health and metrics.'),
        port: port('TOLLGATE_ADMIN_PORT', 8081, 'Port of the admin interface, health and metrics.'),
        hosts: Type.Array(
          Type.String({
            pattern: '^(?:\\*|(?:\\*\\.)?[0-9A-Za-z._-]{1,253}|\\[[0-9A-Fa-f:.]{2,45}\\])$',
            description: 'A name, an address, *.name for all names below it, or * for every Host.',
            'x-want': 'a host name or address without scheme and port, such as gateway.example or [fd00::1]',
          } satisfies Annotations),
          {
            default: [],
            maxItems: ADMIN_HOSTS_MAX,
            description:
              'Names that the admin port is reached by beside localhost, 127.0.0.1, [::1] and admin.host; any address where admin.host is not of the loopback. Under another Host it answers only /healthz, /readyz and who sends the admin token, so that no web page can read it by DNS rebinding. In the variable separated by commas.',
            'x-environment': 'TOLLGATE_ADMIN_HOSTS',
            'x-applies': 'restart',
            'x-want': 'a list of host names',
          } satisfies Annotations,
        ),
      },
      section('Where operators are served.'),
    ),
    workers: whole(
      1,
      WORKERS_MAX,
      1,
      'threads',
      'Threads that call upstreams and relay their answers.',
      'replacement',
    ),
    sharing: Type.Optional(sharingSchema),
    processes: whole(
      1,
      PROCESSES_MAX,
      1,
      'processes',
      'Gateway processes on one port, each with its own listeners, workers and limits.calls_in_flight; accounts and limits are shared. One that dies takes only its own calls with it.',
      'restart',
    ),
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
        body_bytes: whole(
          BODY_BYTES_MIN,
          BODY_BYTES_MAX,
          10_485_760,
          'bytes',
          'Largest body of a request.',
          'reload',
        ),
        bodies_in_work_bytes: Type.Optional(
          Type.Integer({
            minimum: BODY_BYTES_MIN,
            maximum: BODIES_IN_WORK_BYTES_MAX,
            description:
              'Memory that the bodies of all calls in work may take in a process; a body takes twice its length, one account at most half, and the longest body is always had. Beyond it a call is told 503 before its body is read. Where it is left out: a quarter of the memory of the container, or of the machine, divided by processes, and at most 4 GiB.',
            'x-unit': 'bytes',
            'x-applies': 'reload',
          } satisfies Annotations),
        ),
        calls_in_flight: whole(
          1,
          CALLS_IN_FLIGHT_MAX,
          20_000,
          'calls',
          'Calls at a time; one more is told 503.',
          'replacement',
        ),
        parse_inline_bytes: whole(
          0,
          PARSE_INLINE_BYTES_MAX,
          65_536,
          'bytes',
          'Bodies up to this are parsed by the listener, larger ones by a thread that may stall.',
          'reload',
        ),
        parse_wait_ms: whole(
          100,
          600_000,
          5_000,
          'milliseconds',
          'A call whose larger body has waited so long to be parsed is told 503; accounts have their turns, so it is others of its own that it waits for.',
          'reload',
        ),
        calls_in_flight_per_account: whole(
          1,
          CALLS_IN_FLIGHT_MAX,
          20_000,
          'calls',
          'Calls at a time of one account; one more is told 503, so that no account takes all of calls_in_flight.',
          'reload',
        ),
        // A worker sends whole frames, so a stream that could not hold one would never move.
        stream_buffer_bytes: whole(
          FRAME_BYTES_MAX,
          STREAM_BUFFER_BYTES_MAX,
          262_144,
          'bytes',
          'What is held for a slow reader of one stream before its upstream is paused.',
          'replacement',
        ),
        client_idle_timeout_ms: whole(
          1_000,
          3_600_000,
          120_000,
          'milliseconds',
          'A caller that neither sends nor reads for so long is disconnected.',
          'reload',
        ),
        accounts: whole(
          1,
          ACCOUNTS_MAX,
          1_000_000,
          'accounts',
          'Accounts that the shared tables can hold.',
          'replacement',
        ),
        keys: whole(1, KEYS_MAX, 2_000_000, 'keys', 'Keys that the shared tables can hold.', 'replacement'),
      },
      section('Bounds.'),
    ),
    low_balance: Type.Enum(['refuse', 'clamp'], {
      default: 'refuse',
      description: 'A balance below the worst case of a call: refuse the call, or lower its max_tokens.',
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
    flush_interval_ms: whole(
      10,
      60_000,
      1_000,
      'milliseconds',
      'Period in which charges are written to disk.',
      'reload',
    ),
    idempotency: idempotencySchema,
    log: logSchema,
    access_log: accessLogSchema,
    usage_log: Type.Optional(usageLogSchema),
    watch: Type.Boolean({
      default: false,
      description:
        'Whether a change of the configuration file, or of a key, certificate or ca file that it names, reloads the settings by itself.',
      'x-want': 'true or false',
      'x-applies': 'reload',
    } satisfies Annotations),
    metrics: Type.Object(
      {
        account_labels: Type.Boolean({
          default: false,
          description:
            'Balance, spending and calls of the first 1,000 accounts on /metrics, by name: it is open to whoever reaches the admin port.',
          'x-want': 'true or false',
        } satisfies Annotations),
      },
      section('What /metrics tells beyond the usual.', 'replacement'),
    ),
    drain_timeout_ms: whole(
      0,
      3_600_000,
      30_000,
      'milliseconds',
      'How long calls in flight may go on after the stop was asked for.',
      'reload',
    ),
  },
  { description: 'Settings of Tollgate.', 'x-want': 'a map of settings' } satisfies Annotations,
);

/** The same as data, for the settings reader and for printing. TypeBox's types do not tell the words that it keeps. */
export const settingsDeclaration = settingsSchema as unknown as Declaration;

export type DeepReadonly<T> = T extends object ? { readonly [K in keyof T]: DeepReadonly<T[K]> } : T;

/** The settings, complete and frozen, with the names of the file. `upstreams[].key` holds a secret. */
export type Settings = DeepReadonly<Static<typeof settingsSchema>>;

/** Settings in the making: what was refused is undefined. */
export type Draft<T> = T extends object
  ? T extends readonly (infer Item)[]
    ? (Draft<Item> | undefined)[]
    : { [K in keyof T]?: Draft<T[K]> | undefined }
  : T;
export type SettingsDraft = Draft<Static<typeof settingsSchema>>;
