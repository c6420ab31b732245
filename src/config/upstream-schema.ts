/**
 * Declares the settings of one upstream of a model. catalog-schema.ts has `upstreamSchema` as part of a
 * model. Main threads and commands; no listener or worker imports it, because TypeBox takes memory.
 *
 * If a description repeats what the gateway does, no test compares the two: names of members are those of
 * provider-settings.ts, cooldowns those of upstream/breaker.ts. cross-checks.ts (files beside values) and
 * provider-settings.ts check which settings of one upstream exclude or need each other.
 *
 * Must hold: no header that a configuration may set frames a message (HEADER_NAMES_REJECTED), or responses of
 * one connection could reach wrong callers (test/unit/config/settings-reader.errors.test.ts). A header whose
 * value is a secret matches HEADER_NAMES_SECRET, or the value would be shown.
 */
import { X509Certificate } from 'node:crypto';
import * as Type from 'typebox';
import { API_VERSIONS, PROVIDER_NAMES } from '../core/provider-names.js';
import {
  identifier,
  namedValues,
  switchSetting,
  optionalFile,
  optionalQuota,
  settingsMap,
  wholeNumber,
  type Annotations,
} from './annotations.js';

/** Matches visible ASCII, because a key becomes a header. Keys in files match it too (setting-files.ts). */
export const KEY_PATTERN = '^[!-~]{1,4096}$';
/** A call carries its upstream's features and headers, and is searched for its member names: hence bounds. */
export const BETAS_MAX = 16;
const HEADERS_MAX = 64;
const MEMBER_NAMES_MAX = 32;
const MEMBER_NAME = '[A-Za-z][A-Za-z0-9_.-]{0,63}';
/**
 * Members that keep their names, because the gateway itself reads or writes them by these names. Nor may
 * another member get such a name: it would be taken for that one. Matches whole names after a `^`.
 * (`stream_options` and bounds of the output, which the gateway adds, are renamed like a caller's.)
 */
const FIXED_NAME = '(?:model|messages|stream|n)$';
const MEMBER_NAME_OR_NONE = `^(?!${FIXED_NAME})(?:${MEMBER_NAME})?$`;
/** The provider's name of a feature in trial. */
export const BETA_PATTERN = '^[A-Za-z0-9._-]{1,128}$';
/** A day, the most of each of the four timeouts. */
export const TIMEOUT_MS_MAX = 86_400_000;
/** `total_timeout_ms` where the file does not set it. */
export const TOTAL_TIMEOUT_MS_DEFAULT = 600_000;

/** Enough to give an upstream one call of a thousand. */
export const WEIGHT_MAX = 1_000;
/** A host has no local ports for more connections to one origin. */
const CONNECTIONS_MAX = 60_000;
/** A breaker that waits for more failures would not protect callers. */
const BREAKER_FAILURES_MAX = 10_000;
/** A Retry-After may hold calls back (park them) for a minute at most. */
const PARK_MS_MAX = 60_000;
/** A minute, after which a request no longer counts toward a window. */
const QUEUE_MS_MAX = 60_000;
/** The certificate bundles of operating systems have some 220 KB. */
export const CA_BYTES_MAX = 1024 * 1024;

/** Matches a header's name. settings-reader.ts tests all `x-names…` patterns without regard to case. */
export const HEADER_NAMES = "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$";
/**
 * Matches names that a configuration cannot set. The HTTP client itself sets the headers that frame a
 * message; a second such header would desynchronise the connection. The gateway cannot read encoded
 * responses, and it sets the request's id itself.
 */
export const HEADER_NAMES_REJECTED =
  '^(host|connection|content-(length|type|encoding)|transfer-encoding|keep-alive|upgrade|te|trailer|expect|proxy-.*|http2-settings|accept-encoding|x-request-id)$';
export const HEADER_VALUES = '^[\\t -~]{0,4096}$';
/** Matches names whose value is a secret, among them `apikey` of Kong and `x-apikey` of Apigee. */
export const HEADER_NAMES_SECRET = '^(cookie|(.*[-_])?(authorization|(api)?key|token|secret))$';

const timeout = (presetMs: number, description: string) =>
  wholeNumber(1, TIMEOUT_MS_MAX, presetMs, 'milliseconds', { description });

/** Declares a text that matches the pattern. `want` becomes its `x-want`. */
const word = (pattern: string, description: string, want: string) =>
  Type.String({ pattern, description, 'x-want': want } satisfies Annotations);

/** Whether `isHttpUrl` accepts the text, or the text is the address of the built-in model. */
export function isUpstreamUrl(text: string): boolean {
  return text === 'echo:' || isHttpUrl(text);
}

