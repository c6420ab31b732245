/**
 * The schema of a request to Anthropic's Messages API. Loaded only at
 * build time: ../build-generated.ts compiles it. It has what the gateway reads or bills by; of blocks and
 * tools the upstream, or the translation, knows the rest. Members that are not named here pass unread, and
 * the optional ones may be null.
 */
import Type, { type TSchema } from 'typebox';
import { MESSAGES_MAX } from '../../core/limits.js';
import { MESSAGE_ROLES, OUTPUT_TOKENS_MIN, SHARE_MAX, SHARE_MIN, TOOL_CHOICES } from './messages-rules.js';

function optional<Schema extends TSchema>(schema: Schema) {
  return Type.Optional(Type.Union([schema, Type.Null()]));
}

const Blocks = Type.Array(Type.Object({ type: Type.String() }));
const Share = Type.Number({ minimum: SHARE_MIN, maximum: SHARE_MAX });

const MEMBERS = {
  model: Type.String({ minLength: 1 }),
  messages: Type.Array(
    Type.Object({
      role: Type.Enum([...MESSAGE_ROLES]),
      content: Type.Union([Type.String(), Blocks]),
    }),
    { minItems: 1, maxItems: MESSAGES_MAX },
  ),
  system: optional(Type.Union([Type.String(), Blocks])),
  tools: optional(Type.Array(Type.Object({}))),
  tool_choice: optional(Type.Object({ type: Type.Enum([...TOOL_CHOICES]) })),
  thinking: optional(Type.Object({ type: Type.String() })),
};

export const MessagesRequestSchema = Type.Object({
  ...MEMBERS,
  max_tokens: Type.Integer({ minimum: OUTPUT_TOKENS_MIN }),
  temperature: optional(Share),
  top_p: optional(Share),
  top_k: optional(Type.Integer({ minimum: 0 })),
  stop_sequences: optional(Type.Array(Type.String())),
  stream: optional(Type.Boolean()),
  metadata: optional(Type.Object({})),
});

/** How many tokens a prompt has. */
export const CountRequestSchema = Type.Object({ ...MEMBERS, stream: optional(Type.Literal(false)) });
