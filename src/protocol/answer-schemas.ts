/**
 * Schemas of what the public interface answers, for its document and for tests. Loaded at build time alone. Providers may
 * add members of their own, which are handed on, so objects are open.
 */
import Type from 'typebox';

const Usage = Type.Object({
  prompt_tokens: Type.Integer({ minimum: 0 }),
  completion_tokens: Type.Integer({ minimum: 0 }),
  total_tokens: Type.Integer({ minimum: 0 }),
});

const FinishReason = Type.Union([Type.String(), Type.Null()]);

export const ChatCompletionSchema = Type.Object({
  id: Type.String(),
  object: Type.Literal('chat.completion'),
  created: Type.Integer(),
  model: Type.String(),
  choices: Type.Array(
    Type.Object({
      index: Type.Integer({ minimum: 0 }),
      message: Type.Object({
        role: Type.String(),
        content: Type.Optional(Type.Union([Type.String(), Type.Null()])),
      }),
      finish_reason: FinishReason,
    }),
  ),
  usage: Usage,
});

/** One event of a stream; the last is `data: [DONE]`. */
export const ChatChunkSchema = Type.Object({
  id: Type.String(),
  object: Type.Literal('chat.completion.chunk'),
  created: Type.Integer(),
  model: Type.String(),
  choices: Type.Array(
    Type.Object({
      index: Type.Integer({ minimum: 0 }),
      delta: Type.Object({
        role: Type.Optional(Type.String()),
        content: Type.Optional(Type.Union([Type.String(), Type.Null()])),
      }),
      finish_reason: Type.Optional(FinishReason),
    }),
  ),
  usage: Type.Optional(Type.Union([Usage, Type.Null()])),
});

export const ModelSchema = Type.Object({
  id: Type.String(),
  object: Type.Literal('model'),
  created: Type.Integer(),
  owned_by: Type.String(),
});

export const ModelListSchema = Type.Object({
  object: Type.Literal('list'),
  data: Type.Array(ModelSchema),
});
