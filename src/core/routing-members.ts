/**
 * The routing members of requests. By one of them an upstream may serve another call than the admitted one,
 * bill it beyond its tokens, serve it before others, or hand out what it has stored under its key, which all
 * callers share. A request with one is rejected, unless the model's `pass_members` names it. Other unknown
 * members pass. protocol/ and the schema of the settings use the lists. Any thread.
 *
 * Not listed: what shortens a prompt, which makes no call dearer (OpenRouter's `transforms`), and what
 * LiteLLM rejects by itself (`aws_bedrock_runtime_endpoint` and the like). A new steering member need only be
 * listed, with its source; a nested one also needs a place in protocol/known-members.ts.
 *
 * Must hold: a member is taken out of these lists only if no upstream obeys it; otherwise callers get what
 * nobody pays for (test/unit/protocol/known-members.steering.test.ts,
 * test/unit/protocol/known-members.stored.test.ts).
 */

/**
 * Members of the request itself that choose the model, provider or address, make the call dearer than its
 * tokens, or put it before others. Every door rejects them.
 */
export const STEERING_MEMBERS = [
  // OpenRouter: https://openrouter.ai/docs/api-reference/overview. `models` and `route` are its fallbacks,
  // `plugins` has its auto router, a `preset` names models:
  // https://openrouter.ai/docs/guides/features/presets.
  'models',
  'route',
  'provider',
  'plugins',
  'preset',
  // LiteLLM: https://docs.litellm.ai/docs/proxy/client_side_fallbacks and …/docs/proxy/clientside_auth.
  'fallbacks',
  'context_window_fallbacks',
  'content_policy_fallbacks',
  'model_list',
  'user_config',
  'custom_llm_provider',
  // LiteLLM's proxy, until 1.85, takes the model for failed and asks its fallbacks, which may be dearer:
  // https://docs.litellm.ai/docs/proxy/reliability.
  'mock_testing_fallbacks',
  'mock_testing_context_fallbacks',
  'mock_testing_content_policy_fallbacks',
  // A stored prompt may name another model: https://docs.litellm.ai/docs/proxy/prompt_management.
  'prompt_id',
  'api_base',
  'base_url',
  'api_key',
  // Vercel's gateway reads `gateway.models` and `gateway.order` in it:
  // https://vercel.com/docs/ai-gateway/sdks-and-apis/openai-chat-completions/advanced.
  'providerOptions',
  // Groq's compound systems take their models and paid tools from it: https://console.groq.com/docs/compound.
  'compound_custom',
  // Together: a second model that reads the text: https://docs.together.ai/reference/chat-completions-1.
  'safety_model',
  // An adapter makes another model. SGLang: python/sglang/srt/entrypoints/openai/protocol.py; llama.cpp:
  // tools/server/README.md.
  'lora_path',
  'lora',
  // Hosts that the server is to connect to. SGLang, the same file; vLLM:
  // vllm/entrypoints/openai/chat_completion/protocol.py.
  'bootstrap_host',
  'bootstrap_port',
  'kv_transfer_params',
  'ec_transfer_params',
  // A template of the caller makes a prompt of any length of few bytes, which the hold does not cover. Also
  // within `chat_template_kwargs`. vLLM, unless it is new and started without --trust-request-chat-template
  // (vllm/entrypoints/openai/engine/serving.py, `_validate_chat_template`).
  'chat_template',
  // Whose calls go first: one caller would keep the others waiting. `priority`: vLLM and SGLang (their
  // protocols, as above), LiteLLM (https://docs.litellm.ai/docs/scheduler). `nvext` has the hints of
  // NVIDIA Dynamo (https://docs.nvidia.com/dynamo, "Prioritize Requests").
  'priority',
  'nvext',
  // Searches are billed apart from tokens. In this order: OpenAI and Perplexity; xAI's Live Search; Qwen at
  // Alibaba (https://www.alibabacloud.com/help/en/model-studio/web-search), and code that it runs.
  'web_search_options',
  'search_parameters',
  'enable_search',
  'enable_code_interpreter',
  // Baidu: https://cloud.baidu.com/doc/qianfan-docs/s/Wm8r4sw29.
  'web_search',
  // xAI generates later, and bills, a response that no caller fetches: https://docs.x.ai, "Deferred Chat
  // Completions".
  'deferred',
  // Anthropic: containers, servers of tools, a faster model or a region have prices of their own.
  // `hosted_tools` is no member but a label, for tools that the provider runs, at any door: Groq's
  // `browser_search`, OpenRouter's `openrouter:web_search`, Moonshot's `builtin_function`.
  'container',
  'mcp_servers',
  'speed',
  'inference_geo',
  'hosted_tools',
  // Bedrock: a model with less latency has a price of its own, and a guardrail is billed by the text: Amazon
  // Bedrock User Guide, "Optimize model inference for latency", and "Amazon Bedrock pricing".
  'performanceConfig',
  'guardrailConfig',
  // A tier has a price of its own; USUAL_SERVICE_TIERS pass.
  'service_tier',
  // LiteLLM merges `extra_body` into the body that it sends on, over the members that were admitted. The
  // gateway lets only `google` in it pass. LiteLLM sends `extra_headers` to its provider.
  'extra_body',
  'extra_headers',
  // What the provider has stored, or reads with its own rights: a prompt cache of Gemini, as LiteLLM takes
  // it; indices that Azure ("On Your Data") or LiteLLM searches; a session of SGLang
  // (python/sglang/srt/entrypoints/openai/protocol.py, `ChatCompletionRequest`).
  'cached_content',
  'data_sources',
  'vector_store_ids',
  'session_params',
] as const;

