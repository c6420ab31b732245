/**
 * The TypeBox schemas of requests for embeddings, legacy completions, moderations and reranks. Loaded only at
 * build time: ../build-generated.ts compiles them; after a change run `npm run build`. They check what the
 * gateway reads or bills by; other members pass unchecked.
 *
 * Must hold: simple-rules.ts explains each rule (test/unit/doors/simple/simple-doors.test.ts).
 */
import Type from 'typebox';
import { CHOICES_MAX, CHOICES_MIN, OUTPUT_TOKENS_MIN } from '../../protocol/chat-rules.js';
import { optional } from '../../protocol/chat-schema.js';
import { DOCUMENTS_MAX, ENCODINGS, INPUTS_MAX } from './simple-rules.js';

const Tokens = Type.Array(Type.Integer({ minimum: 0 }), { minItems: 1 });
const inputs = (max: number) =>
  Type.Union([
    Type.String(),
    Type.Array(Type.String(), { minItems: 1, maxItems: max }),
    Tokens,
    Type.Array(Tokens, { minItems: 1, maxItems: max }),
  ]);

const MEMBERS = { model: Type.String({ minLength: 1 }) };
const NO_STREAM = { stream: optional(Type.Literal(false)) };

export const EmbeddingsRequestSchema = Type.Object({
  ...MEMBERS,
  ...NO_STREAM,
  input: inputs(INPUTS_MAX),
  encoding_format: optional(Type.Enum([...ENCODINGS])),
  dimensions: optional(Type.Integer({ minimum: 1 })),
});

export const CompletionsRequestSchema = Type.Object({
  ...MEMBERS,
  prompt: optional(inputs(CHOICES_MAX)),
  max_tokens: optional(Type.Integer({ minimum: OUTPUT_TOKENS_MIN })),
  n: optional(Type.Integer({ minimum: CHOICES_MIN, maximum: CHOICES_MAX })),
  stream: optional(Type.Boolean()),
  stream_options: optional(Type.Object({ include_usage: optional(Type.Boolean()) })),
});

export const ModerationsRequestSchema = Type.Object({
  ...MEMBERS,
  ...NO_STREAM,
  input: Type.Union([
    Type.String(),
    Type.Array(Type.String(), { minItems: 1, maxItems: INPUTS_MAX }),
    Type.Array(Type.Object({ type: Type.String() }), { minItems: 1, maxItems: INPUTS_MAX }),
  ]),
});

export const RerankRequestSchema = Type.Object({
  ...MEMBERS,
  ...NO_STREAM,
  query: Type.String(),
  documents: Type.Array(Type.Union([Type.String(), Type.Object({})]), {
    minItems: 1,
    maxItems: DOCUMENTS_MAX,
  }),
  top_n: optional(Type.Integer({ minimum: 1 })),
  return_documents: optional(Type.Boolean()),
});
