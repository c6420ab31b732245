/**
 * Declares the settings of models and plans. schema.ts has them as part of all settings. Main threads and
 * commands; no listener or worker imports it, because TypeBox takes memory. cross-checks.ts checks what no
 * declaration can say.
 *
 * Must hold: as schema.ts. Wrong values have their messages: test/unit/config/settings-reader.errors.test.ts.
 */
import * as Type from 'typebox';
import { SERVICES } from '../core/door-names.js';
import { PROMPT_TOKENS_OF_PART } from '../core/limits.js';
import { picoUnitsOf, picoUnitsPerCall, picoUnitsPerToken } from '../core/money.js';
import { QUOTA_SPEND_MIN } from '../core/quotas.js';
import { ROUTING_MEMBERS } from '../core/routing-members.js';
import {
  BODY_BYTES_MAX,
  BODY_BYTES_MIN,
  identifier,
  limit,
  optionalLimit,
  optionalQuota,
  quota,
  settingsMap,
  wholeNumber,
  type Annotations,
} from './annotations.js';
import { modelCacheSchema } from './cache-schema.js';
import { upstreamSchema } from './upstream-schema.js';

/** Every listener and worker has a copy of all models and plans in memory. */
export const MODELS_MAX = 1_000;
/** Every listener has all aliases in memory. */
export const ALIASES_MAX = 64;
/** For every call a worker looks at each upstream of the model. */
export const UPSTREAMS_MAX = 64;
/** The caller waits while one fallback after another is tried, and the hold covers the dearest of them. */
export const FALLBACKS_MAX = 8;
/** For every call a listener looks through the rules of the plan for the first that matches the model. */
const MODELS_LIMITS_MAX = 100;
/** Far above what providers document. The highest price times this fits the 64-bit words of the ledger. */
export const OUTPUT_TOKENS_MAX = 10_000_000;
/** What `max_output_tokens` is if it is left out. */
export const OUTPUT_TOKENS_USUAL = 16_384;
/** For each call a listener looks at all long prices of the model. */
export const LONG_PRICES_MAX = 4;
/** Far above what models read. */
export const LONG_PROMPT_TOKENS_MAX = 10_000_000;
/** A model's id, or a pattern with `*` (cross-checks.ts). */
const MODEL_PATTERN = '^[!-~]{1,128}$';

/**
 * Returns a function that declares money in one unit, as a decimal string. In an error, `want` ends the
 * sentence, and `bounds` follow in brackets.
 */
const money =
  (unit: string, want: string, bounds: string, isValid: (text: string) => boolean) => (description: string) =>
    Type.Refine(
      Type.String({
        description,
        'x-unit': unit,
        'x-want': `a decimal string ${want}`,
        'x-hint': `${bounds}, and in quotes: YAML would round a bare number`,
      } satisfies Annotations),
      isValid,
    );

const price = money(
  'currency per million tokens',
  'such as "0.15"',
  'at most six decimals, up to 10000',
  (text) => picoUnitsPerToken(text) !== undefined,
);
const callPrice = money(
  'currency per call',
  'such as "0.002"',
  'at most twelve decimals, up to 10000',
  (text) => picoUnitsPerCall(text) !== undefined,
);
const budget = money(
  'currency',
  'of at least 0.000000001 such as "50.00"',
  'at most twelve decimals, up to 3000000',
  (text) => (picoUnitsOf(text) ?? 0n) >= QUOTA_SPEND_MIN,
);

/** The prices of tokens, for the price of a model and for its long prices. */
const TOKEN_PRICES = {
  input: price('Price of prompt tokens.'),
  output: price('Price of generated tokens.'),
  cached_input: Type.Optional(
    price('Price of prompt tokens that the provider had in its cache; that of input if it is left out.'),
  ),
  cache_write: Type.Optional(
    price('Price of prompt tokens that the provider wrote to its cache; that of input if it is left out.'),
  ),
  cache_write_1h: Type.Optional(
    price(
      'Price of those that it keeps for an hour; that of cache_write if it is left out, else that of input.',
    ),
  ),
  reasoning: Type.Optional(
    price(
      'Price of generated tokens that the provider reports as reasoning; that of output if it is left out.',
    ),
  ),
};

const longPriceSchema = Type.Object(
  {
    above: limit(1, LONG_PROMPT_TOKENS_MAX, 'tokens', {
      description:
        'The set is for calls whose prompt has more tokens than this, those from a cache included.',
    }),
    ...TOKEN_PRICES,
  },
  settingsMap('Prices of all tokens of a call with a long prompt.'),
);

