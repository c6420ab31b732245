/**
 * The TypeBox schema of a chat-completion request. Only the build loads it: doors/build-generated.ts compiles
 * it into a check, and puts it into the OpenAPI document.
 *
 * Members that are not named here pass unchecked. Optional members may be null, which means "not given":
 * common client libraries send null for what their caller left out, and providers accept it.
 *
 * Must hold: ChatScan (chat-scan.ts) reads each member that has a rule
 * (test/unit/protocol/request-rules.test.ts). After a change run `npm run build`.
 */
import type { Static, TSchema } from 'typebox';
import * as Type from 'typebox';
import { MESSAGES_MAX } from '../core/limits.js';
import { CHAT_ROLES, CHOICES_MAX } from './request-rules.js';

/** A member that may be absent or null. request-schemas.ts of doors/ uses it too, as the schemas below. */
export function optional<Schema extends TSchema>(schema: Schema) {
  return Type.Optional(Type.Union([schema, Type.Null()]));
}

export const Model = Type.String({ minLength: 1, description: 'a non-empty string' });
/** Zero is valid: only negative values are rejected. */
export const OutputTokens = Type.Integer({ minimum: 0 });
export const Choices = Type.Integer({
  minimum: 1,
  maximum: CHOICES_MAX,
  description: `an integer between 1 and ${CHOICES_MAX}`,
});
export const StreamOptions = Type.Object({ include_usage: optional(Type.Boolean()) });
/** OpenAI's bounds of `temperature` and `top_p`. */
export const TEMPERATURE = { minimum: 0, maximum: 2 };
export const TOP_P = { minimum: 0, maximum: 1 };

const Role = Type.Enum([...CHAT_ROLES]);
const ContentPart = Type.Object({ type: Type.String() });

const MessageWithContent = Type.Object({
  role: Role,
  content: Type.Union([Type.String(), Type.Array(ContentPart)], {
    // Beside one of the four members the content may also be absent, which means the same as null.
    description: 'a string, an array of parts, or null beside tool_calls, function_call, refusal or audio',
  }),
});

/** Members of a message without content. Its `content` is null, or absent from some clients. */
const WithoutContent = { role: Role, content: Type.Optional(Type.Null()) };

/** Messages of an assistant that call tools, refuse or speak. OpenAI returns them, and accepts them back. */
const AssistantMessages = [
  Type.Object({ ...WithoutContent, tool_calls: Type.Array(Type.Unknown()) }),
  Type.Object({ ...WithoutContent, function_call: Type.Object({}) }),
  Type.Object({ ...WithoutContent, refusal: Type.String() }),
  Type.Object({ ...WithoutContent, audio: Type.Object({}) }),
] as const;

export const ChatRequestSchema = Type.Object({
  model: Model,
  messages: Type.Array(Type.Union([MessageWithContent, ...AssistantMessages], { description: 'an object' }), {
    minItems: 1,
    maxItems: MESSAGES_MAX,
    description: 'an array of messages',
  }),
  max_tokens: optional(OutputTokens),
  max_completion_tokens: optional(OutputTokens),
  temperature: optional(Type.Number(TEMPERATURE)),
  top_p: optional(Type.Number(TOP_P)),
  n: optional(Choices),
  stream: optional(Type.Boolean()),
  stream_options: optional(StreamOptions),
});

export type ChatRequest = Static<typeof ChatRequestSchema>;
