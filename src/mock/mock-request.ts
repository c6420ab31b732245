/**
 * What the mock reads of a request: enough to answer it, and the steering that a test may put into the prompt, because a
 * gateway in between hands on no headers of its caller. Thread of the mock; pure.
 */

export interface MockRequest {
  readonly model: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  /** One for every 4 bytes of the messages' string contents, rounded up. */
  readonly promptTokens: number;
  /** The query string after `x-mock:` in the first line of the last user message. */
  readonly steering: string | undefined;
}

export const BYTES_PER_TOKEN = 4;
const STEERING_MARK = 'x-mock:';

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;

function steeringOf(content: string): string | undefined {
  if (!content.startsWith(STEERING_MARK)) return undefined;
  const line = content.slice(STEERING_MARK.length);
  const end = line.indexOf('\n');
  return (end === -1 ? line : line.slice(0, end)).trim();
}

/** Undefined where the body is not a JSON object. */
export function readMockRequest(body: string): MockRequest | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    return undefined;
  }
  if (!isRecord(parsed)) return undefined;
  let promptBytes = 0;
  let prompt = '';
  const messages: readonly unknown[] = Array.isArray(parsed.messages) ? parsed.messages : [];
  for (const message of messages) {
    if (!isRecord(message) || typeof message.content !== 'string') continue;
    promptBytes += Buffer.byteLength(message.content);
    if (message.role === 'user') prompt = message.content;
  }
  const streamOptions = parsed.stream_options;
  return {
    model: typeof parsed.model === 'string' ? parsed.model : 'mock-model',
    stream: parsed.stream === true,
    includeUsage: isRecord(streamOptions) && streamOptions.include_usage === true,
    promptTokens: Math.ceil(promptBytes / BYTES_PER_TOKEN),
    steering: steeringOf(prompt),
  };
}
