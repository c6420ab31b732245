/**
 * How accounts, keys, models and plans look to an operator. Pure; main thread.
 *
 * Money is a decimal string, times are Unix seconds. A key's digest is never shown, the key itself in the answer to its
 * creation alone.
 */
import { decimalOf } from '../core/money.js';
import type { WallMs } from '../core/units.js';
import type { AccountStatement } from '../registry/account-statement.js';
import type { Catalog, ModelEntry, PlanEntry } from '../registry/catalog.js';
import type { KeyRecord } from '../registry/key-record.js';
import type { CreatedKey } from '../registry/registry.js';
import type { UsageGroup, UsageLine } from '../registry/usage-report.js';

export interface AccountView {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly active: boolean;
  /** What can be spent now: credited less held less spent. */
  readonly balance: string;
  readonly held: string;
  readonly spent: string;
  readonly credited: string;
  readonly uncovered: string;
  readonly calls_today: number;
  readonly requests_this_minute: number;
  readonly created: number;
}

export interface KeyView {
  readonly id: string;
  readonly account: string;
  readonly name: string;
  readonly prefix: string;
  readonly active: boolean;
  readonly created: number;
}

/** What a list answers: `next` is the cursor that continues it, null after its last page. */
export interface ListView<View> {
  readonly data: readonly View[];
  readonly next: string | null;
}

export function viewOfAccount(statement: AccountStatement): AccountView {
  const { record } = statement;
  return {
    id: record.id,
    name: record.name,
    plan: record.planId,
    active: record.active,
    balance: decimalOf(statement.available),
    held: decimalOf(statement.held),
    spent: decimalOf(statement.spent),
    credited: decimalOf(record.credited),
    uncovered: decimalOf(statement.uncovered),
    calls_today: statement.callsToday,
    requests_this_minute: statement.requestsThisMinute,
    created: secondsOf(record.createdMs),
  };
}

export function viewOfKey(record: KeyRecord): KeyView {
  return {
    id: record.id,
    account: record.accountId,
    name: record.name,
    prefix: `${record.prefix}…`,
    active: record.active,
    created: secondsOf(record.createdMs),
  };
}

export function viewOfCreatedKey(created: CreatedKey): KeyView & { readonly key: string } {
  return { ...viewOfKey(created.record), key: created.key };
}

const TOKENS_PER_PRICE = 1_000_000n;

/** Prices as the settings give them: per million tokens. */
export function viewOfModel(model: ModelEntry): object {
  const { inputPicoUnits, cachedInputPicoUnits, outputPicoUnits } = model.price;
  return {
    id: model.id,
    owned_by: model.ownedBy,
    created: model.createdSeconds,
    price: {
      input: decimalOf(inputPicoUnits * TOKENS_PER_PRICE),
      cached_input: decimalOf(cachedInputPicoUnits * TOKENS_PER_PRICE),
      output: decimalOf(outputPicoUnits * TOKENS_PER_PRICE),
    },
    max_output_tokens: model.outputTokensMax,
  };
}

export function viewOfPlan(plan: PlanEntry, catalog: Catalog): object {
  return {
    id: plan.id,
    requests_per_minute: plan.requestsPerMinute,
    calls_per_day: plan.callsPerDay,
    models: plan.modelIndices.map((index) => catalog.models[index]!.id),
  };
}

export function viewOfUsage(line: UsageLine, by: UsageGroup): object {
  return {
    [by]: by === 'hour' ? Number(line.name) : line.name,
    calls: line.calls,
    failed_calls: line.failedCalls,
    estimated_calls: line.estimatedCalls,
    prompt_tokens: line.promptTokens,
    cached_tokens: line.cachedTokens,
    completion_tokens: line.completionTokens,
    cost: decimalOf(line.cost),
    uncovered: decimalOf(line.uncovered),
  };
}

export function listOf<View>(data: readonly View[], next: number | undefined): ListView<View> {
  return { data, next: next === undefined ? null : String(next) };
}

function secondsOf(wallMs: WallMs): number {
  return Math.floor(wallMs / 1_000);
}
