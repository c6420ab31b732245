/**
 * The known member names of a request to POST /v1/responses, as protocol/known-members.ts has those of a chat
 * completion: a name that differs only in case is rejected, because decoders that fold case would read
 * another request than the one that was admitted. responses-door.ts uses them. Pure; listener thread and
 * counter pool.
 */
import { Level, plain } from '../../protocol/known-members.js';

const PART = new Level({
  ...plain('type', 'text', 'refusal', 'annotations', 'logprobs', 'prompt_cache_breakpoint'),
  ...plain('image_url', 'detail', 'file_id', 'file_data', 'file_url', 'filename', 'input_audio'),
});

const ITEM = new Level({
  ...plain('type', 'role', 'id', 'status', 'phase', 'call_id', 'name', 'arguments', 'input'),
  ...plain('encrypted_content'),
  content: PART,
  output: PART,
  summary: PART,
});

const TOOL = new Level({
  ...plain('type', 'name', 'description', 'parameters', 'strict', 'format', 'server_url', 'container'),
  ...plain('model', 'connector_id', 'authorization', 'headers', 'vector_store_ids', 'tools'),
});

/**
 * `service_tier` must not be here: names that are here are not checked for routing (core/routing-members.ts).
 */
export const RESPONSES_REQUEST = new Level({
  ...plain('model', 'instructions', 'max_output_tokens', 'temperature', 'top_p', 'top_logprobs'),
  ...plain('stream', 'stream_options', 'store', 'background', 'previous_response_id', 'conversation'),
  ...plain('prompt', 'parallel_tool_calls', 'max_tool_calls', 'truncation', 'include', 'metadata', 'user'),
  ...plain('safety_identifier', 'prompt_cache_key', 'prompt_cache_retention', 'prompt_cache_options'),
  ...plain('context_management', 'moderation'),
  input: ITEM,
  tools: TOOL,
  tool_choice: new Level(plain('type', 'name', 'mode', 'tools', 'server_label')),
  text: new Level({
    ...plain('verbosity'),
    format: new Level(plain('type', 'name', 'description', 'schema', 'strict')),
  }),
  reasoning: new Level(plain('effort', 'summary', 'generate_summary', 'context', 'mode')),
});