export const modelSchema = Type.Object(
  {
    id: identifier('The name that callers use.'),
    aliases: Type.Array(identifier('Another name that callers may use.'), {
      maxItems: ALIASES_MAX,
      default: [],
      description: 'Other names of the model; its use is booked, and it is listed, under its id.',
      'x-want': 'a list of names',
    } satisfies Annotations),
    owned_by: Type.String({
      minLength: 1,
      maxLength: 128,
      default: 'tollgate',
      description: 'Shown in the list of models.',
      'x-want': 'a text of 1 to 128 characters',
    } satisfies Annotations),
    created: wholeNumber(0, 9_999_999_999, 0, 'seconds since 1970', {
      description: 'Shown in the list of models.',
    }),
    price: Type.Object(
      {
        ...TOKEN_PRICES,
        call: Type.Optional(
          callPrice(
            'Price of each call that is served, besides that of its tokens; nothing if it is left out.',
          ),
        ),
        cached_response: Type.Optional(
          callPrice(
            'All that a response of the response cache costs; nothing if it is left out. A hit that costs nothing counts toward requests_per_minute alone.',
          ),
        ),
        long: Type.Optional(
          Type.Array(longPriceSchema, {
            minItems: 1,
            maxItems: LONG_PRICES_MAX,
            description:
              'Prices of all tokens of a call with a long prompt: sets, ascending by above. Of those whose above the prompt exceeds, the last counts. A part that a set leaves out costs what input or output of the same set does. The length of a prompt changes nothing if it is left out.',
            'x-want': 'a list of one to four maps with above, input and output',
          } satisfies Annotations),
        ),
      },
      {
        // Input and output have no defaults: with only a price of input every response would be free.
        default: { input: '0', output: '0' },
        description: 'What tokens and calls cost; nothing if it is left out.',
        'x-want': 'a map with input and output',
      } satisfies Annotations,
    ),
    max_output_tokens: wholeNumber(1, OUTPUT_TOKENS_MAX, OUTPUT_TOKENS_USUAL, 'tokens', {
      description:
        'The most that the model generates: the hold on the balance of a call that names no max_tokens.',
    }),
    media_part_tokens: wholeNumber(0, PROMPT_TOKENS_OF_PART, 0, 'tokens', {
      description:
        'What each part of a prompt that is not text (image, document, sound, video) is taken for, besides its bytes: in the holds of balances and quotas, and in the counts that the gateway makes when no usage was reported. An address is some bytes, and what is behind it may be billed as a million tokens; what a balance does not cover of that is lost (docs/providers.md has figures to set).',
    }),
    pass_members: Type.Array(
      Type.Enum([...ROUTING_MEMBERS], { description: 'A member of a request.' } satisfies Annotations),
      {
        maxItems: ROUTING_MEMBERS.length,
        default: [],
        description:
          'Members of a request that are let through although an upstream may choose another model, provider or address by them, bill more than tokens, or give out what it stores for all callers of its key (docs/providers.md), at the price of this model. The others of their kind get 400.',
        'x-want': 'a list of names',
      } satisfies Annotations,
    ),
    serves: Type.Array(Type.Enum([...SERVICES], { description: 'A service.' } satisfies Annotations), {
      minItems: 1,
      maxItems: SERVICES.length,
      default: ['chat'],
      description:
        'What the model is called for: chat (chat completions, messages, responses), embeddings, completions (the former interface), moderations, rerank. Each but chat goes to upstreams of the providers openai and azure, moderations and rerank of openai alone.',
      'x-want': 'a list of services',
    } satisfies Annotations),
    tokenizer: Type.Enum(['o200k_base', 'cl100k_base', 'none'], {
      default: 'o200k_base',
      description: 'Counts tokens if an upstream reports none; none estimates from the length.',
    } satisfies Annotations),
    fallbacks: Type.Array(identifier('The id of another model.'), {
      maxItems: FALLBACKS_MAX,
      default: [],
      description:
        'Models that answer in place of this one, in this order, if none of its upstreams does before the first byte. A call gets those that its plan may use, pays the price of the one that answered, and holds that of the dearest. The fallbacks of a fallback are not asked.',
      'x-want': 'a list of ids of models',
    } satisfies Annotations),
    fallback_on: Type.Array(
      Type.Enum(['unavailable', 'context_length'], {
        description: 'What the fallbacks answer for.',
      } satisfies Annotations),
      {
        minItems: 1,
        maxItems: 2,
        default: ['unavailable'],
        description:
          'When fallbacks are asked: unavailable, if each upstream failed, was left alone, or had no room in its limits; context_length, if the provider refused the call as too long for the model.',
        'x-want': 'a list of unavailable and context_length',
      } satisfies Annotations,
    ),
    cache: Type.Optional(modelCacheSchema),
    upstreams: Type.Array(upstreamSchema, {
      minItems: 1,
      maxItems: UPSTREAMS_MAX,
      description: 'Where the model is served.',
      'x-want': 'a list of at least one upstream',
    } satisfies Annotations),
  },
  settingsMap('One model.'),
);

