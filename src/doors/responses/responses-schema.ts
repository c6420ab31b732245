/**
 * The TypeBox schema of a request to POST /v1/responses. Loaded only at build time: ../build-generated.ts
 * compiles it; after a change run `npm run build`. Members that are not named here pass unchecked.
 *
 * Must hold: responses-rules.ts explains each rule (test/unit/doors/responses/responses-rules.test.ts).
 */
import Type from 'typebox';
import { MESSAGES_MAX } from '../../core/limits.js';
import {
  OUTPUT_TOKENS_MIN,
  TEMPERATURE_MAX,
  TEMPERATURE_MIN,
  TOP_P_MAX,
  TOP_P_MIN,
} from '../../protocol/chat-rules.js';
import { optional } from '../../protocol/chat-schema.js';

export const ResponsesRequestSchema = Type.Object({
  model: Type.String({ minLength: 1 }),
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
  background: optional(Type.Literal(false)),
  parallel_tool_calls: optional(Type.Boolean()),
  tools: optional(Type.Array(Type.Object({ type: Type.String() }))),
  text: optional(Type.Object({})),
  reasoning: optional(Type.Object({})),
});
