/**
 * The TypeBox schema of a chat-completion request. Only the build loads it: doors/build-generated.ts compiles
 * it into a validator, and puts it into the OpenAPI document.
 *
 * Members that are not named here pass unchecked. Optional members may be null, which means "not given":
 * common client libraries send null for what their caller left out, and providers accept it.
 *
 * Must hold: chat-rules.ts explains each rule, and ChatScan (chat-scan.ts) reads each member that has one
 * (test/unit/protocol/validators.test.ts). After a change run `npm run build`.
 */
import type { Static, TSchema } from 'typebox';
import * as Type from 'typebox';
import { MESSAGES_MAX } from '../core/limits.js';
import {
  CHAT_ROLES,
  CHOICES_MAX,
  CHOICES_MIN,
  OUTPUT_TOKENS_MIN,
  TEMPERATURE_MAX,
  TEMPERATURE_MIN,
  TOP_P_MAX,
  TOP_P_MIN,
} from './chat-rules.js';

/** A member that may be absent or null. request-schemas.ts of doors/ uses it too. */
export function optional<Schema extends TSchema>(schema: Schema) {
  return Type.Optional(Type.Union([schema, Type.Null()]));
}

const Role = Type.Enum([...CHAT_ROLES]);
const ContentPart = Type.Object({ type: Type.String() });

const MessageWithContent = Type.Object({
  role: Role,
  content: Type.Union([Type.String(), Type.Array(ContentPart)]),
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
  model: Type.String({ minLength: 1 }),
  messages: Type.Array(Type.Union([MessageWithContent, ...AssistantMessages]), {
    minItems: 1,
    maxItems: MESSAGES_MAX,
  }),
  max_tokens: optional(Type.Integer({ minimum: OUTPUT_TOKENS_MIN })),
  max_completion_tokens: optional(Type.Integer({ minimum: OUTPUT_TOKENS_MIN })),
  temperature: optional(Type.Number({ minimum: TEMPERATURE_MIN, maximum: TEMPERATURE_MAX })),
  top_p: optional(Type.Number({ minimum: TOP_P_MIN, maximum: TOP_P_MAX })),
  n: optional(Type.Integer({ minimum: CHOICES_MIN, maximum: CHOICES_MAX })),
  stream: optional(Type.Boolean()),
  stream_options: optional(Type.Object({ include_usage: optional(Type.Boolean()) })),
});

export type ChatRequest = Static<typeof ChatRequestSchema>;
