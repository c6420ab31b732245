/**
 * The TypeBox schemas of requests at all doors but chat, which chat-schema.ts has. Only the build loads them:
 * build-generated.ts compiles them into protocol/generated.js. After a change run `npm run build`, or threads
 * keep the former checks. The bounds of the Messages door are those of platform.claude.com, page "Messages",
 * as of November 2026, those of the others OpenAI's and Cohere's.
 *
 * The schemas check what the gateway reads or bills by, and single values that it translates: so completions,
 * which are never translated, have no `temperature`. Other members, and the insides of content blocks, items
 * and tools, pass unchecked: the upstream or the translation checks them. member-scan.ts has already rejected
 * a member that makes output which no hold covers (`best_of`). `optional` allows null, because SDKs send null
 * for a member that their caller left out. A `description` is what follows "must be" in the error for a wrong
 * value (request-rules.ts).
 *
 * Must hold: each rule has its error message, which a rejected body gets
 * (test/unit/doors/request-schemas.test.ts). The rules of Messages and of count_tokens look at no member that
 * MESSAGES_REQUEST of messages-door.ts does not name, and ask a text for no more than to be one, not to be
 * empty, or to be a word below SHORT_BYTES_MAX: known-values.ts reads no more
 * (test/unit/doors/messages/messages-door.test.ts).
 */
import * as Type from 'typebox';
import type { DoorName } from '../core/door-names.js';
import { MESSAGES_MAX } from '../core/limits.js';
import {
  ChatRequestSchema,
  Choices,
  Model,
  optional,
  OutputTokens,
  StreamOptions,
  TEMPERATURE,
  TOP_P,
} from '../protocol/chat-schema.js';
import { CHOICES_MAX } from '../protocol/request-rules.js';

const MODEL = { model: Model };
const ITEMS = { minItems: 1, maxItems: MESSAGES_MAX };
const integerFrom = (minimum: number) => Type.Integer({ minimum, description: `an integer from ${minimum}` });
/** A number within bounds, with one error message for a wrong type and a wrong number. */
const within = ({ minimum, maximum }: typeof TOP_P) =>
  Type.Number({ minimum, maximum, description: `a number between ${minimum} and ${maximum}` });

const TypedItem = Type.Object({ type: Type.String() });
const TextOrBlocks = Type.Union([Type.String(), Type.Array(TypedItem)], {
  description: 'a string or an array of blocks',
});

/** What a Messages request and a request to count its tokens have in common. */
const MESSAGES_MEMBERS = {
  ...MODEL,
  messages: Type.Array(
    Type.Object({
      // Newer models of Claude accept `system` within a conversation.
      role: Type.Enum(['user', 'assistant', 'system']),
      content: TextOrBlocks,
    }),
    { ...ITEMS, description: 'an array of messages' },
  ),
  system: optional(TextOrBlocks),
  tools: optional(Type.Array(Type.Object({}), { description: 'an array of tools' })),
  tool_choice: optional(Type.Object({ type: Type.Enum(['auto', 'any', 'tool', 'none']) })),
  thinking: optional(TypedItem),
};

const MessagesRequestSchema = Type.Object({
  ...MESSAGES_MEMBERS,
  // Anthropic requires it. 0 is valid: it fills the prompt cache and generates nothing.
  max_tokens: OutputTokens,
  temperature: optional(within({ minimum: 0, maximum: 1 })),
  top_p: optional(within({ minimum: 0, maximum: 1 })),
  top_k: optional(integerFrom(0)),
  stop_sequences: optional(Type.Array(Type.String(), { description: 'an array of strings' })),
  stream: optional(Type.Boolean()),
  metadata: optional(Type.Object({})),
});

/** Body of count_tokens. A stream makes no sense there, so `stream: true` is rejected. */
const CountRequestSchema = Type.Object({
  ...MESSAGES_MEMBERS,
  stream: optional(Type.Literal(false)),
});

