/** Declares the settings of models, their upstreams, and plans. No listener or worker imports it. */
import { X509Certificate } from 'node:crypto';
import { Type } from 'typebox';
import { picoUnitsOf, picoUnitsPerToken } from '../core/money.js';
import { QUOTA_FIELDS, QUOTA_LIMITS_MAX, type QuotaName } from '../core/quotas.js';
import { ROUTING_MEMBERS } from '../core/routing-members.js';
import { BODY_BYTES_MAX, BODY_BYTES_MIN, filePath, identifier, type Annotations } from './annotations.js';

/** Every listener and worker has a copy of all models and plans in memory. */
export const MODELS_MAX = 1_000;
/** Every listener has all aliases in memory. */
export const ALIASES_MAX = 64;
/** A worker looks at each upstream of a model for every call. */
export const UPSTREAMS_MAX = 64;
/** Each header costs bytes in every call. */
const HEADERS_MAX = 64;
/** An account's call looks for the first rule of its model. */
const MODELS_LIMITS_MAX = 100;
/** Far above what providers document. The highest price times this fits the 64-bit words of the ledger. */
export const OUTPUT_TOKENS_MAX = 10_000_000;
/** A day. */
export const TIMEOUT_MS_MAX = 86_400_000;

/** Connections of a worker to one origin. A process has no ports for more. */
const CONNECTIONS_MAX = 60_000;
/** A breaker that waits for more failures would protect nobody. */
const BREAKER_FAILURES_MAX = 10_000;
/** A minute: no upstream may hold back calls for longer. */
const PARK_MS_MAX = 60_000;
/** The certificate bundles of operating systems have some 220 KB. */
export const CA_BYTES_MAX = 1024 * 1024;

/** Patterns of header names, case-insensitive. What is a name: */
export const HEADER_NAMES = "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$";
/**
 * Names that a configuration cannot set. The HTTP client sets those that frame the message, and a second one
 * would desynchronise the connection. The gateway cannot read encoded responses, and it sets the request's id
 * itself.
 */
export const HEADER_NAMES_REFUSED =
  '^(host|connection|content-(length|type|encoding)|transfer-encoding|keep-alive|upgrade|te|trailer|expect|proxy-.*|http2-settings|accept-encoding|x-request-id)$';
/** Names whose value is a secret. */
export const HEADER_NAMES_SECRET = '^(cookie|(.*-)?(authorization|key|token|secret))$';

/** A model's id, or a pattern. */
const MODEL_PATTERN = '^[!-~]{1,128}$';

const price = (description: string) =>
  Type.Refine(
    Type.String({
      description,
      'x-unit': 'currency per million tokens',
      'x-want': 'a decimal string such as "0.15"',
      'x-hint': 'at most six decimals, up to 10000, and in quotes: YAML would round a bare number',
    } satisfies Annotations),
    (text) => picoUnitsPerToken(text) !== undefined,
  );

const timeout = (presetMs: number, description: string) =>
  Type.Integer({
    minimum: 1,
    maximum: TIMEOUT_MS_MAX,
    default: presetMs,
    description,
    'x-unit': 'milliseconds',
  } satisfies Annotations);

/** `echo:` is the built-in model. A user and a password in the URL would be a secret written inline. */
export function isUpstreamUrl(text: string): boolean {
  if (text === 'echo:') return true;
  if (!URL.canParse(text)) return false;
  const url = new URL(text);
  return (
    (url.protocol === 'http:' || url.protocol === 'https:') &&
    url.username === '' &&
    url.password === '' &&
    url.hash === ''
  );
}

/** Whether the text begins with a certificate that can be read. */
export function isCertificates(text: string): boolean {
  try {
    return new X509Certificate(text).raw.length > 0;
  } catch {
    return false;
  }
}

