/**
 * Requests to a provider and chat completions in one form each, so that two translations differ only in what
 * they say: members in one order and spelling, texts as lists of parts, nothing that is null or empty.
 */
import { isRecord } from '#src/core/json.js';
import { GEMINI, type Dialect } from '../support/provider-dialects.js';

/** What is inside is data of the caller, whose names stay. */
const OPAQUE =
  /^(args|input|schema|parameters|parametersJsonSchema|responseSchema|responseJsonSchema|input_schema|json|properties|response)$/;

const camel = (name: string): string =>
  name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** Names in camelCase, which the API takes as well as those with underscores. */
function inCamelCase(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inCamelCase);
  if (!isRecord(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => {
      const spelled = camel(name);
      return [spelled, OPAQUE.test(spelled) ? member : inCamelCase(member)];
    }),
  );
}

const isEmptyConfig = (name: string, member: unknown): boolean =>
  name.endsWith('Config') && isRecord(member) && Object.keys(member).length === 0;

/** Without members that are null or, but for texts and data of the caller, empty lists. */
function withoutNothing(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNothing);
  if (!isRecord(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name, member]) => member !== null && member !== undefined && !isEmptyConfig(name, member))
      .map(([name, member]) => [name, OPAQUE.test(name) ? member : withoutNothing(member)]),
  );
}

const asParts = (content: unknown): unknown =>
  typeof content === 'string' ? [{ type: 'text', text: content }] : content;

function plainAnthropic(body: Record<string, unknown>): Record<string, unknown> {
  const messages = (body.messages as Record<string, unknown>[]).map((message) => ({
    ...message,
    content: (asParts(message.content) as Record<string, unknown>[]).map((part) =>
      part.type === 'tool_result' ? { ...part, content: asParts(part.content) } : part,
    ),
  }));
  return { ...body, messages, ...('system' in body ? { system: asParts(body.system) } : {}) };
}

/** `body`: of a request, as JSON says it. */
export function plainRequest(dialect: Dialect, body: object): object {
  const spelled = dialect === GEMINI ? inCamelCase(body) : body;
  const plain = withoutNothing(spelled) as Record<string, unknown>;
  return 'system' in plain || Array.isArray(plain.messages)
    ? dialect.streamType === 'text/event-stream'
      ? plainAnthropic(plain)
      : plain
    : plain;
}

interface ChatShape {
  choices?: { message: Record<string, unknown>; finish_reason?: unknown }[];
  message?: Record<string, unknown>;
  finish?: unknown;
  usage?: Record<string, unknown>;
}

const detail = (usage: Record<string, unknown>, group: string, name: string): unknown =>
  (usage[group] as Record<string, unknown> | undefined)?.[name] ?? 0;

/** `chat`: a whole response, or a stream that joinedChat put together. */
export function plainChat(chat: object): object {
  const { choices, usage, ...joined } = chat as ChatShape;
  const message = choices?.[0]?.message ?? joined.message ?? {};
  const finish = choices === undefined ? joined.finish : choices[0]?.finish_reason;
  const calls = (message.tool_calls ?? []) as {
    id: string;
    function: { name: string; arguments: string };
    extra_content?: { google?: { thought_signature?: string } };
    provider_specific_fields?: { thought_signature?: string };
  }[];
  return {
    content: message.content ?? '',
    reasoning: message.reasoning_content ?? '',
    // LiteLLM numbers them.
    thinking: ((message.thinking_blocks ?? []) as object[]).map((block) => ({ ...block, index: undefined })),
    tools: calls.map((call) => ({
      // Where the provider gave none, each makes one of its own.
      id: call.id.startsWith('toolu_') ? call.id : '',
      name: call.function.name,
      arguments: JSON.parse(call.function.arguments === '' ? '{}' : call.function.arguments) as unknown,
      signature:
        call.extra_content?.google?.thought_signature ??
        call.provider_specific_fields?.thought_signature ??
        '',
    })),
    finish,
    usage: usage && {
      prompt: usage.prompt_tokens,
      completion: usage.completion_tokens,
      total: usage.total_tokens,
      cached: detail(usage, 'prompt_tokens_details', 'cached_tokens'),
      written: detail(usage, 'prompt_tokens_details', 'cache_write_tokens'),
      reasoning: detail(usage, 'completion_tokens_details', 'reasoning_tokens'),
      audio: detail(usage, 'prompt_tokens_details', 'audio_tokens'),
      image: detail(usage, 'prompt_tokens_details', 'image_tokens'),
    },
  };
}
