/**
 * What each method and path of the admin interface does: its input is read, the registry does it, a view answers. Main
 * thread.
 */
import { picoUnitsOf } from '../core/money.js';
import { asPicoUnits, asWallMs, type PicoUnits } from '../core/units.js';
import { invalid } from '../registry/record-id.js';
import type { Registry } from '../registry/registry.js';
import { hourOf } from '../registry/usage-record.js';
import { USAGE_GROUPS } from '../registry/usage-report.js';
import {
  readCredit,
  readKeysQuery,
  readNewAccount,
  readNewKey,
  readNoQuery,
  readNothing,
  readPageQuery,
  readPlanChange,
  readUsageQuery,
  type PageQuery,
} from './schemas.js';
import {
  listOf,
  viewOfAccount,
  viewOfCreatedKey,
  viewOfKey,
  viewOfModel,
  viewOfPlan,
  viewOfUsage,
} from './views.js';

/** A page costs the main thread 10 µs an item. */
const PAGE_ITEMS_MAX = 1_000;
const PAGE_ITEMS_DEFAULT = 100;

export interface Input {
  /** The path's variable segment, decoded; empty in a route without one. */
  readonly id: string;
  readonly query: unknown;
  readonly body: unknown;
}

export interface Route {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Segments below `/admin/v1`; `:id` stands for any one. */
  readonly path: readonly string[];
  readonly answer: (input: Input) => object;
}

export function adminRoutes(registry: Registry, status: () => object): readonly Route[] {
  return [
    ...accountRoutes(registry),
    ...keyRoutes(registry),
    usageRoute(registry),
    ...catalogRoutes(registry, status),
  ];
}

function accountRoutes(registry: Registry): Route[] {
  return [
    get(['accounts'], ({ query }) => {
      const { from, limit } = pageOf(readPageQuery(query));
      const { items, next } = registry.listAccounts(from, limit);
      return listOf(items.map(viewOfAccount), next);
    }),
    post(['accounts'], ({ body }) => {
      const { name, plan, credit } = readNewAccount(body);
      const amount = credit === undefined ? asPicoUnits(0n) : amountOf('credit', credit);
      return viewOfAccount(registry.createAccount({ name, planId: plan, credit: amount }));
    }),
    get(['accounts', ':id'], ({ id, query }) => {
      readNoQuery(query);
      return viewOfAccount(registry.findAccount(id));
    }),
    post(['accounts', ':id', 'credit'], ({ id, body }) => {
      const { amount, note } = readCredit(body);
      return viewOfAccount(registry.credit(id, amountOf('amount', amount), note ?? ''));
    }),
    post(['accounts', ':id', 'set-plan'], ({ id, body }) =>
      viewOfAccount(registry.setPlan(id, readPlanChange(body).plan)),
    ),
    post(['accounts', ':id', 'disable'], ({ id, body }) => {
      readNothing(body);
      return viewOfAccount(registry.setAccountActive(id, false));
    }),
    post(['accounts', ':id', 'enable'], ({ id, body }) => {
      readNothing(body);
      return viewOfAccount(registry.setAccountActive(id, true));
    }),
  ];
}

function keyRoutes(registry: Registry): Route[] {
  return [
    get(['keys'], ({ query }) => {
      const { account, ...page } = readKeysQuery(query);
      const { from, limit } = pageOf(page);
      const { items, next } = registry.listKeys(account, from, limit);
      return listOf(items.map(viewOfKey), next);
    }),
    post(['keys'], ({ body }) => viewOfCreatedKey(registry.createKey(readNewKey(body)))),
    post(['keys', ':id', 'disable'], ({ id, body }) => {
      readNothing(body);
      return viewOfKey(registry.setKeyActive(id, false));
    }),
    post(['keys', ':id', 'enable'], ({ id, body }) => {
      readNothing(body);
      return viewOfKey(registry.setKeyActive(id, true));
    }),
    {
      method: 'DELETE',
      path: ['keys', ':id'],
      answer: ({ id, body }) => {
        readNothing(body);
        return { id: registry.deleteKey(id).id, deleted: true };
      },
    },
  ];
}

