/**
 * The course of the busiest accounts, of the last five minutes to the last day: who they are, and one of them span by span.
 * Main thread.
 */
import { Type, type Static } from 'typebox';
import { decimalOf } from '../core/money.js';
import { type AccountStats, busiestAccounts, courseOf } from '../telemetry/account-history.js';
import { HISTORY_RINGS, RING_NAMES } from '../telemetry/history.js';
import { Moment, Money, RangeQuery } from './fields.js';
import { CLOSED, defineRoute, type Route } from './route.js';

const Count = Type.Integer({ minimum: 0 });
const STATS = {
  calls: Count,
  prompt_tokens: Count,
  cached_tokens: Count,
  completion_tokens: Count,
  cost: Money,
};

const RANGE = {
  range: Type.Enum([...RING_NAMES]),
  seconds: Type.Integer({ description: 'length of each span' }),
};

const BusyAccount = Type.Object({ account: Type.String(), name: Type.String(), ...STATS }, CLOSED);
const CourseSpan = Type.Object({ start: Moment, ...STATS }, CLOSED);

export const ACCOUNT_HISTORY_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/history/accounts',
    summary: 'List the accounts with most calls of late, the busiest first.',
    query: RangeQuery,
    responseSchema: Type.Object({ ...RANGE, data: Type.Array(BusyAccount) }, CLOSED),
    answer: ({ query: { range = '5m' } }, { accountSpans, service }) => {
      const busiest = busiestAccounts(accountSpans(range));
      return service.read(({ accounts }) => ({
        range,
        seconds: HISTORY_RINGS[range].seconds,
        data: busiest.map(([id, stats]) => ({
          account: id,
          name: accounts.find(id).record.name,
          ...viewOf(stats),
        })),
      }));
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/accounts/{account}/history',
    summary: 'Show what an account has called of late, in the spans in which it was among the 50 busiest.',
    query: RangeQuery,
    responseSchema: Type.Object({ ...RANGE, data: Type.Array(CourseSpan) }, CLOSED),
    answer: ({ id, query: { range = '5m' } }, { accountSpans, service }) => {
      const course = (accountId: string) =>
        courseOf(accountSpans(range), accountId).map(({ start, figures: stats }) => ({
          start,
          ...viewOf(stats),
        }));
      return service.read(({ accounts }) => ({
        range,
        seconds: HISTORY_RINGS[range].seconds,
        data: course(accounts.find(id).record.id),
      }));
    },
  }),
];

/** A charge may be taken back in a later span than it was made in: what is less than nothing is shown as nothing. */
function viewOf(stats: Readonly<AccountStats>): Omit<Static<typeof CourseSpan>, 'start'> {
  return {
    calls: stats.calls,
    prompt_tokens: Math.max(0, stats.prompt),
    cached_tokens: Math.max(0, stats.cached),
    completion_tokens: Math.max(0, stats.completion),
    cost: decimalOf(BigInt(Math.max(0, Math.round(stats.costPicoUnits)))),
  };
}
