/**
 * The TypeBox schemas of requests at all doors but chat, which chat-schema.ts has. Only the build loads them:
 * build-generated.ts compiles them into protocol/generated.js. After a change run `npm run build`, or threads
 * keep the former checks. The bounds of the Messages door are those of platform.claude.com, page "Messages",
 * as of November 2026. responses-door.ts and simple-rules.ts say where those of the other doors come from.
 *
 * The schemas check what the gateway reads or bills by, and single values that it translates: so completions,
 * which are never translated, have no `temperature`. Other members, and the insides of content blocks, items
 * and tools, pass unchecked: the upstream or the translation checks them. member-scan.ts has already rejected
 * a member that makes output which no hold covers (`best_of`). `optional` allows null, because SDKs send null
 * for a member that their caller left out.
 *
 * Must hold: each rule stands in messages-rules.ts, responses-door.ts or simple-rules.ts too. An `explain…`
 * there finds the rule that a rejected body breaks; it throws in a listener if it finds none
 * (test/unit/doors/messages/messages-door.test.ts, test/unit/doors/responses/responses-door.rules.test.ts,
 * test/unit/doors/simple/simple-doors.test.ts).
 */
import * as Type from 'typebox';
import { MESSAGES_MAX } from '../core/limits.js';
import {
  CHOICES_MAX,
  CHOICES_MIN,
  OUTPUT_TOKENS_MIN,
  TEMPERATURE_MAX,
  TEMPERATURE_MIN,
  TOP_P_MAX,
  TOP_P_MIN,
} from '../protocol/chat-rules.js';
import { optional } from '../protocol/chat-schema.js';
import {
  MESSAGE_ROLES,
  TOOL_CHOICES,
  UNIT_INTERVAL_MAX,
  UNIT_INTERVAL_MIN,
} from './messages/messages-rules.js';
import { DOCUMENTS_MAX, ENCODINGS, INPUTS_MAX } from './simple/simple-rules.js';

const MODEL = { model: Type.String({ minLength: 1 }) };
const NO_STREAM = { stream: optional(Type.Literal(false)) };
const ContentBlocks = Type.Array(Type.Object({ type: Type.String() }));
const UnitInterval = Type.Number({ minimum: UNIT_INTERVAL_MIN, maximum: UNIT_INTERVAL_MAX });

/** What a Messages request and a request to count its tokens have in common. */
const MESSAGES_MEMBERS = {
  ...MODEL,
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
  ...MESSAGES_MEMBERS,
  max_tokens: Type.Integer({ minimum: OUTPUT_TOKENS_MIN }),
  temperature: optional(UnitInterval),
  top_p: optional(UnitInterval),
  top_k: optional(Type.Integer({ minimum: 0 })),
  stop_sequences: optional(Type.Array(Type.String())),
  stream: optional(Type.Boolean()),
  metadata: optional(Type.Object({})),
});

/** Body of count_tokens. A stream makes no sense there, so `stream: true` is rejected. */
export const CountRequestSchema = Type.Object({ ...MESSAGES_MEMBERS, ...NO_STREAM });

export const ResponsesRequestSchema = Type.Object({
  ...MODEL,
  // Optional, because a stored prompt may take its place, if the model's `pass_members` allows that. Items
  // count as messages.
  input: optional(
    Type.Union([Type.String(), Type.Array(Type.Object({}), { minItems: 1, maxItems: MESSAGES_MAX })]),
  ),
  instructions: optional(Type.String()),
  max_output_tokens: optional(Type.Integer({ minimum: OUTPUT_TOKENS_MIN })),
  temperature: optional(Type.Number({ minimum: TEMPERATURE_MIN, maximum: TEMPERATURE_MAX })),
  top_p: optional(Type.Number({ minimum: TOP_P_MIN, maximum: TOP_P_MAX })),
  stream: optional(Type.Boolean()),
  stream_options: optional(Type.Object({})),
  store: optional(Type.Boolean()),
  // The response of a background call would come by a later request, which could not be billed.
  background: optional(Type.Literal(false)),
  parallel_tool_calls: optional(Type.Boolean()),
  tools: optional(Type.Array(Type.Object({ type: Type.String() }))),
  text: optional(Type.Object({})),
  reasoning: optional(Type.Object({})),
});

/** One text, as the numbers of its tokens; the bound of bodies bounds how many. */
const Tokens = Type.Array(Type.Integer({ minimum: 0 }), { minItems: 1 });
/** One text or up to `max`, each as a string or as tokens. */
const inputs = (max: number) =>
  Type.Union([
    Type.String(),
    Type.Array(Type.String(), { minItems: 1, maxItems: max }),
    Tokens,
    Type.Array(Tokens, { minItems: 1, maxItems: max }),
  ]);

export const EmbeddingsRequestSchema = Type.Object({
  ...MODEL,
  ...NO_STREAM,
  input: inputs(INPUTS_MAX),
  encoding_format: optional(Type.Enum([...ENCODINGS])),
  dimensions: optional(Type.Integer({ minimum: 1 })),
});

export const CompletionsRequestSchema = Type.Object({
  ...MODEL,
  // Each prompt gives at least one choice. Without a prompt the model begins a text of its own.
  prompt: optional(inputs(CHOICES_MAX)),
  max_tokens: optional(Type.Integer({ minimum: OUTPUT_TOKENS_MIN })),
  n: optional(Type.Integer({ minimum: CHOICES_MIN, maximum: CHOICES_MAX })),
  stream: optional(Type.Boolean()),
  stream_options: optional(Type.Object({ include_usage: optional(Type.Boolean()) })),
});

export const ModerationsRequestSchema = Type.Object({
  ...MODEL,
  ...NO_STREAM,
  input: Type.Union([
    Type.String(),
    Type.Array(Type.String(), { minItems: 1, maxItems: INPUTS_MAX }),
    Type.Array(Type.Object({ type: Type.String() }), { minItems: 1, maxItems: INPUTS_MAX }),
  ]),
});

export const RerankRequestSchema = Type.Object({
  ...MODEL,
  ...NO_STREAM,
  query: Type.String(),
  documents: Type.Array(Type.Union([Type.String(), Type.Object({})]), {
    minItems: 1,
    maxItems: DOCUMENTS_MAX,
  }),
  top_n: optional(Type.Integer({ minimum: 1 })),
  return_documents: optional(Type.Boolean()),
});