/**
 * Labels for members within messages and parts, which name a stored file, an address that the provider reads
 * with its own rights, or the audio that OpenAI has stored of a message (`audio_id`: the `id` in `audio`).
 * protocol/known-members.ts says where each may stand.
 */
const NESTED_MEMBERS = ['file_id', 'storage_url', 'audio_id'] as const;

/**
 * Members that the Responses door alone rejects, and `thread` the Messages door: the provider has stored what
 * they name. It bills the stored prompts, which the hold does not cover, and gives one caller what another
 * has said, because all share one key. In chat completions some of these names mean something else. `thread`:
 * MessageCreateParams of @anthropic-ai/sdk 1.12, among the betas.
 */
const STORED_MEMBERS = [
  'previous_response_id',
  'conversation',
  'prompt',
  'item_reference',
  'thread',
] as const;

/**
 * A member that has the provider edit the conversation. The Messages door rejects an edit that does more than
 * clear, the Responses door any edit: the provider may summarise by a further generation, which Anthropic
 * bills besides the usage of the response, in `usage.iterations` (platform.claude.com, "Compaction",
 * 2026-11). Anthropic's member `compaction` and the item `compaction_trigger` of Responses count as this
 * member.
 */
const EDITING_MEMBERS = ['context_management'] as const;

/** All that `pass_members` can name. */
export const ROUTING_MEMBERS = [
  ...STEERING_MEMBERS,
  ...NESTED_MEMBERS,
  ...STORED_MEMBERS,
  ...EDITING_MEMBERS,
] as const;

export type RoutingMember = (typeof ROUTING_MEMBERS)[number];

/**
 * Values of `service_tier`, as JSON, that cost the usual price or less. OpenAI: auto, default, flex (dearer:
 * scale, priority). Groq: auto, on_demand, flex (dearer: performance). Anthropic: auto, standard_only. `auto`
 * means the best tier of the operator's contract: an operator who buys a dearer one must price it.
 */
export const USUAL_SERVICE_TIERS: readonly string[] = [
  '"auto"',
  '"default"',
  '"flex"',
  '"on_demand"',
  '"standard_only"',
];

/** Types of tools in a chat completion, as JSON, that the caller runs. All others are `hosted_tools`. */
export const CALLERS_TOOL_TYPES: readonly string[] = ['"function"', '"custom"'];
