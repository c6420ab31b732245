/**
 * The known member names of a Messages request, as protocol/known-members.ts has those of a chat completion:
 * at each level at which a name in another case would change what a call costs or does. messages-door.ts uses
 * them. Pure; any thread.
 *
 * Must hold: members that make a call dearer than its tokens (`service_tier`, `container`) are not here but
 * in core/routing-members.ts, because names that are here are not checked for routing; and a member that
 * Anthropic adds is unknown here until it is added: it passes, in any case of letters
 * (test/unit/doors/messages/messages-door.test.ts).
 */
import { Level, plain } from '../../protocol/known-members.js';

const CACHE_CONTROL = new Level(plain('type', 'ttl'));
const SOURCE = new Level(plain('type', 'media_type', 'data', 'url', 'file_id'));
/** A block within a tool result. */
const INNER_BLOCK = new Level({
  ...plain('type', 'text', 'title', 'context'),
  source: SOURCE,
  cache_control: CACHE_CONTROL,
});
const BLOCK = new Level({
  ...plain('type', 'text', 'title', 'context', 'citations', 'id', 'name', 'input', 'tool_use_id', 'is_error'),
  ...plain('thinking', 'signature', 'data'),
  content: INNER_BLOCK,
  source: SOURCE,
  cache_control: CACHE_CONTROL,
});
const MESSAGE = new Level({ ...plain('role'), content: BLOCK });
const TOOL = new Level({
  ...plain('type', 'name', 'description', 'input_schema', 'strict'),
  cache_control: CACHE_CONTROL,
});

export const MESSAGES_REQUEST = new Level({
  ...plain('model', 'max_tokens', 'stream', 'stop_sequences', 'temperature', 'top_p', 'top_k'),
  messages: MESSAGE,
  system: BLOCK,
  tools: TOOL,
  tool_choice: new Level(plain('type', 'name', 'disable_parallel_tool_use')),
  thinking: new Level(plain('type', 'budget_tokens', 'display')),
  metadata: new Level(plain('user_id')),
  output_config: new Level(plain('effort', 'format')),
  cache_control: CACHE_CONTROL,
});