const ResponsesRequestSchema = Type.Object({
  ...MODEL,
  // Optional, because a stored prompt may take its place, if the model's `pass_members` allows that. Items
  // count as messages.
  input: optional(
    Type.Union([Type.String(), Type.Array(Type.Object({}), ITEMS)], {
      description: 'a string or an array of items',
    }),
  ),
  instructions: optional(Type.String()),
  max_output_tokens: optional(integerFrom(0)),
  temperature: optional(within(TEMPERATURE)),
  top_p: optional(within(TOP_P)),
  stream: optional(Type.Boolean()),
  stream_options: optional(Type.Object({})),
  store: optional(Type.Boolean()),
  // The response of a background call would come by a later request, which could not be billed.
  background: optional(Type.Literal(false, { description: 'false or left out' })),
  parallel_tool_calls: optional(Type.Boolean()),
  tools: optional(Type.Array(TypedItem, { description: 'an array of tools' })),
  text: optional(Type.Object({})),
  reasoning: optional(Type.Object({})),
});

/** For doors that have no streams. */
const NO_STREAM = {
  stream: optional(Type.Literal(false, { description: 'false: there is nothing to stream' })),
};
/** Most texts of a request for embeddings or moderations: OpenAI's bound. */
const INPUTS_MAX = 2_048;
/** Most documents of a rerank: Cohere's bound. */
const DOCUMENTS_MAX = 10_000;
/** The first item of an input decides which kind all must have. */
const OF_ONE_KIND = {
  description: 'of one kind with the first: a string, a token, or an array of tokens',
};
/** One text, as the numbers of its tokens; the bound of bodies bounds how many. */
const Tokens = Type.Array(Type.Integer({ minimum: 0, ...OF_ONE_KIND }), { minItems: 1, ...OF_ONE_KIND });
/** One text or up to `maxItems`, each as a string or as tokens. */
const inputs = (maxItems: number) =>
  Type.Union(
    [
      Type.String(),
      Type.Array(Type.String(OF_ONE_KIND), { minItems: 1, maxItems }),
      Tokens,
      Type.Array(Tokens, { minItems: 1, maxItems }),
    ],
    { description: 'a string, an array of strings, or tokens' },
  );

const EmbeddingsRequestSchema = Type.Object({
  ...MODEL,
  input: inputs(INPUTS_MAX),
  encoding_format: optional(Type.Enum(['float', 'base64'])),
  dimensions: optional(integerFrom(1)),
  ...NO_STREAM,
});

const CompletionsRequestSchema = Type.Object({
  ...MODEL,
  // Each prompt gives at least one choice, and a call has at most CHOICES_MAX; `choicesOf` in simple-doors.ts
  // multiplies the prompts by `n`. Without a prompt the model begins a new text.
  prompt: optional(inputs(CHOICES_MAX)),
  max_tokens: optional(integerFrom(0)),
  n: optional(Choices),
  stream: optional(Type.Boolean()),
  stream_options: optional(StreamOptions),
});

const ModerationsRequestSchema = Type.Object({
  ...MODEL,
  input: Type.Union(
    [
      Type.String(),
      Type.Array(Type.String({ description: 'a string as the first is' }), {
        minItems: 1,
        maxItems: INPUTS_MAX,
      }),
      Type.Array(Type.Object({ type: Type.String() }, { description: 'a part with a type' }), {
        minItems: 1,
        maxItems: INPUTS_MAX,
      }),
    ],
    { description: 'a string, an array of strings, or of parts' },
  ),
  ...NO_STREAM,
});

const RerankRequestSchema = Type.Object({
  ...MODEL,
  query: Type.String(),
  documents: Type.Array(
    Type.Union([Type.String(), Type.Object({})], { description: 'a string or an object' }),
    { minItems: 1, maxItems: DOCUMENTS_MAX, description: 'an array of strings or objects' },
  ),
  top_n: optional(integerFrom(1)),
  return_documents: optional(Type.Boolean()),
  ...NO_STREAM,
});

export const REQUEST_SCHEMAS = {
  chat: ChatRequestSchema,
  messages: MessagesRequestSchema,
  responses: ResponsesRequestSchema,
  embeddings: EmbeddingsRequestSchema,
  completions: CompletionsRequestSchema,
  moderations: ModerationsRequestSchema,
  rerank: RerankRequestSchema,
  count_tokens: CountRequestSchema,
} satisfies Readonly<Record<DoorName, Type.TSchema>>;
