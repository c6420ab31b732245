/**
 * Members of a request, beyond those that the gateway reads, by which some upstreams would serve another call
 * than the one that was admitted and priced. All other unknown members pass untouched. Any thread, and the
 * settings.
 *
 * Not here: what costs a provider more without choosing (`service_tier`, `web_search_options`), what shortens
 * a prompt (OpenRouter's `transforms`), and what LiteLLM refuses by itself (`aws_bedrock_runtime_endpoint`
 * and its like).
 */
/** They choose the model, the provider or the address. A model's `pass_members` lets them through. */
export const ROUTING_MEMBERS = [
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
  'api_base',
  'base_url',
  'api_key',
  // Vercel's gateway, within it `gateway.models` and `gateway.order`:
  // https://vercel.com/docs/ai-gateway/sdks-and-apis/openai-chat-completions/advanced.
  'providerOptions',
  // An adapter is another model. SGLang: python/sglang/srt/entrypoints/openai/protocol.py; llama.cpp:
  // tools/server/README.md.
  'lora_path',
  'lora',
  // Hosts that the server connects to. SGLang, the same file; vLLM:
  // vllm/entrypoints/openai/chat_completion/protocol.py.
  'bootstrap_host',
  'bootstrap_port',
  'kv_transfer_params',
  'ec_transfer_params',
] as const;

export type RoutingMember = (typeof ROUTING_MEMBERS)[number];
