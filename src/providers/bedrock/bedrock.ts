/**
 * Amazon Bedrock as a Provider (provider.ts). All models speak Converse. For requests to the Messages door
 * Claude also speaks Anthropic's own protocol: InvokeModel accepts the body except for a few members, and its
 * stream wraps Anthropic's events in messages of Amazon's event stream. provider-client.ts calls BEDROCK.
 * Upstream worker; `write` also on counter threads.
 *
 * Follows Amazon Bedrock API Reference, "Converse", "ConverseStream", "InvokeModel",
 * "InvokeModelWithResponseStream" and "CountTokens"; User Guide, "Use an Amazon Bedrock API key", "Anthropic
 * Claude Messages API" and "Monitor your token usage by counting tokens", 2026-11. request.ts, messages.ts,
 * tools.ts and models.ts translate the body.
 *
 * Must hold: path and signature are those of the AWS SDK, or AWS responds with 403. The path is encoded here
 * once, as it is sent; signature.ts encodes it once more (test/unit/providers/bedrock/bedrock.test.ts).
 * Anthropic's events reach the caller byte for byte (test/unit/providers/bedrock/bedrock.claude.test.ts).
 */
import { hash } from 'node:crypto';
import { isRecord, membersOf, parsedJson } from '../../core/json.js';
import { sseEvent } from '../../protocol/sse.js';
import { cloudBodyOf, knownBetasOf } from '../anthropic/anthropic.js';
import {
  authorizationOf,
  type Provider,
  type ProviderCall,
  type UnsignedRequest,
  ProviderError,
  type PassedCall,
  type ProviderStream,
  type UnsignedCall,
} from '../provider.js';
import { readError } from './errors.js';
import { eventOf, FrameReader } from './frames.js';
import { bodyOf } from './request.js';
import { readResponse } from './response.js';
import { uriEncode, signatureHeaders } from './signature.js';
import { ConverseStream } from './stream.js';

export const BEDROCK: Provider = {
  write(call) {
    const { settings, model, stream } = call;
    const paths = pathsOf(model, settings.basePath);
    return { path: stream ? paths.converseStream : paths.converse, body: bodyOf(call) };
  },
  headers: authorization,
  signsBody: true,
  readResponse,
  openStream: (call) => new ConverseStream(call),
  readError,
  writePassed(call, callersBody, passedCall) {
    const { model, operation, body } = claudeRequest(call, callersBody, passedCall);
    const path = pathsOf(model, call.settings.basePath).prefix + operation;
    return {
      path,
      headers: authorization(call, { path, body }),
      body,
      ...(passedCall.stream && { stream: new ClaudeStream() }),
      ...(operation === 'count-tokens' && { readResponse: readCount }),
    };
  },
};

/**
 * The paths of the model that this thread called last. So a run of calls to one model has one string, which
 * signature.ts compares fast with the path of the call before.
 */
let cachedPaths = { basePath: '', model: '', prefix: '', converse: '', converseStream: '' };

/** The paths of a model. The name becomes one segment, with colons and slashes of an ARN encoded. */
function pathsOf(model: string, basePath: string): typeof cachedPaths {
  if (cachedPaths.model !== model || cachedPaths.basePath !== basePath) {
    const prefix = `${basePath}/model/${uriEncode(model)}/`;
    const converse = `${prefix}converse`;
    cachedPaths = { basePath, model, prefix, converse, converseStream: `${prefix}converse-stream` };
  }
  return cachedPaths;
}

/** The headers that authorise a call: a signature of AWS, a key of Bedrock, or none. */
function authorization(
  { credential, settings, nowMs }: ProviderCall,
  { path, body, bodyHash }: UnsignedRequest,
): readonly string[] {
  if (credential?.kind === 'key') return ['authorization', `Bearer ${credential.key}`];
  if (credential?.kind !== 'aws') return authorizationOf(credential, 'authorization');
  const { host, region } = settings;
  return signatureHeaders(path, host, bodyHash ?? hash('sha256', body), credential, region, nowMs);
}