const upstreamSchema = Type.Object(
  {
    url: Type.Refine(
      Type.String({
        maxLength: 2_000,
        description: 'Base address of an OpenAI-compatible interface, or echo: for the built-in model.',
        'x-want': 'an http:// or https:// address without user and password, or echo:',
      } satisfies Annotations),
      isUpstreamUrl,
    ),
    key: Type.Optional(
      Type.String({
        pattern: '^[!-~]{1,4096}$',
        description: "The provider's key, as a reference to an environment variable.",
        'x-want':
          'a reference to an environment variable such as "${OPENAI_API_KEY}" (visible characters, no spaces), or key_file',
        'x-secret': true,
      } satisfies Annotations),
    ),
    key_file: Type.Optional(
      filePath("A file that holds the provider's key; relative to the configuration file."),
    ),
    model: Type.Optional(
      identifier("The model's name at this upstream; the same name where it is left out."),
    ),
    weight: Type.Integer({
      minimum: 1,
      maximum: 1_000,
      default: 1,
      description: 'Share of the calls among the upstreams of one priority.',
    } satisfies Annotations),
    priority: Type.Integer({
      minimum: 1,
      maximum: 1_000,
      default: 1,
      description: 'Upstreams of priority 1 are used first, others only where those fail.',
    } satisfies Annotations),
    headers: Type.Record(
      Type.String(),
      Type.String({
        pattern: '^[\\t -~]{0,4096}$',
        description: 'Value of one header.',
        'x-want': 'printable ASCII text',
      } satisfies Annotations),
      {
        default: {},
        maxProperties: HEADERS_MAX,
        description:
          'Further headers of each call. Secrets among them are references to environment variables.',
        'x-want': 'a map of header names to values',
        'x-names': HEADER_NAMES,
        'x-names-refused': HEADER_NAMES_REFUSED,
        'x-names-secret': HEADER_NAMES_SECRET,
      } satisfies Annotations,
    ),
    connect_timeout_ms: timeout(5_000, 'Longest wait for a connection.'),
    first_byte_timeout_ms: timeout(60_000, 'Longest wait for the first byte of an answer.'),
    idle_timeout_ms: timeout(60_000, 'Longest silence between two pieces of an answer.'),
    total_timeout_ms: timeout(
      600_000,
      'Longest duration of one try of a call, without the time that its caller does not read; after it no other upstream is tried. A stream that still comes is cut then and charged for what was sent.',
    ),
    connections_max: Type.Integer({
      minimum: 1,
      maximum: CONNECTIONS_MAX,
      default: 10_000,
      description:
        'Connections to this origin from one worker. A call that finds none free waits for connect_timeout_ms.',
      'x-unit': 'connections',
    } satisfies Annotations),
    breaker_failures: Type.Integer({
      minimum: 0,
      maximum: BREAKER_FAILURES_MAX,
      default: 10,
      description:
        'Failures in a row, or within 10 seconds where half of the calls fail, after which a worker leaves this upstream alone, for 2 seconds at first and 60 at most (5 where the model has no other that serves); 0 is never.',
      'x-unit': 'failures',
    } satisfies Annotations),
    park_max_ms: Type.Integer({
      minimum: 0,
      maximum: PARK_MS_MAX,
      default: 5_000,
      description:
        'Longest time for which a Retry-After of this upstream (with 429 or 503) holds back all calls where the model has no other that serves; then one call asks again. While others serve they take its calls, for 60 seconds at most. 0: it never holds back another call.',
      'x-unit': 'milliseconds',
    } satisfies Annotations),
    ca: Type.Optional(
      Type.Refine(
        Type.String({
          maxLength: CA_BYTES_MAX,
          description: 'Certificates (PEM) that are trusted here in place of the well-known ones.',
          'x-want': 'the text of one or more certificates in PEM form',
        } satisfies Annotations),
        isCertificates,
      ),
    ),
    ca_file: Type.Optional(
      filePath('A file that holds such certificates; relative to the configuration file.'),
    ),
  },
  {
    description: 'One place where the model is served.',
    'x-want': 'a map of settings',
  } satisfies Annotations,
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
    created: Type.Integer({
      minimum: 0,
      maximum: 9_999_999_999,
      default: 0,
      description: 'Shown in the list of models.',
      'x-unit': 'seconds since 1970',
    } satisfies Annotations),
    price: Type.Object(
      {
        input: price('Price of prompt tokens.'),
        output: price('Price of generated tokens.'),
        cached_input: Type.Optional(
          price(
            'Price of prompt tokens that the provider had in its cache; that of input where it is left out.',
          ),
        ),
      },
      {
        // Input and output have no defaults: a price of input alone would give every response away.
        default: { input: '0', output: '0' },
        description: 'What tokens cost; nothing where it is left out.',
        'x-want': 'a map with input and output',
      } satisfies Annotations,
    ),
    max_output_tokens: Type.Integer({
      minimum: 1,
      maximum: OUTPUT_TOKENS_MAX,
      default: 16_384,
      description:
        'The most that the model generates: the hold on the balance of a call that names no max_tokens.',
      'x-unit': 'tokens',
    } satisfies Annotations),
    pass_members: Type.Array(
      Type.Enum([...ROUTING_MEMBERS], { description: 'A member of a request.' } satisfies Annotations),
      {
        maxItems: ROUTING_MEMBERS.length,
        default: [],
        description:
          'Members of a request that are let through although an upstream may choose another model, provider or address by them, or bill more than tokens, at the price of this model. The others of their kind get 400.',
        'x-want': 'a list of names',
      } satisfies Annotations,
    ),
    tokenizer: Type.Enum(['o200k_base', 'cl100k_base', 'none'], {
      default: 'o200k_base',
      description: 'Counts tokens where an upstream reports none; none estimates from the length.',
    } satisfies Annotations),
    upstreams: Type.Array(upstreamSchema, {
      minItems: 1,
      maxItems: UPSTREAMS_MAX,
      description: 'Where the model is served.',
      'x-want': 'a list of at least one upstream',
    } satisfies Annotations),
  },
  { description: 'One model.', 'x-want': 'a map of settings' } satisfies Annotations,
);

