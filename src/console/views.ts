/**
 * What the admin interface answers, as far as the console reads it; /admin/v1/openapi.json has all of it. Browser.
 */
import type { CallGrowth, HistorySpan } from '../telemetry/history.js';
import type { StatusDocument } from '../telemetry/status-document.js';

export type {
  CallStats as CallFigures,
  HistogramView as Histogram,
  UpstreamStatus,
} from '../telemetry/status-document.js';

export interface List<Item> {
  readonly data: readonly Item[];
  readonly next: string | null;
}

/** Money is decimal text, moments are Unix seconds. */
export interface Account {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly active: boolean;
  /** Its keys are refused until it is on a plan of the settings. */
  readonly plan_missing?: true;
  readonly balance: string;
  readonly held: string;
  readonly spent: string;
  readonly credited: string;
  readonly uncovered: string;
  readonly calls_today: number;
  readonly requests_this_minute: number;
  readonly calls_in_flight: number;
  /** Where several processes share the account. */
  readonly leased?: { readonly calls_in_flight: number; readonly balance: string };
  readonly created: number;
}

export interface Key {
  readonly id: string;
  readonly account: string;
  readonly name: string;
  readonly prefix: string;
  readonly active: boolean;
  readonly created: number;
  readonly expires: number | null;
  readonly expired: boolean;
  readonly last_used: number | null;
  readonly requests_per_minute: number | null;
  readonly calls_per_day: number | null;
  readonly replaced_by: string | null;
}

export interface CreatedKey extends Key {
  readonly key: string;
}

export interface Credit {
  readonly amount: string;
  readonly note: string;
  readonly created: number;
}

export interface Plan {
  readonly id: string;
  readonly requests_per_minute: number;
  readonly calls_per_day: number;
  readonly models: readonly string[];
}

export interface Model {
  readonly id: string;
  readonly aliases: readonly string[];
  readonly owned_by: string;
  readonly price: { readonly input: string; readonly cached_input: string; readonly output: string };
  readonly max_output_tokens: number;
}

export interface UsageLine {
  readonly account?: string;
  readonly key?: string;
  readonly model?: string;
  readonly day?: string;
  readonly hour?: number;
  readonly calls: number;
  readonly failed_calls: number;
  readonly estimated_calls: number;
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly completion_tokens: number;
  readonly cost: string;
}

export interface Setting {
  readonly setting: string;
  readonly value: string;
  readonly origin: string;
  readonly live: boolean;
}

/** Null where there is none, or a whole entry comes or goes. */
export interface SettingChange {
  readonly setting: string;
  readonly before: string | null;
  readonly after: string | null;
}

export interface ReloadView {
  readonly dry_run: boolean;
  readonly applied: readonly string[];
  readonly restart_needed: readonly string[];
  /** Only of a dry run. */
  readonly changes?: readonly SettingChange[];
}

export type Status = StatusDocument;

/** What came in one span of the history; what was nothing is left out. */
export type Growth = Readonly<CallGrowth>;
export type Span = Readonly<HistorySpan>;

export interface AccountStats {
  readonly calls: number;
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly completion_tokens: number;
  readonly cost: string;
}

export interface BusyAccount extends AccountStats {
  readonly account: string;
  readonly name: string;
}

export interface CourseSpan extends AccountStats {
  readonly start: number;
}

export interface AccountHistory<Line> {
  readonly range: Range;
  /** Length of each span. */
  readonly seconds: number;
  readonly data: readonly Line[];
}

export const RANGES = ['5m', '1h', '6h', '24h'] as const;
export type Range = (typeof RANGES)[number];
export const RANGE_SECONDS: Readonly<Record<Range, number>> = {
  '5m': 300,
  '1h': 3_600,
  '6h': 21_600,
  '24h': 86_400,
};