/** The version of Anthropic's protocol on Bedrock, which the body must name. */
const CLAUDE_VERSION = 'bedrock-2023-05-31';
/** Matches the name of a beta feature that Claude on Bedrock has. */
const KNOWN_BETA =
  /^(?:compact|computer-use|context-1m|context-management|dev-full-thinking|effort|fine-grained-tool-streaming|interleaved-thinking|output-128k|token-efficient-tools|tool-examples|tool-search-tool)-\d{4}-\d\d-\d\d$/;

type Operation = 'invoke' | 'invoke-with-response-stream' | 'count-tokens';

interface ClaudeRequest {
  readonly model: string;
  readonly operation: Operation;
  readonly body: string;
}

/**
 * The request to Bedrock for a call of the Messages door or of its `count_tokens`. Exported for its test, as
 * `readCount` and ClaudeStream are.
 */
export function claudeRequest(
  { settings }: UnsignedCall,
  body: string | Uint8Array,
  { door, stream, betas }: PassedCall,
): ClaudeRequest {
  const callersBetas = knownBetasOf(betas, (name) => KNOWN_BETA.test(name));
  const form = { version: CLAUDE_VERSION, betas: settings.betas, callersBetas, alsoRemoved: 'stream' };
  if (door !== 'count_tokens') {
    const operation = stream ? 'invoke-with-response-stream' : 'invoke';
    return { operation, ...cloudBodyOf(body, form) };
  }
  // CountTokens wants the body of InvokeModel, in which max_tokens is required.
  const added = ['max_tokens', outputTokensMin] as const;
  const counted = cloudBodyOf(body, { ...form, added });
  const countRequest = { input: { invokeModel: { body: Buffer.from(counted.body).toString('base64') } } };
  return { model: counted.model, operation: 'count-tokens', body: JSON.stringify(countRequest) };
}

/**
 * The least `max_tokens` of a body, as JSON text: more than the thinking budget. `members`: those of the
 * body, each as `"name":value`.
 */
function outputTokensMin(members: readonly string[]): string {
  const member = members.find((text) => text.startsWith('"thinking"'));
  const body = member === undefined ? undefined : parsedJson(`{${member}}`);
  const { budget_tokens: budget } = membersOf(membersOf(body).thinking);
  return Number.isSafeInteger(budget) ? `${(budget as number) + 1}` : '1';
}

/** The response of CountTokens in the form of Anthropic's `count_tokens`. */
export function readCount(body: Buffer): string {
  const { inputTokens: tokens } = membersOf(parsedJson(body.toString()));
  if (!Number.isSafeInteger(tokens)) throw ProviderError.invalid('no inputTokens');
  return JSON.stringify({ input_tokens: tokens });
}

/** A fast path: Anthropic writes the type first in nearly all events. */
const EVENT_TYPE = /^\{"type":"(\w+)"/;

/** Takes Anthropic's events out of Amazon's messages, and writes them as server-sent events. */
export class ClaudeStream implements ProviderStream {
  /** The events that `push` will return. */
  #events = '';
  readonly #frames = new FrameReader((headers, bytes, start, end) => {
    const event = eventOf(headers, bytes.toString('utf8', start, end));
    // A message without `bytes` is of a later version of Bedrock, and is ignored.
    if (typeof event.bytes === 'string') this.#events += sseOf(Buffer.from(event.bytes, 'base64').toString());
  });

  push(bytes: Uint8Array): string {
    this.#events = '';
    this.#frames.push(bytes);
    return this.#events;
  }

  /** Checks that Amazon's last message is whole; upstream/passed-stream-reader.ts, Anthropic's events. */
  end(): string {
    if (!this.#frames.isBetweenMessages) throw ProviderError.invalid('the stream ended inside of a message');
    return '';
  }
}

/** The event with its type, as in Anthropic's own stream. Throws a ProviderError if `json` has no type. */
function sseOf(json: string): string {
  let type = EVENT_TYPE.exec(json)?.[1];
  let data = json;
  if (type === undefined || json.includes('\n') || json.includes('\r')) {
    const event = parsedJson(json);
    if (!isRecord(event) || typeof event.type !== 'string')
      throw ProviderError.invalid('a chunk is no event');
    type = event.type;
    // A line break, also a CR alone, would end the event's line; outside of strings it means nothing.
    data = json.replaceAll(/[\r\n]/g, ' ');
  }
  return sseEvent(data, type);
}
