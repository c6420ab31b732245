/**
 * Collects what an import from LiteLLM cannot carry over. ImportMap reads a map of the file and remembers
 * which of its names were read; each name that was not read becomes a remark. All files of this folder use
 * ImportMap, in the process of `tollgate config import-litellm`. Pure.
 *
 * Must hold:
 * - No name of the file is lost without a remark. So who reads a name and cannot use its value adds the
 *   remark: reading alone keeps the name from getting one. The test tries each name that an import reads.
 * - No remark has a value that may be secret (test/unit/config/litellm/import.test.ts).
 * - When Tollgate gains a feature that LiteLLM has, change its reason below (no test).
 */
import { isGiven, isRecord, type Members, membersOf } from '../../core/json.js';
import { formatPath, type SettingPath } from '../config-error.js';
import type { YamlSource } from '../yaml-source.js';

export interface Remark {
  /** Line of the file, from 1. */
  readonly line: number;
  /** The path as text, such as `model_list[0].litellm_params.rpm`. */
  readonly path: string;
  /** Contains no value that may be secret. */
  readonly text: string;
}

export class Remarks {
  readonly #source: YamlSource;
  /** By path and text, so that a remark is added once, also if a map is read more than once. */
  readonly #remarks = new Map<string, Remark>();

  constructor(source: YamlSource) {
    this.#source = source;
    for (const { line, key } of source.repeatedKeys)
      this.#remarks.set(`${line}: ${key}`, {
        line,
        path: key,
        text: 'is in its map already: the last value was read, as LiteLLM does',
      });
  }

  /** `text` must not have a value that may be secret. */
  add(path: SettingPath, text: string): void {
    const remark = { line: this.#source.lineOf(path), path: formatPath(path), text };
    this.#remarks.set(`${remark.path}: ${text}`, remark);
  }

  /** The remarks in the order of their lines. */
  get list(): readonly Remark[] {
    return [...this.#remarks.values()].sort((remark, other) => remark.line - other.line);
  }

  /** A scalar as the file writes it; undefined if it comes from a block that the key `<<` merges. */
  sourceTextAt(path: SettingPath): string | undefined {
    return this.#source.sourceTextAt(path);
  }
}

/** One map of the file, and which names were read. A second ImportMap of it begins with no name read. */
export class ImportMap {
  readonly path: SettingPath;
  readonly remarks: Remarks;
  readonly #values: Members;
  readonly #read = new Set<string>();

  /** Anything but a map is read as an empty map, with a remark. */
  constructor(value: unknown, path: SettingPath, remarks: Remarks) {
    this.path = path;
    this.remarks = remarks;
    if (!isRecord(value) && isGiven(value)) remarks.add(path, 'is no map of settings');
    this.#values = membersOf(value);
  }

  /** Reads any value; undefined if the file has none, or null. Marks the name as read, as all below do. */
  take(name: string): unknown {
    this.#read.add(name);
    return this.peek(name);
  }

  /** As `take`, but does not mark the name as read. */
  peek(name: string): unknown {
    return Object.hasOwn(this.#values, name) ? (this.#values[name] ?? undefined) : undefined;
  }

  /** Reads a map; an empty one if there is none. In the returned map no name counts as read yet. */
  map(name: string): ImportMap {
    return new ImportMap(this.take(name), [...this.path, name], this.remarks);
  }

  /** Reads a text; a number or boolean as its text. Undefined if it is empty or, with a remark, no text. */
  text(name: string): string | undefined {
    const value = this.take(name);
    if (value === undefined || value === '') return undefined;
    if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
      return String(value);
    this.remark(name, 'is no text');
    return undefined;
  }

  /** Reads a finite number, or a text of one. Undefined, with a remark, if the value is neither. */
  number(name: string): number | undefined {
    const value = this.take(name);
    if (value === undefined) return undefined;
    const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
    if (typeof number === 'number' && Number.isFinite(number)) return number;
    this.remark(name, 'is no number');
    return undefined;
  }

  /**
   * Reads true or false, also as the words of YAML 1.1, by which LiteLLM reads its file. Undefined, with a
   * remark, for any other value.
   */
  flag(name: string): boolean | undefined {
    const value = this.take(name);
    if (value === undefined || typeof value === 'boolean') return value;
    if (typeof value === 'string' && /^(?:yes|on|true)$/i.test(value)) return true;
    if (typeof value === 'string' && /^(?:no|off|false)$/i.test(value)) return false;
    this.remark(name, 'is neither true nor false');
    return undefined;
  }

  /** Reads a number as the file writes it, so that no digit is lost to binary fractions. */
  costText(name: string): string | undefined {
    const value = this.text(name);
    return value === undefined ? undefined : (this.remarks.sourceTextAt([...this.path, name]) ?? value);
  }

  /** Adds a remark on the value of that name. */
  remark(name: string, text: string): void {
    this.remarks.add([...this.path, name], text);
  }

  /** The names that were not read and have a value, in the order of the file. */
  get unread(): string[] {
    return Object.keys(this.#values).filter((name) => !this.#read.has(name) && hasValue(this.#values[name]));
  }
}

/** Null, an empty text and an empty list say nothing. */
function hasValue(value: unknown): boolean {
  return value !== null && value !== '' && !(Array.isArray(value) && value.length === 0);
}

/** By LiteLLM's name of a setting: which setting replaces it, or why none does. Operators read the text. */
export type Reasons = Readonly<Record<string, string>>;

/** Returns undefined if there is no reason, also for a name such as `constructor`, which every object has. */
export function reasonOf(reasons: Reasons, name: string): string | undefined {
  return Object.hasOwn(reasons, name) ? reasons[name] : undefined;
}

const AWS_CREDENTIALS =
  'credentials come from where the AWS SDK finds them: its variables, files, or the role of the machine';

const ENTRA = 'without a key, Tollgate gets tokens itself: see docs/credentials.md';

/** Why a `drop_params` of an entry or of the file is not carried over to some upstreams. */
export const DROP_PARAMS_REASON =
  "drop_unsupported serves providers with a protocol of their own alone: upstreams with OpenAI's, and Azure, lack it";

/** Why some parameters of an entry, or of a credential, are not carried over. */
export const PARAMETER_REASONS: Reasons = {
  max_parallel_requests: 'no bound for one upstream; limits.calls_in_flight bounds all calls',
  stream_timeout: 'first_byte_timeout_ms and idle_timeout_ms hold for whole answers and streams alike',
  ssl_verify: 'certificates are always checked: set NODE_EXTRA_CA_CERTS for an authority of your own',
  max_retries: 'a call is tried at each upstream of its model until the first byte',
  azure_ad_token: ENTRA,
  tenant_id: ENTRA,
  client_id: ENTRA,
  client_secret: ENTRA,
  azure_username: ENTRA,
  azure_password: ENTRA,
  api_version: 'only Azure has one',
  aws_access_key_id: AWS_CREDENTIALS,
  aws_secret_access_key: AWS_CREDENTIALS,
  aws_session_token: AWS_CREDENTIALS,
};

/** Adds a remark for each value of a credential that no entry has read. */
export function remarkCredential(values: ImportMap): void {
  remarkUnread(values, PARAMETER_REASONS, 'no entry that was carried over reads it');
}

const FALLBACKS_FOR_ALL = 'name them in fallbacks of each model';
const CACHE = 'responses are kept in memory and on disk: see cache.ttl_seconds, and cache of a model';
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
  default_fallbacks: FALLBACKS_FOR_ALL,
  redis_host: SHARING,
  redis_port: SHARING,
  redis_password: SHARING,
  redis_url: SHARING,
};

const LITELLM_REASONS: Reasons = {
  // Read only if the router has no timeout.
  request_timeout: 'timeout of router_settings counts in its place',
  num_retries: ROUTER_REASONS.num_retries!,
  default_fallbacks: FALLBACKS_FOR_ALL,
  success_callback: 'every call can be written to a file: see usage_log',
  failure_callback: 'every call can be written to a file: see usage_log',
  callbacks: 'every call can be written to a file: see usage_log',
  cache: CACHE,
  cache_params: CACHE,
  max_budget: 'money is the balance of an account',
};

const GENERAL_REASONS: Reasons = {
  master_key:
    'a secret; the admin token is made by the first start (admin-token in the data folder), or set TOLLGATE_ADMIN_TOKEN',
  database_url: 'a secret; accounts, keys and money are in the data folder',
  store_model_in_db: 'models are in the file',
  alerting: 'notices of quotas and balances go to a webhook: see notify',
};

const FILE_REASONS: Reasons = {
  environment_variables: 'set them where Tollgate is started; what the models need is named at the end',
  include: 'other files are not read: import each',
  guardrails: 'requests are not changed or judged',
};

/** Adds a remark for each setting outside of the lists that was not read. To be called last. */
export function remarkSections(sections: { file: ImportMap; router: ImportMap; litellm: ImportMap }): void {
  const { file, router, litellm } = sections;
  remarkUnread(router, ROUTER_REASONS);
  remarkUnread(litellm, LITELLM_REASONS);
  remarkUnread(file.map('general_settings'), GENERAL_REASONS);
  remarkUnread(file, FILE_REASONS);
}

/** `defaultReason`: for names that `reasons` lacks. */
function remarkUnread(section: ImportMap, reasons: Reasons, defaultReason = 'has no counterpart'): void {
  for (const name of section.unread) section.remark(name, reasonOf(reasons, name) ?? defaultReason);
}
