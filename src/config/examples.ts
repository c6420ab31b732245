/**
 * Settings to begin with: the demo that `tollgate serve` runs without a file (load.ts), and the file that
 * `tollgate config example` prints (cli/config-command.ts).
 *
 * Must hold: both are valid settings, and the example repeats the defaults of the schema files
 * (test/unit/config/schema.test.ts, test/e2e/first-start.test.ts).
 */
import { CALLS_PER_DAY_MAX, REQUESTS_PER_MINUTE_MAX } from '../core/limits.js';

export const DEMO_MODEL = 'echo';
export const DEMO_PLAN = 'demo';

/** The settings without a configuration file. settings-reader.ts fills in the defaults. */
export const DEMO_SETTINGS = {
  models: [
    {
      id: DEMO_MODEL,
      owned_by: 'tollgate',
      // The price of a small hosted model, so that an operator sees a balance fall.
      price: { input: '0.15', output: '0.60' },
      tokenizer: 'o200k_base',
      upstreams: [{ url: 'echo:' }],
    },
  ],
  plans: [
    {
      id: DEMO_PLAN,
      // The largest limits, so that a first load test measures the gateway and not a limit.
      requests_per_minute: REQUESTS_PER_MINUTE_MAX,
      calls_per_day: CALLS_PER_DAY_MAX,
      models: ['*'],
    },
  ],
};

/**
 * Returns the example file. `schemaPath`, by which an editor finds the JSON Schema, is absolute or relative
 * to the file's folder.
 */
export function exampleYaml(schemaPath: string): string {
  return `# yaml-language-server: $schema=${schemaPath}\n\n${EXAMPLE}`;
}

const EXAMPLE = `# Settings of Tollgate. Check with: tollgate config check
# Every setting, its unit and its default: tollgate config schema
# "\${NAME}" stands for an environment variable, "$\${" for a plain "\${".

listen:
  host: 127.0.0.1           # 0.0.0.0 to be reached from elsewhere; TOLLGATE_HOST
  port: 8080                # TOLLGATE_PORT
  listeners: 1              # threads that accept calls
admin:
  host: 127.0.0.1           # TOLLGATE_ADMIN_HOST
  port: 8081                # TOLLGATE_ADMIN_PORT
  hosts: []                 # names that it is reached by, besides localhost and its address; TOLLGATE_ADMIN_HOSTS
  # oidc:                   # operators sign in to the console at a provider too: docs/sign-in.md
  #   issuer: https://login.example.com/realms/acme
  #   client_id: tollgate
  #   client_secret: "\${TOLLGATE_OIDC_SECRET}"   # or client_secret_file
  #   redirect_url: https://tollgate.example.com/admin/session/oidc/callback
  #   roles: { tollgate-admins: admin, tollgate-support: support }   # values of role_claim: groups
workers: 1                  # threads that call upstreams
data: ./data                # the books; relative to this file; TOLLGATE_DATA

models:
  - id: gpt-4o-mini
    aliases: [fast]         # other names that callers may use
    owned_by: openai
    # Per million tokens, in your currency. In quotes: a bare number could be rounded.
    price: { input: "0.15", output: "0.60", cached_input: "0.075" }
    max_output_tokens: 16384
    tokenizer: o200k_base   # counts tokens where the provider reports none
    upstreams:
      - url: https://api.openai.com/v1
        key: "\${OPENAI_API_KEY}"        # or key_file: a path; never the key itself
        model: gpt-4o-mini              # its name there, where it differs
        # A second upstream of priority 2 is used when those of priority 1 fail;
        # within one priority, calls are shared by weight.
        weight: 1
        priority: 1
        connect_timeout_ms: 5000
        first_byte_timeout_ms: 60000    # of a whole answer it comes last: reasoning models need more
        idle_timeout_ms: 60000
        total_timeout_ms: 600000
        connections_max: 10000          # from one worker
        breaker_failures: 10            # then it is left alone for 2 to 60 seconds; 0: never
        park_max_ms: 5000               # a Retry-After of the only upstream is kept to for so long; 0: never
        # ca_file: ./ca.pem             # a private certificate authority

plans:
  - id: free
    requests_per_minute: 60   # in any span of 60 seconds
    calls_per_day: 1000       # the day begins at 00:00 UTC+8
    models: ["*"]             # ids, or patterns with *
    # max_tokens: 4096        # a call that asks for more is refused, one that names none gets this
    # calls_in_flight: 10     # of one account
    # body_bytes: 1048576

limits:
  body_bytes: 10485760
  calls_in_flight: 20000

low_balance: refuse         # or clamp: lower max_tokens to what the balance affords
durability: interval        # or commit: an answer ends only when its charge is on disk
on_store_error: serve       # or refuse: no new calls while the disk takes no charges
flush_interval_ms: 1000     # the most of charges that a crash can lose
drain_timeout_ms: 30000     # how long calls in flight may go on at a stop
watch: false                # true: a change of this file takes effect by itself, as with "tollgate reload"

# notify:                   # tells that a quota of a day or month is nearly used up, or a balance low
#   url: https://hooks.example.com/tollgate
#   secret: "\${TOLLGATE_WEBHOOK_SECRET}"   # or secret_file; whsec_ and base64, as Standard Webhooks
#   at: [80, 100]           # percent
#   low_balance: "5.00"

# usage_log:                # every call as one line of JSON
#   path: usage.ndjson
#   rotate_bytes: 104857600
#   keep: 10
`;
