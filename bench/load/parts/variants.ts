/**
 * What gateways differ in, and what they are asked.
 */
import type { ProviderName } from '#src/core/provider-names.js';
import type { Part } from './build-without.js';

export interface Variant {
  readonly name: string;
  /** Parts that do nothing. */
  readonly without?: readonly Part[];
  readonly settings?: object;
  /** Four quotas at three scopes: the key, the account, a group. */
  readonly hasQuotas?: true;
  /** `OTEL_EXPORTER_OTLP_ENDPOINT` is set beside it. */
  readonly traces?: Readonly<Record<string, string>>;
  /** The upstream speaks this provider's protocol, so that each call is translated. */
  readonly provider?: ProviderName;
  /** Of the upstream that does. */
  readonly upstream?: Readonly<Record<string, string>>;
  /** Credentials of AWS, by which each request is signed; else the provider gets a key. */
  readonly aws?: Readonly<Record<string, string>>;
  /** Calls are requests to the Messages API, which pass to a provider that speaks it. */
  readonly isMessages?: true;
  /** Of the callers. */
  readonly headers?: Readonly<Record<string, string>>;
}

const RECORDED = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

const BEDROCK = { model: 'us.anthropic.claude-sonnet-4-5-20250929-v1:0', region: 'us-east-1' };

export const AS_IT_COMES: Variant = { name: 'as-it-comes' };
export const VARIANTS: readonly Variant[] = [
  AS_IT_COMES,
  { name: 'no-limits', without: ['limits'] },
  { name: 'no-limits-no-books', without: ['limits', 'books'] },
  { name: 'no-metrics', without: ['metrics'] },
  { name: 'quotas', hasQuotas: true },
  { name: 'access-log', settings: { access_log: { enabled: true, path: 'access.ndjson' } } },
  { name: 'no-call-log', settings: { call_log: { enabled: false } } },
  { name: 'traceparent', headers: { traceparent: RECORDED } },
  {
    name: 'traces-10',
    traces: { OTEL_TRACES_SAMPLER: 'parentbased_traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.1' },
  },
  { name: 'traces-all', traces: {} },
  { name: 'cache', settings: { cache: { ttl_seconds: 3_600 } } },
  { name: 'no-workers', settings: { workers: 0 } },
  { name: 'renamed', upstream: { model: 'gpt-4o-2024-08' } },
  { name: 'azure', provider: 'azure', upstream: { model: 'gpt-4o' } },
  { name: 'anthropic', provider: 'anthropic', upstream: { model: 'claude-sonnet-4-5' } },
  { name: 'messages', provider: 'anthropic', upstream: { model: 'claude-sonnet-4-5' }, isMessages: true },
  { name: 'gemini', provider: 'gemini', upstream: { model: 'gemini-2.5-flash' } },
  { name: 'bedrock', provider: 'bedrock', upstream: BEDROCK },
  {
    name: 'bedrock-signed',
    provider: 'bedrock',
    upstream: BEDROCK,
    aws: {
      AWS_ACCESS_KEY_ID: 'AKIDEXAMPLE',
      AWS_SECRET_ACCESS_KEY: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
    },
  },
];

export interface Shape {
  readonly promptChars: number;
  readonly stream: boolean;
  /** Arguments of the upstream. */
  readonly upstream: readonly string[];
  /** Of the responses, 200 if it is left out: 401 for an unknown key, 429 for a plan of one call a minute. */
  readonly status?: 401 | 429;
  /** The call asks for embeddings of so many texts of `promptChars`, of 1,536 dimensions, as base64. */
  readonly embeds?: number;
}

const WHOLE: Shape = { promptChars: 200, stream: false, upstream: ['--bytes', '240', '--chunks', '20'] };

/** As the scenarios whole-small, whole-large, stream-20, stream-200 and refused-… of the bench. */
export const SHAPES = {
  whole: WHOLE,
  large: { promptChars: 16_384, stream: false, upstream: ['--bytes', '3800', '--chunks', '20'] },
  stream: { promptChars: 200, stream: true, upstream: ['--bytes', '240', '--chunks', '20'] },
  stream200: { promptChars: 200, stream: true, upstream: ['--bytes', '2400', '--chunks', '200'] },
  embeddings: { promptChars: 200, stream: false, upstream: [], embeds: 100 },
  401: { ...WHOLE, status: 401 },
  429: { ...WHOLE, status: 429 },
} as const satisfies Record<string, Shape>;
