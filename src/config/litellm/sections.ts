/** Why the other sections of LiteLLM's file are not carried over. Main thread of a command. */
import type { ImportMap } from './remarks.js';

type Reasons = Readonly<Record<string, string>>;

const FAILOVER =
  'a call fails over among the upstreams of its own model: add the other model there with a higher priority number';
const SHARING =
  'the threads and processes of one host share limits without another service; several hosts share them by the setting sharing: { url }';

const ROUTER_REASONS: Reasons = {
  routing_strategy:
    'the upstream with the fewest calls in flight for its weight is chosen, in the best priority',
  routing_strategy_args: 'the choice of an upstream has no further settings',
  num_retries: 'a call is tried at each upstream of its model until the first byte',
  retry_policy: 'a call is tried at each upstream of its model until the first byte',
  allowed_fails: 'see breaker_failures of an upstream',
  cooldown_time: 'an upstream that fails is left alone for 2 to 60 seconds',
  fallbacks: FAILOVER,
  context_window_fallbacks: FAILOVER,
  default_fallbacks: FAILOVER,
  redis_host: SHARING,
  redis_port: SHARING,
  redis_password: SHARING,
  redis_url: SHARING,
};

const LITELLM_REASONS: Reasons = {
  num_retries: ROUTER_REASONS.num_retries!,
  fallbacks: FAILOVER,
  context_window_fallbacks: FAILOVER,
  default_fallbacks: FAILOVER,
  drop_params: 'fields that the specification does not name go to the provider as they are',
  success_callback: 'every call can be written to a file: see usage_log',
  failure_callback: 'every call can be written to a file: see usage_log',
  callbacks: 'every call can be written to a file: see usage_log',
  cache: 'answers are not cached',
  cache_params: 'answers are not cached',
  max_budget: 'money is the balance of an account',
};

const GENERAL_REASONS: Reasons = {
  master_key:
    'a secret; the admin token is made by the first start (admin-token in the data folder), or set TOLLGATE_ADMIN_TOKEN',
  database_url: 'a secret; accounts, keys and money are in the data folder',
  store_model_in_db: 'models are in the file',
  alerting: 'no alerts are sent',
};

const FILE_REASONS: Reasons = {
  environment_variables: 'set them where Tollgate is started; what the models need is named at the end',
  include: 'other files are not read: import each',
  guardrails: 'requests are not changed or judged',
};

/** One remark for each setting of them that nobody has asked for. */
export function remarkSections(sections: { file: ImportMap; router: ImportMap; litellm: ImportMap }): void {
  const { file, router, litellm } = sections;
  remarkRest(router, ROUTER_REASONS);
  remarkRest(litellm, LITELLM_REASONS);
  remarkRest(file.map('general_settings'), GENERAL_REASONS);
  remarkRest(file, FILE_REASONS);
}

function remarkRest(section: ImportMap, reasons: Reasons): void {
  for (const name of section.rest) section.remark(name, reasons[name] ?? 'has no counterpart');
}