/** `from` and `to` are Unix seconds or days (UTC); the hours they fall into belong to the report, as does the whole day `to`. */
function usageRoute(registry: Registry): Route {
  return get(['usage'], ({ query }) => {
    const { account, from, to, by: asked = 'day' } = readUsageQuery(query);
    const by = USAGE_GROUPS.find((group) => group === asked);
    if (by === undefined) {
      throw invalid(`by must be one of ${USAGE_GROUPS.join(', ')}, got ${JSON.stringify(asked)}`);
    }
    const fromHour = from === undefined ? 0 : hourOf(asWallMs(momentOf('from', from)));
    const toHour =
      to === undefined ? LAST_HOUR : hourOf(asWallMs(momentOf('to', to) + (isDay(to) ? DAY_MS - 1 : 0)));
    const lines = registry.reportUsage({ account, fromHour, toHour, by });
    return listOf(
      lines.map((line) => viewOfUsage(line, by)),
      undefined,
    );
  });
}

const DAY_MS = 86_400_000;
/** Of the year 9999, the last that a date can name. */
const LAST_HOUR = hourOf(asWallMs(Date.UTC(9_999, 11, 31, 23)));

function isDay(text: string): boolean {
  return /^\d{4}-\d{2}-\d{2}$/.test(text);
}

function momentOf(field: string, text: string): number {
  const moment = isDay(text) ? Date.parse(text) : /^\d{1,11}$/.test(text) ? Number(text) * 1_000 : NaN;
  if (!Number.isNaN(moment)) return moment;
  throw invalid(`${field} must be Unix seconds or a day such as 2025-01-31, got ${JSON.stringify(text)}`);
}

function catalogRoutes({ catalog }: Registry, status: () => object): Route[] {
  return [
    get(['models'], ({ query }) => {
      readNoQuery(query);
      return listOf(catalog.models.map(viewOfModel), undefined);
    }),
    get(['plans'], ({ query }) => {
      readNoQuery(query);
      return listOf(
        catalog.plans.map((plan) => viewOfPlan(plan, catalog)),
        undefined,
      );
    }),
    get(['status'], ({ query }) => {
      readNoQuery(query);
      return status();
    }),
  ];
}

function get(path: readonly string[], answer: Route['answer']): Route {
  return { method: 'GET', path, answer };
}

/** A change is told by its body alone. */
function post(path: readonly string[], answer: Route['answer']): Route {
  return {
    method: 'POST',
    path,
    answer: (input) => {
      readNoQuery(input.query);
      return answer(input);
    },
  };
}

function pageOf({ cursor, limit }: PageQuery): { from: number; limit: number } {
  return {
    from: cursor === undefined ? 0 : wholeNumberOf('cursor', cursor, 0, Number.MAX_SAFE_INTEGER - 1),
    limit: limit === undefined ? PAGE_ITEMS_DEFAULT : wholeNumberOf('limit', limit, 1, PAGE_ITEMS_MAX),
  };
}

function wholeNumberOf(field: string, text: string, least: number, most: number): number {
  const value = /^\d{1,16}$/.test(text) ? Number(text) : NaN;
  if (value >= least && value <= most) return value;
  throw invalid(`${field} must be a whole number from ${least} to ${most}, got ${JSON.stringify(text)}`);
}

/** A minus is let through: which amounts may be negative is the registry's to say. */
function amountOf(field: string, text: string): PicoUnits {
  const negative = text.startsWith('-');
  const amount = picoUnitsOf(negative ? text.slice(1) : text);
  if (amount !== undefined) return negative ? asPicoUnits(0n - amount) : amount;
  throw invalid(
    `${field} must be a decimal amount such as "10.00", at most 3000000 with at most 12 decimals, ` +
      `got ${JSON.stringify(text)}`,
  );
}
