/**
 * The TypeBox schemas of requests to POST /v1/messages and /v1/messages/count_tokens. Loaded only at build
 * time: ../build-generated.ts compiles them; after a change run `npm run build`. Follows platform.claude.com,
 * page "Messages", as of November 2026.
 *
 * The schemas check what the gateway reads or bills by. Other members, and the insides of content blocks and
 * tools, pass unchecked: the upstream or the translation checks them.
 *
 * Must hold: messages-rules.ts explains each rule (test/unit/doors/messages/messages-door.test.ts).
 */
import Type from 'typebox';
import { MESSAGES_MAX } from '../../core/limits.js';
import { optional } from '../../protocol/chat-schema.js';
import {
  MESSAGE_ROLES,
  OUTPUT_TOKENS_MIN,
  UNIT_INTERVAL_MAX,
  UNIT_INTERVAL_MIN,
  TOOL_CHOICES,
} from './messages-rules.js';

const ContentBlocks = Type.Array(Type.Object({ type: Type.String() }));
const UnitInterval = Type.Number({ minimum: UNIT_INTERVAL_MIN, maximum: UNIT_INTERVAL_MAX });

const COMMON_MEMBERS = {
  model: Type.String({ minLength: 1 }),
  messages: Type.Array(
    Type.Object({
      role: Type.Enum([...MESSAGE_ROLES]),
      content: Type.Union([Type.String(), ContentBlocks]),
    }),
    { minItems: 1, maxItems: MESSAGES_MAX },
  ),
  system: optional(Type.Union([Type.String(), ContentBlocks])),
  tools: optional(Type.Array(Type.Object({}))),
  tool_choice: optional(Type.Object({ type: Type.Enum([...TOOL_CHOICES]) })),
  thinking: optional(Type.Object({ type: Type.String() })),
};

export const MessagesRequestSchema = Type.Object({
  ...COMMON_MEMBERS,
  max_tokens: Type.Integer({ minimum: OUTPUT_TOKENS_MIN }),
  temperature: optional(UnitInterval),
  top_p: optional(UnitInterval),
  top_k: optional(Type.Integer({ minimum: 0 })),
  stop_sequences: optional(Type.Array(Type.String())),
  stream: optional(Type.Boolean()),
  metadata: optional(Type.Object({})),
});

/** Body of count_tokens. A stream makes no sense there, so `stream: true` is rejected. */
export const CountRequestSchema = Type.Object({ ...COMMON_MEMBERS, stream: optional(Type.Literal(false)) });
