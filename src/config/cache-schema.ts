/**
 * Declares the settings of the response cache. schema.ts has `cacheSchema` as the section `cache`, for all
 * models; catalog-schema.ts has `modelCacheSchema` as `cache` of one model. Main threads and commands. A
 * model's `bytes` may be more than `cache.bytes`: then the model may take all (`cacheRuleOf` of
 * gateway/catalog-records.ts).
 *
 * Must hold: by default the cache is off (test/unit/config/load.test.ts), and an account gets only its own
 * responses (test/e2e/cache.test.ts).
 */
import * as Type from 'typebox';
import { CACHED_BYTES_MAX, STORE_BYTES_MAX } from '../core/limits.js';
import { optionalLimit, section, settingsMap, wholeNumber, type Annotations } from './annotations.js';

/** 30 days. */
const TTL_SECONDS_MAX = 2_592_000;
/** A smaller cache would not have space for the longest response. */
const BYTES_MIN = CACHED_BYTES_MAX;
/** A quarter of the largest store: answers for repeats may take half (schema.ts), the books need the rest. */
const BYTES_MAX = STORE_BYTES_MAX / 4;
/** More than BYTES_MAX, because each listener keeps copies of its own. */
const MEMORY_BYTES_MAX = 8 * 1024 ** 3;

/**
 * Who may get a response: only the account that paid for it, or all accounts. Not a scope of the glossary,
 * which has quotas: only the setting has this name.
 */
const SCOPES = ['account', 'all'] as const;

export const cacheSchema = Type.Object(
  {
    ttl_seconds: wholeNumber(0, TTL_SECONDS_MAX, 0, 'seconds', {
      description:
        'How long an equal request gets the response of the first, for models without a ttl_seconds of their own; 0 switches the cache off.',
    }),
    scope: Type.Enum([...SCOPES], {
      default: 'account',
      description:
        'Who may get a response: the account that paid for it, or all accounts whose plan has the model.',
    } satisfies Annotations),
    memory_bytes: wholeNumber(0, MEMORY_BYTES_MAX, 64 * 1024 * 1024, 'bytes', {
      description:
        'Memory of cached responses in a process, divided among its listeners; the oldest go first.',
    }),
    bytes: wholeNumber(BYTES_MIN, BYTES_MAX, 256 * 1024 * 1024, 'bytes', {
      description: 'Cached responses on disk, of all models; the oldest go first.',
    }),
  },
  section(
    'The response cache: an equal request gets the response that an earlier one got. See docs/cache.md.',
    'reload',
  ),
);

export const modelCacheSchema = Type.Object(
  {
    ttl_seconds: optionalLimit(0, TTL_SECONDS_MAX, 'seconds', {
      description: 'As cache.ttl_seconds, for this model; 0 switches its cache off.',
    }),
    scope: Type.Optional(
      Type.Enum([...SCOPES], {
        description: 'As cache.scope, for this model.',
      } satisfies Annotations),
    ),
    bytes: optionalLimit(BYTES_MIN, BYTES_MAX, 'bytes', {
      description:
        'The most of cache.bytes that responses of this model take, and the same share of cache.memory_bytes; its oldest go first. Unless it is set, they may take all.',
    }),
  },
  settingsMap('The response cache of this model, if it differs from that of the others.'),
);
