/**
 * Translates a chat completion into the body of a request to Anthropic's Messages API. anthropic.ts calls
 * `writeMessages`, and so does vertex/vertex.ts for Claude models. No I/O; upstream worker, or counter thread
 * if the body is large.
 *
 * Follows platform.claude.com, pages "Messages", "Versions" (2023-06-01 and 2026-10-21), "Thinking", "Effort"
 * and "Prompt caching", 2026-11. models.ts says what differs by model.
 *
 * Must hold: a member of the caller's body that this file reads is taken from `fields`, even if the member is
 * not used (test/unit/providers/anthropic/request.test.ts). `fields.unsupported` returns if the upstream has
 * `drop_unsupported`; the code after it then leaves the member out.
 */
import { type Fields, takingAll } from '../fields.js';
import type { UnsignedCall } from '../provider.js';
import { contentOf, Conversation } from './conversation.js';
import { hasText } from './content.js';
import { traitsOf, type ModelTraits } from './models.js';
import { ADAPTIVE_THINKING, asksToThink, thinkingOf } from './thinking.js';
import { toolMembersOf, type ToolMembers } from './tools.js';

/** The first version of the API without temperature, top_p and top_k. */
const VERSION_WITHOUT_SAMPLING = '2026-10-21';

export const CLAUDE_SAMPLING_DEFAULT = 1;
/** The greatest temperature of Claude and of Converse; OpenAI's is 2. */
export const TEMPERATURE_MAX = 1;
const BESIDE_TEMPERATURE = 'cannot be set beside temperature for this model';

/** Anthropic rejects longer user ids. */
const USER_ID_CHARS_MAX = 256;
/** E-mail addresses and telephone numbers: Anthropic rejects them as `user_id`. Patterns as LiteLLM's. */
const PERSONAL = /^[\w.%+-]+@[\w.-]+\.[a-z]{2,}$|^\+?[\d\s()-]{7,}$/i;

/** Returns the body without `model`, which Vertex has in the path. Throws a FieldError. */
export function writeMessages(call: UnsignedCall): Record<string, unknown> {
  return takingAll(call.body, 'Claude', call.settings, (fields) => messagesOf(fields, call));
}

function messagesOf(
  fields: Fields,
  { settings, body, model, stream }: UnsignedCall,
): Record<string, unknown> {
  const isAnthropic = settings.name === 'anthropic';
  const traits = traitsOf(model, { onVertex: settings.name === 'vertex' });
  const conversation = new Conversation(
    fields.list('messages') ?? [],
    { fields, fetchesUrls: isAnthropic },
    isAnthropic && traits.allowsSystemTurns,
  );
  const maxTokens = fields.outputTokensMax() ?? settings.outputTokensMax;
  const toolMembers = toolMembersOf(fields, traits, body);
  const { continuesWithoutThinking } = conversation;
  const thinkingRules = { maxTokens, continuesWithoutThinking, adaptive: ADAPTIVE_THINKING };
  const thinking = thinkingOf(fields, traits, thinkingRules);
  const request: Record<string, unknown> = { max_tokens: maxTokens, messages: conversation.messages };
  if (conversation.system.length > 0) request.system = contentOf(conversation.system);
  if (stream) request.stream = true;
  const willThink = asksToThink(thinking.thinking);
  addTools(request, toolMembers, fields, traits, willThink);
  if (thinking.thinking !== undefined) request.thinking = thinking.thinking;
  const { format } = toolMembers;
  if (thinking.effort !== undefined || format !== undefined)
    request.output_config = {
      ...(thinking.effort !== undefined && { effort: thinking.effort }),
      ...(format && { format }),
    };
  const allowsSampling =
    traits.allowsSampling && !(isAnthropic && settings.apiVersion >= VERSION_WITHOUT_SAMPLING);
  const { hasOneSampler } = traits;
  const rules = { allowsSampling, hasOneSampler, willThink, where: 'with Claude', isClaude: true };
  const sampling = samplingValuesOf(fields, rules);
  if (sampling.temperature !== undefined) request.temperature = sampling.temperature;
  if (sampling.topP !== undefined) request.top_p = sampling.topP;
  if (sampling.topK !== undefined) request.top_k = sampling.topK;
  addStop(request, fields);
  const cacheControl = fields.record('cache_control');
  if (cacheControl !== undefined) request.cache_control = cacheControl;
  const user = fields.take('safety_identifier') ?? fields.take('user');
  if (typeof user === 'string' && user !== '' && user.length <= USER_ID_CHARS_MAX && !PERSONAL.test(user))
    request.metadata = { user_id: user };
  fields.rejectChoices();
  return request;
}