/**
 * What `isHttpUrl` rejects and users do not expect: the URL parser takes such a host for an IPv4 address, so
 * `http://nomic-embed-v1.5/v1` is no URL to Node.
 */
export const HTTP_HOST_HINT = 'no host name may end with a dot and a number, such as v1.5';

/**
 * Whether a text is an address without user and password, which would be a secret written inline, and without
 * a fragment, which is never sent.
 */
export function isHttpUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, username, password, hash } = new URL(text);
  return (protocol === 'http:' || protocol === 'https:') && username === '' && password === '' && hash === '';
}

/** Whether the text has a certificate. Reads only the first one; OpenSSL skips later ones that are bad. */
export function isCertificates(text: string): boolean {
  try {
    return new X509Certificate(text).raw.length > 0;
  } catch {
    return false;
  }
}

export const upstreamSchema = Type.Object(
  {
    provider: Type.Enum([...PROVIDER_NAMES], {
      default: 'openai',
      description:
        'The protocol of the upstream: openai for every OpenAI-compatible interface, whose bytes pass as they are; the others are translated (docs/providers.md).',
    } satisfies Annotations),
    url: Type.Optional(
      Type.Refine(
        Type.String({
          maxLength: 2_000,
          description:
            "Base address, as the provider's own SDKs take it, or echo: for the built-in model; the provider's public address if it is left out (azure has none).",
          'x-want': 'an http:// or https:// address without user and password, or echo:',
          'x-hint': HTTP_HOST_HINT,
        } satisfies Annotations),
        isUpstreamUrl,
      ),
    ),
    key: Type.Optional(
      Type.String({
        pattern: KEY_PATTERN,
        description: "The provider's key, as a reference to an environment variable.",
        'x-want':
          'a reference to an environment variable such as "${OPENAI_API_KEY}" (visible characters, no spaces), or key_file',
        'x-secret': true,
      } satisfies Annotations),
    ),
    key_file: optionalFile("A file that holds the provider's key; relative to the configuration file."),
    credentials_file: optionalFile(
      'vertex: a JSON file of a service account or of workload identity; relative to the configuration file. Without it, the application default credentials of the machine.',
    ),
    profile: Type.Optional(
      word('^[!-~]{1,128}$', 'bedrock: a profile of the AWS configuration, for the credentials.', 'a name'),
    ),
    region: Type.Optional(
      word(
        '^[a-z0-9-]{1,64}$',
        'vertex and bedrock: the region, such as us-east-1 or global.',
        'the name of a region, such as us-east-1',
      ),
    ),
    project: Type.Optional(
      word('^[a-z0-9.:-]{1,128}$', "vertex: the project's id.", 'the id of a project, in lower case'),
    ),
    api_version: Type.Optional(
      word(
        '^[A-Za-z0-9.-]{1,64}$',
        `Version of the provider's interface: azure ${API_VERSIONS.azure} (v1 or preview for its v1 interface), anthropic ${API_VERSIONS.anthropic}, gemini ${API_VERSIONS.gemini}, vertex ${API_VERSIONS.vertex} if it is left out.`,
        'a version, such as 2024-10-21',
      ),
    ),
    betas: Type.Optional(
      Type.Array(word(BETA_PATTERN, "A feature, by the provider's name for it.", 'the name of a feature'), {
        maxItems: BETAS_MAX,
        description: 'anthropic, and Claude on vertex and bedrock: features in trial that are switched on.',
        'x-want': 'a list of names',
      } satisfies Annotations),
    ),
    speaks: Type.Array(
      Type.Enum(['messages', 'responses'], {
        description: 'An interface.',
      } satisfies Annotations),
      {
        maxItems: 2,
        default: [],
        description:
          'openai and azure: interfaces that the upstream has besides chat completions, at /messages and /responses behind its url. Calls of these pass byte for byte; without it they are translated.',
        'x-want': 'a list of messages and responses',
      } satisfies Annotations,
    ),
    member_names: Type.Optional(
      namedValues(
        Type.String({
          pattern: MEMBER_NAME_OR_NONE,
          description: "The upstream's name for the member; empty: the member is left out.",
          'x-want': 'the name that the upstream has for it, or "" to leave it out',
        } satisfies Annotations),
        {
          maxProperties: MEMBER_NAMES_MAX,
          description:
            'openai and azure: names that this upstream has for members of a chat completion, if it refuses those of OpenAI, such as {stream_options: "", max_completion_tokens: max_tokens}. If a request has a member by both names, the one by the upstream\'s name stays. Models that OpenAI names o1 to o9 and gpt-5 to gpt-9 have {max_tokens: max_completion_tokens} by default, because they refuse the older name.',
          'x-want': 'a map of names to names',
          'x-names': `^${MEMBER_NAME}$`,
          'x-names-refused': `^${FIXED_NAME}`,
        } satisfies Annotations,
      ),
    ),
    thoughts_back: switchSetting({
      description:
        "openai and azure: calls of Messages and Responses that are translated give the upstream its model's earlier thoughts back, as reasoning_content of the assistant's messages. For servers that refuse a conversation without them, such as DeepSeek and Kimi; OpenAI and others may refuse the member.",
    }),
    drop_unsupported: switchSetting({
      description:
        'Leaves out what a request asks for and the provider has no word for; else such a request gets 400, which names the member.',
    }),
    model: Type.Optional(identifier("The model's name at this upstream; the same name if it is left out.")),
    weight: Type.Integer({
      minimum: 1,
      maximum: WEIGHT_MAX,
      default: 1,
      description: 'Share of the calls among the upstreams of one priority.',
    } satisfies Annotations),
    priority: Type.Integer({
      minimum: 1,
      maximum: 1_000,
      default: 1,
      description: 'Upstreams of priority 1 are used first, others only if those fail.',
    } satisfies Annotations),
    headers: namedValues(
      Type.String({
        pattern: HEADER_VALUES,
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
        'x-names-refused': HEADER_NAMES_REJECTED,
        'x-names-secret': HEADER_NAMES_SECRET,
      } satisfies Annotations,
    ),
    connect_timeout_ms: timeout(5_000, 'Longest wait for a connection.'),
    first_byte_timeout_ms: timeout(
      60_000,
      'Longest wait for the first byte of an answer. Most providers send that of a whole answer when all of it is made: reasoning models need minutes.',
    ),
    idle_timeout_ms: timeout(
      60_000,
      'Longest silence between two pieces of an answer, such as that of a stream while a reasoning model thinks.',
    ),
    total_timeout_ms: timeout(
      TOTAL_TIMEOUT_MS_DEFAULT,
      'Longest duration of one try of a call, without the time that its caller does not read; after it no other upstream is tried. A stream that still comes is cut then and charged for what was sent.',
    ),
    connections_max: wholeNumber(1, CONNECTIONS_MAX, 10_000, 'connections', {
      description:
        'Connections to this origin from one worker. A call that finds none free waits for connect_timeout_ms.',
    }),
    breaker_failures: wholeNumber(0, BREAKER_FAILURES_MAX, 10, 'failures', {
      description:
        'Failures in a row, or within 10 seconds if half of the calls fail, after which a worker leaves this upstream alone, for 2 seconds at first and 60 at most (5 if the model has no other that serves); 0 is never.',
    }),
    park_max_ms: wholeNumber(0, PARK_MS_MAX, 5_000, 'milliseconds', {
      description:
        'Longest time for which a Retry-After of this upstream (with 429 or 503) holds back all calls if the model has no other that serves; then one call asks again. While others serve they take its calls, for 60 seconds at most. 0: it never holds back another call.',
    }),
    when_client_leaves: Type.Enum(['abort', 'finish'], {
      default: 'abort',
      description:
        'What becomes of a call whose client leaves. abort: it is ended at once and charged for what was relayed, or by what the provider has reported by then. finish: the rest of the response is read and discarded, and charged, as providers bill it: for models that think unseen and tell their usage last, and for providers that go on when they are left, such as Bedrock (docs/limits.md).',
    } satisfies Annotations),
    requests_per_minute: optionalQuota('requests_per_minute', 'requests', {
      description:
        "Calls that the provider's key gets in any span of 60 seconds, further tries of a call among them; by all processes and hosts together.",
    }),
    tokens_per_minute: optionalQuota('tokens_per_minute', 'tokens', {
      description:
        'Tokens of prompt and completion that the key uses in any span of 60 seconds. A call holds the most that it can use until its end.',
    }),
    calls_in_flight: optionalQuota('calls_in_flight', 'calls', {
      description: 'Calls that the key has in work at a time.',
    }),
    quota_scope: Type.Enum(['key', 'model'], {
      default: 'key',
      description:
        'What the three limits count together: key, all models that use this url and key; model, each model of the key by itself, as providers with limits by model do.',
    } satisfies Annotations),
    queue_ms: wholeNumber(0, QUEUE_MS_MAX, 5_000, 'milliseconds', {
      description:
        'Longest wait of a call for room in the three limits if no upstream of its model has any; then it gets 503 and a Retry-After. 0: it does not wait.',
    }),
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
    ca_file: optionalFile('A file that holds such certificates; relative to the configuration file.'),
  },
  settingsMap('One place where the model is served.'),
);
