/** Calls of a provider on Bedrock and messages of event streams, for tests of src/providers/bedrock. */
import { Readable } from 'node:stream';
import { BedrockRuntimeClient } from '@aws-sdk/client-bedrock-runtime';
import { EventStreamCodec } from '@smithy/eventstream-codec';
import type { ProviderCall, ProviderSettings } from '#src/providers/provider.js';

export const BEDROCK_SETTINGS: ProviderSettings = {
  name: 'bedrock',
  basePath: '',
  host: 'bedrock-runtime.us-east-1.amazonaws.com',
  apiVersion: '',
  betas: [],
  region: 'us-east-1',
  project: '',
  dropUnsupported: false,
  outputTokensMax: 4096,
  credential: undefined,
};

export const CLAUDE = 'us.anthropic.claude-sonnet-4-5-20250929-v1:0';

export interface GivenCall {
  readonly model?: string;
  readonly credential?: ProviderCall['credential'];
  readonly settings?: Partial<ProviderSettings>;
}

export function bedrockCall(body: Record<string, unknown>, given: GivenCall = {}): ProviderCall {
  return {
    settings: { ...BEDROCK_SETTINGS, ...given.settings },
    credential: given.credential ?? { kind: 'key', key: 'bedrock-key' },
    body,
    model: given.model ?? CLAUDE,
    stream: body.stream === true,
    requestId: 'req-1',
    nowMs: Date.UTC(2026, 10, 23, 12, 0, 0),
  };
}

const codec = new EventStreamCodec(
  (bytes) => Buffer.from(bytes).toString(),
  (text) => Buffer.from(text),
);

/** A message of AWS's own encoder. */
export function message(headers: Readonly<Record<string, string>>, body: unknown): Buffer {
  return Buffer.from(
    codec.encode({
      headers: Object.fromEntries(
        Object.entries(headers).map(([name, value]) => [name, { type: 'string' as const, value }]),
      ),
      body: Buffer.from(JSON.stringify(body)),
    }),
  );
}

export function event(type: string, body: unknown): Buffer {
  return message(
    { ':event-type': type, ':content-type': 'application/json', ':message-type': 'event' },
    body,
  );
}

export function exception(type: string, text: string): Buffer {
  const headers = {
    ':exception-type': type,
    ':content-type': 'application/json',
    ':message-type': 'exception',
  };
  return message(headers, { message: text });
}

interface SdkRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly body: Uint8Array<ArrayBuffer> | string;
}

/** The AWS SDK over HTTP/1.1, where its own handler wants HTTP/2. Signs with keys, or sends a `token`. */
export function bedrockSdk(origin: string, token?: string): BedrockRuntimeClient {
  return new BedrockRuntimeClient({
    region: 'us-east-1',
    endpoint: origin,
    maxAttempts: 1,
    ...(token === undefined
      ? { credentials: { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'secret' } }
      : { token: { token }, authSchemePreference: ['httpBearerAuth'] }),
    requestHandler: {
      async handle({ method, path, headers, body }: SdkRequest) {
        const response = await fetch(`${origin}${path}`, { method, headers, body });
        return {
          response: {
            statusCode: response.status,
            headers: Object.fromEntries(response.headers),
            body: Readable.fromWeb(response.body!),
          },
        };
      },
    } as never,
  });
}