/** A whole number without a default. */
const limit = (minimum: number, maximum: number, unit: string, description: string) =>
  Type.Integer({ minimum, maximum, description, 'x-unit': unit } satisfies Annotations);

const quota = (
  name: Exclude<QuotaName, 'spend_per_day' | 'spend_per_month'>,
  unit: string,
  description: string,
) => limit(1, QUOTA_LIMITS_MAX[QUOTA_FIELDS[name]], unit, description);

const budget = (description: string) =>
  Type.Refine(
    Type.String({
      description,
      'x-unit': 'currency',
      'x-want': 'a decimal string above 0 such as "50.00"',
      'x-hint': 'at most twelve decimals, up to 3000000, and in quotes: YAML would round a bare number',
    } satisfies Annotations),
    (text) => (picoUnitsOf(text) ?? 0n) > 0n,
  );

/** Quotas that a plan may leave out, and a rule for a model too. `who`: an account; `what`: calls. */
const optionalQuotas = (who: string) => ({
  tokens_per_minute: Type.Optional(
    quota(
      'tokens_per_minute',
      'tokens',
      `Tokens of prompt and completion that ${who} in any span of 60 seconds.`,
    ),
  ),
  tokens_per_day: Type.Optional(
    quota('tokens_per_day', 'tokens', `Tokens that ${who} in a day of quota_timezone.`),
  ),
  tokens_per_month: Type.Optional(
    quota('tokens_per_month', 'tokens', `Tokens that ${who} in a month of quota_timezone.`),
  ),
  calls_per_month: Type.Optional(
    quota('calls_per_month', 'calls', `Calls that ${who} in a month of quota_timezone.`),
  ),
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
    requests_per_minute: Type.Optional(
      quota(
        'requests_per_minute',
        'requests',
        'Calls of the model that are admitted for an account in any span of 60 seconds.',
      ),
    ),
    calls_per_day: Type.Optional(
      quota(
        'calls_per_day',
        'calls',
        'Calls of the model that an account may make in a day; the day begins at 00:00 UTC+8.',
      ),
    ),
    calls_in_flight: Type.Optional(
      quota('calls_in_flight', 'calls', 'Calls of the model at a time of one account.'),
    ),
    ...optionalQuotas('an account may use of the model'),
  },
  { description: 'The quotas of one model or several.', 'x-want': 'a map of settings' } satisfies Annotations,
);

export const planSchema = Type.Object(
  {
    id: identifier('The name that accounts refer to.'),
    requests_per_minute: quota(
      'requests_per_minute',
      'requests',
      'Requests that an account may make in any span of 60 seconds.',
    ),
    calls_per_day: quota(
      'calls_per_day',
      'calls',
      'Calls that an account may make in a day; the day begins at 00:00 UTC+8.',
    ),
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
        description: 'Models that the plan may use, under their ids and their aliases.',
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
    max_tokens: Type.Optional(
      limit(
        1,
        OUTPUT_TOKENS_MAX,
        'tokens',
        'The most that a call may ask for in max_tokens or max_completion_tokens, and gets where it asks for nothing; where it is left out, what the model generates at most.',
      ),
    ),
    calls_in_flight: Type.Optional(
      quota(
        'calls_in_flight',
        'calls',
        'Calls at a time of one account on the plan, where it is lower than limits.calls_in_flight_per_account.',
      ),
    ),
    body_bytes: Type.Optional(
      limit(
        BODY_BYTES_MIN,
        BODY_BYTES_MAX,
        'bytes',
        'Largest body of a request, where it is lower than limits.body_bytes.',
      ),
    ),
  },
  { description: 'One plan.', 'x-want': 'a map of settings' } satisfies Annotations,
);