/**
 * Declares quotas that a plan, and a rule for a model, may leave out. `who`: the words of each description
 * that name the user and the use.
 */
const optionalQuotas = (who: string) => ({
  tokens_per_minute: optionalQuota('tokens_per_minute', 'tokens', {
    description: `Tokens of prompt and completion that ${who} in any span of 60 seconds.`,
  }),
  tokens_per_day: optionalQuota('tokens_per_day', 'tokens', {
    description: `Tokens that ${who} in a day of quota_timezone.`,
  }),
  tokens_per_month: optionalQuota('tokens_per_month', 'tokens', {
    description: `Tokens that ${who} in a month of quota_timezone.`,
  }),
  calls_per_month: optionalQuota('calls_per_month', 'calls', {
    description: `Calls that ${who} in a month of quota_timezone.`,
  }),
  spend_per_day: Type.Optional(budget(`Money that ${who} in a day of quota_timezone.`)),
  spend_per_month: Type.Optional(budget(`Money that ${who} in a month of quota_timezone.`)),
});

const modelLimitsSchema = Type.Object(
  {
    model: Type.String({
      pattern: MODEL_PATTERN,
      description:
        "A model's id, or a pattern in which * stands for any characters. Each model that it matches is counted by itself.",
      'x-want': "a model's id, or a pattern with *",
    } satisfies Annotations),
    requests_per_minute: optionalQuota('requests_per_minute', 'requests', {
      description: 'Calls of the model that are admitted for an account in any span of 60 seconds.',
    }),
    calls_per_day: optionalQuota('calls_per_day', 'calls', {
      description: 'Calls of the model that an account may make in a day; the day begins at 00:00 UTC+8.',
    }),
    calls_in_flight: optionalQuota('calls_in_flight', 'calls', {
      description: 'Calls of the model at a time of one account.',
    }),
    ...optionalQuotas('an account may use of the model'),
  },
  settingsMap('The quotas of one model or several.'),
);

export const planSchema = Type.Object(
  {
    id: identifier('The name that accounts refer to.'),
    requests_per_minute: quota('requests_per_minute', 'requests', {
      description: 'Requests that an account may make in any span of 60 seconds.',
    }),
    calls_per_day: quota('calls_per_day', 'calls', {
      description: 'Calls that an account may make in a day; the day begins at 00:00 UTC+8.',
    }),
    ...optionalQuotas('an account may use'),
    models: Type.Array(
      Type.String({
        pattern: MODEL_PATTERN,
        description: "A model's id, or a pattern in which * stands for any characters.",
        'x-want': "a model's id, or a pattern with *",
      } satisfies Annotations),
      {
        minItems: 1,
        maxItems: MODELS_MAX,
        default: ['*'],
        description:
          'Models that the plan may use: ids, or patterns in which * stands for any characters. Callers may name them by their aliases too.',
        'x-want': 'a list of at least one model',
      } satisfies Annotations,
    ),
    models_limits: Type.Array(modelLimitsSchema, {
      maxItems: MODELS_LIMITS_MAX,
      default: [],
      description:
        'Quotas of single models, within those of the plan. The first entry that matches a model counts for it.',
      'x-want': 'a list of maps with model and quotas',
    } satisfies Annotations),
    max_tokens: optionalLimit(1, OUTPUT_TOKENS_MAX, 'tokens', {
      description:
        'The most that a call may ask for in max_tokens or max_completion_tokens, and what it gets if it asks for nothing. By default what the model generates at most. An upstream that refuses max_tokens needs member_names.',
    }),
    calls_in_flight: optionalQuota('calls_in_flight', 'calls', {
      description:
        'Calls at a time of one account on the plan, if it is lower than limits.calls_in_flight_per_account.',
    }),
    body_bytes: optionalLimit(BODY_BYTES_MIN, BODY_BYTES_MAX, 'bytes', {
      description: 'Largest body of a request, if it is lower than limits.body_bytes.',
    }),
  },
  settingsMap('One plan.'),
);
