/**
 * How a line of a usage report looks to an operator, in JSON and in CSV. Pure; main thread.
 */
import { Type, type Static } from 'typebox';
import { decimalOf } from '../core/money.js';
import type { UsageNames } from '../registry/registry.js';
import type { UsageGroup, UsageLine } from '../registry/usage-report.js';
import { csvOf } from './csv.js';
import { Moment, Money } from './fields.js';
import { CLOSED } from './route.js';

const Count = Type.Integer({ minimum: 0 });

const FIGURES = {
  calls: Count,
  failed_calls: Count,
  estimated_calls: Count,
  prompt_tokens: Count,
  cached_tokens: Count,
  completion_tokens: Count,
  cost: Money,
  uncovered: Money,
};

const Name = (of: string) =>
  Type.Union([Type.String(), Type.Null()], { description: `name of the ${of}; null where it was deleted` });

/** One of the first five is there: what the lines are by; with an id its names. */
export const UsageView = Type.Object(
  {
    account: Type.Optional(Type.String({ description: 'id of the account' })),
    key: Type.Optional(Type.String({ description: 'id of the key' })),
    model: Type.Optional(Type.String()),
    day: Type.Optional(Type.String({ description: 'UTC, such as 2025-01-31' })),
    hour: Type.Optional(Moment),
    account_name: Type.Optional(Name('account')),
    key_name: Type.Optional(Name('key')),
    ...FIGURES,
  },
  CLOSED,
);

export type UsageView = Readonly<Static<typeof UsageView>>;

export function viewOfUsage(line: UsageLine, by: UsageGroup, names: UsageNames | undefined): UsageView {
  return {
    [by]: by === 'hour' ? Number(line.name) : line.name,
    ...(names && { account_name: names.account ?? null }),
    ...(names && by === 'key' ? { key_name: names.key ?? null } : {}),
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

/** Money has all of its decimals. */
export function csvOfUsage(lines: readonly UsageLine[], by: UsageGroup): string {
  const names = [by, ...Object.keys(FIGURES)] as (keyof UsageView)[];
  const rows = lines.map((line) => {
    const view = viewOfUsage(line, by, undefined);
    return names.map((name) => view[name]!);
  });
  return csvOf(names, rows);
}