/** Adds `tools` and `tool_choice`. `willThink`: the request makes the model think. */
function addTools(
  request: Record<string, unknown>,
  { tools, choice, isFormatByTool }: ToolMembers,
  fields: Fields,
  traits: ModelTraits,
  willThink: boolean,
): void {
  if (tools.length === 0) return;
  request.tools = tools;
  if (choice === undefined) return;
  // Page "Thinking": while a model thinks with a budget, only the choices auto and none are allowed. If
  // `unsupported` returns, the request goes without a choice, which means `auto`.
  if (willThink && traits.thinking !== 'adaptive' && choice.type !== 'auto' && choice.type !== 'none') {
    fields.unsupported(
      isFormatByTool ? 'response_format' : 'tool_choice',
      'cannot force a call while this model thinks',
    );
    return;
  }
  request.tool_choice = choice;
}

/** The values that are sent; a default value of Claude is not, because some models reject even that. */
interface Sampling {
  readonly temperature: number | undefined;
  readonly topP: number | undefined;
  readonly topK: number | undefined;
}

/** bedrock/request.ts has models too that are not Claude. `willThink`: the request makes the model think. */
interface SamplingRules {
  readonly allowsSampling: boolean;
  readonly hasOneSampler: boolean;
  readonly willThink: boolean;
  /** Ends the sentence for a temperature that is too high. */
  readonly where: string;
  readonly isClaude: boolean;
}

/** Takes temperature, top_p and top_k. Throws a FieldError. */
export function samplingValuesOf(
  fields: Fields,
  { allowsSampling, hasOneSampler, willThink, where, isClaude }: SamplingRules,
): Sampling {
  const reason = allowsSampling ? 'cannot be set while this model thinks' : 'cannot be set for this model';
  const isWorthSending = (value: number | undefined): value is number =>
    value !== undefined && !(isClaude && value === CLAUDE_SAMPLING_DEFAULT);
  let temperature = fields.number('temperature');
  if (!isWorthSending(temperature)) temperature = undefined;
  else if (!allowsSampling || willThink) {
    fields.unsupported('temperature', reason);
    temperature = undefined;
  } else if (temperature > TEMPERATURE_MAX) {
    fields.unsupported('temperature', `must be at most ${TEMPERATURE_MAX} ${where}`);
    temperature = TEMPERATURE_MAX;
  }
  let topP = fields.number('top_p');
  // While Claude thinks, top_p must be at least 0.95: the provider rejects others with its own message.
  if (!isWorthSending(topP)) topP = undefined;
  else if (!allowsSampling || (hasOneSampler && temperature !== undefined)) {
    fields.unsupported('top_p', allowsSampling ? BESIDE_TEMPERATURE : reason);
    topP = undefined;
  }
  let topK = fields.integer('top_k');
  if (topK !== undefined && (!allowsSampling || willThink)) {
    fields.unsupported('top_k', reason);
    topK = undefined;
  }
  return { temperature, topP, topK };
}

/** Adds `stop_sequences`. Claude rejects blank ones. */
function addStop(request: Record<string, unknown>, fields: Fields): void {
  const sent: string[] = [];
  for (const { text, path } of fields.stopSequences()) {
    if (hasText(text)) sent.push(text);
    else if (text !== '') fields.unsupported(path, 'cannot be white space alone: Claude refuses that');
  }
  if (sent.length > 0) request.stop_sequences = sent;
}
