/**
 * The names of the members of a request to the Messages API, at each level where two decoders that read them
 * differently would bill or serve another call. `service_tier`, `container` and others that make a call
 * dearer than its tokens are in core/routing-members.ts. Pure; any thread.
 */
import { Level, plain } from '../../protocol/known-members.js';

const CACHE_CONTROL = new Level(plain('type', 'ttl'));
const SOURCE = new Level(plain('type', 'media_type', 'data', 'url', 'file_id'));
/** Of a tool's result. */
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
