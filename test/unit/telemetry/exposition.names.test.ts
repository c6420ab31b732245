/**
 * The names that operators' dashboards, alerts and programs use. A new one is added here. One that is changed
 * or removed breaks them without a word: Prometheus answers no query about a name that is not there.
 */
import t from 'tap';
import { METRIC_FAMILIES } from '#src/telemetry/exposition.js';
import {
  BREAKER_STATES,
  DISBELIEF_REASONS,
  ENDS_WITHOUT_CLIENT,
  FAILURE_KINDS,
  OTHER_ROUTES,
} from '#src/telemetry/metrics-layout.js';
import { createExportBudget, ExportBudget } from '#src/telemetry/export-budget.js';
import { REGISTRY_STATES, SHARING_STATES } from '#src/telemetry/status-document.js';

/** Name, type and labels of each metric. `process` is the label of those that each process has. */
const FAMILIES = [
  'tollgate_requests_total counter route status code model',
  'tollgate_refusals_total counter reason',
  'tollgate_calls_in_flight gauge',
  'tollgate_calls_in_flight_limit gauge',
  'tollgate_bodies_in_work_bytes gauge',
  'tollgate_bodies_in_work_limit_bytes gauge',
  'gen_ai_server_request_duration_seconds histogram gen_ai_operation_name gen_ai_provider_name gen_ai_request_model',
  'gen_ai_server_time_to_first_token_seconds histogram gen_ai_operation_name gen_ai_provider_name gen_ai_request_model',
  'tollgate_overhead_seconds histogram stream',
  'gen_ai_client_token_usage histogram gen_ai_operation_name gen_ai_provider_name gen_ai_request_model gen_ai_token_type',
  'tollgate_cached_input_tokens_total counter model',
  'tollgate_cache_write_input_tokens_total counter model',
  'tollgate_reasoning_output_tokens_total counter model',
  'tollgate_fallbacks_total counter model role',
  'tollgate_cache_requests_total counter model result',
  'tollgate_cache_entries gauge',
  'tollgate_cache_bytes gauge',
  'tollgate_cache_evictions_total counter',
  'tollgate_cache_stored_bytes gauge',
  'tollgate_cost_total counter model',
  'tollgate_uncovered_total counter model',
  'tollgate_upstream_attempts_total counter model upstream',
  'tollgate_upstream_retries_total counter model upstream',
  'tollgate_upstream_failures_total counter model upstream kind',
  'tollgate_upstream_credentials_refused_total counter model upstream',
  'tollgate_usage_disbelieved_total counter model upstream reason',
  'tollgate_upstream_clients_left_total counter model upstream end',
  'tollgate_upstream_calls_in_flight gauge model upstream',
  'tollgate_upstream_breaker_workers gauge model upstream state',
  'tollgate_upstream_quota_used_ratio gauge model upstream quota',
  'tollgate_upstream_queue_calls gauge model',
  'tollgate_upstream_queue_waits_total counter model',
  'tollgate_upstream_queue_refused_total counter model',
  'tollgate_upstream_queue_wait_seconds_total counter model',
  'tollgate_upstream_credential_expiry_timestamp_seconds gauge credential process',
  'tollgate_upstream_credential_renewals_total counter credential result',
  'tollgate_ledger_flush_duration_seconds histogram',
  'tollgate_ledger_flush_errors_total counter',
  'tollgate_ledger_flush_lag_seconds gauge',
  'tollgate_ledger_unflushed_accounts gauge',
  'tollgate_journal_fill_ratio gauge listener process',
  'tollgate_spans_total counter state',
  'tollgate_log_records_total counter state',
  'tollgate_call_log_dropped_total counter part',
  'tollgate_webhooks_total counter state',
  'tollgate_webhook_failures_total counter',
  'tollgate_quota_used_ratio gauge group group_name quota',
  'tollgate_event_loop_delay_p99_seconds gauge thread process',
  'tollgate_event_loop_delay_max_seconds gauge thread process',
  'tollgate_heap_bytes gauge thread process',
  'process_cpu_seconds_total counter',
  'process_resident_memory_bytes gauge process',
  'process_start_time_seconds gauge process',
  'tollgate_build_info gauge version node',
  'tollgate_account_balance gauge account account_name',
  'tollgate_account_spent_total counter account account_name',
  'tollgate_account_calls_today gauge account account_name',
  'tollgate_sharing_processes gauge state',
  'tollgate_sharing_lost_seconds gauge',
  'tollgate_sharing_exchange_duration_seconds histogram',
  'tollgate_sharing_exchange_failures_total counter',
  'tollgate_sharing_leased_subjects gauge',
  'tollgate_sharing_waiting_requests gauge',
  'tollgate_sharing_registry_processes gauge state',
];

/** Values of labels that are lists in the code, beside error codes (docs/errors.md). */
const VALUES = {
  route: [...OTHER_ROUTES],
  kind: [...FAILURE_KINDS],
  reason: [...DISBELIEF_REASONS],
  end: [...ENDS_WITHOUT_CLIENT],
  breaker: [...BREAKER_STATES],
  sharing: [...SHARING_STATES],
  registry: [...REGISTRY_STATES],
  exports: Object.keys(new ExportBudget(createExportBudget()).counts()),
};

void t.test('metrics keep names, types and labels', (t) => {
  const families = METRIC_FAMILIES.map(({ name, type, labels, across }) =>
    [name, type, ...labels, ...(across === 'each' ? ['process'] : [])].join(' '),
  );
  t.same(families, FAMILIES);
  t.end();
});

void t.test('labels keep their values', (t) => {
  t.same(VALUES, {
    route: ['/v1/models', '/v1/models/{id}', 'other'],
    kind: [
      'connect',
      'connection_lost',
      'timeout',
      'rate_limited',
      'credentials',
      'status',
      'invalid_answer',
      'rejected',
      'no_connection_free',
      'no_room',
    ],
    reason: ['malformed', 'contradictory', 'too_much_output', 'beyond_max_tokens', 'too_much_input', 'zero'],
    end: ['aborted', 'finished', 'cut'],
    breaker: ['closed', 'half_open', 'open'],
    sharing: ['connected', 'alone', 'quarantine', 'lost'],
    registry: ['following', 'lost', 'diverged'],
    exports: ['exported', 'failed', 'dropped'],
  });
  t.end();
});
