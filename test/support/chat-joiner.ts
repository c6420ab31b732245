/** A stream of a chat completion put together again, as a client does: the message of a whole response. */

export interface JoinedChat {
  readonly message: Record<string, unknown>;
  readonly finish: unknown;
  readonly usage: unknown;
  readonly id: unknown;
  readonly model: unknown;
}

interface ToolPiece {
  index: number;
  id?: string;
  type?: string;
  function?: { name?: string; arguments?: string };
  extra_content?: unknown;
  /** LiteLLM's name of the same. */
  provider_specific_fields?: unknown;
}
interface Delta {
  content?: string | null;
  reasoning_content?: string | null;
  thinking_blocks?: Record<string, unknown>[];
  tool_calls?: ToolPiece[];
  extra_content?: unknown;
  refusal?: string | null;
}
interface ChunkShape {
  id?: string;
  model?: string;
  usage?: unknown;
  error?: unknown;
  choices?: { index: number; delta: Delta; finish_reason?: string | null }[];
}

/**
 * A thinking block comes with its signature when it ends, and its text came as `reasoning` before it; or,
 * from LiteLLM, in pieces of which the last has the signature.
 */
function addThinking(
  blocks: Record<string, unknown>[],
  piece: Record<string, unknown>,
  reasoning: string,
): void {
  const last = blocks.at(-1);
  if (piece.type === 'thinking' && last?.type === 'thinking' && !last.signature) {
    last.thinking = (last.thinking as string) + (piece.thinking as string);
    if (piece.signature) last.signature = piece.signature;
  } else
    blocks.push(
      piece.type === 'thinking' && piece.thinking === '' ? { ...piece, thinking: reasoning } : { ...piece },
    );
}

/** `index`: of the choice. Throws if a chunk carries an error. */
export function joinedChat(chunks: readonly object[], index = 0): JoinedChat {
  let content: string | null = null;
  let reasoning: string | undefined;
  let unsigned = '';
  let extra: unknown;
  let finish: unknown = null;
  let usage: unknown;
  const thinking: Record<string, unknown>[] = [];
  const tools: Record<string, unknown>[] = [];
  for (const chunk of chunks as readonly ChunkShape[]) {
    if (chunk.error !== undefined) throw new Error(JSON.stringify(chunk.error));
    usage = chunk.usage ?? usage;
    for (const choice of chunk.choices ?? []) {
      if (choice.index !== index) continue;
      const { delta } = choice;
      finish = choice.finish_reason ?? finish;
      if (typeof delta.content === 'string') content = (content ?? '') + delta.content;
      if (typeof delta.reasoning_content === 'string') {
        reasoning = (reasoning ?? '') + delta.reasoning_content;
        unsigned += delta.reasoning_content;
      }
      extra = delta.extra_content ?? extra;
      for (const piece of delta.thinking_blocks ?? []) {
        addThinking(thinking, piece, unsigned);
        if (piece.type === 'thinking') unsigned = '';
      }
      for (const piece of delta.tool_calls ?? []) {
        const call = (tools[piece.index] ??= { type: 'function', function: { name: '', arguments: '' } });
        if (piece.id !== undefined) call.id = piece.id;
        if (piece.extra_content !== undefined) call.extra_content = piece.extra_content;
        if (piece.provider_specific_fields !== undefined)
          call.provider_specific_fields = piece.provider_specific_fields;
        const made = call.function as { name: string; arguments: string };
        made.name += piece.function?.name ?? '';
        made.arguments += piece.function?.arguments ?? '';
      }
    }
  }
  // Azure's first chunk is about the prompt alone.
  const first = (chunks as readonly ChunkShape[]).find(({ choices = [] }) => choices.length > 0);
  return {
    message: {
      role: 'assistant',
      content,
      ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
      ...(thinking.length === 0 ? {} : { thinking_blocks: thinking }),
      ...(tools.length === 0 ? {} : { tool_calls: tools }),
      ...(extra === undefined ? {} : { extra_content: extra }),
    },
    finish,
    usage,
    id: first?.id,
    model: first?.model,
  };
}
