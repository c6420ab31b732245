/**
 * `/admin/v1/accounts`. Main thread.
 */
import { type Static, Type } from 'typebox';
import { decimalOf } from '../core/money.js';
import { asPicoUnits } from '../core/units.js';
import type { AccountStatement } from '../registry/account-statement.js';
import {
  Amount,
  amountOf,
  listOf,
  listSchema,
  Moment,
  Money,
  nameOf,
  PAGE_PARAMETERS,
  pageOf,
  planId,
  secondsOf,
} from './fields.js';
import { CLOSED, defineRoute, type Route } from './route.js';

/*
 * How an account looks to an operator. Pure; main thread.
 */

/** credited = balance + held + spent. */
export const AccountView = Type.Object(
  {
    id: Type.String(),
    name: Type.String(),
    plan: Type.String(),
    active: Type.Boolean(),
    plan_missing: Type.Optional(
      Type.Literal(true, {
        description:
          'there if the plan is not in the settings: calls are refused until it is, or another is set',
      }),
    ),
    /** What can be spent now: credited less held less spent. */
    balance: Money,
    held: Money,
    spent: Money,
    credited: Money,
    uncovered: Money,
    calls_today: Type.Integer(),
    requests_this_minute: Type.Integer(),
    calls_in_flight: Type.Integer({ description: 'that run now, in all processes of this host' }),
    leased: Type.Optional(
      Type.Object(
        {
          /** A part of the account's balance. */
          balance: Money,
          calls_today: Type.Integer(),
          requests_this_minute: Type.Integer(),
          calls_in_flight: Type.Integer(),
        },
        {
          ...CLOSED,
          description:
            'there if several processes share the account: what they were granted in advance and have not used. Of the balance and of ' +
            'calls in flight it includes what calls of other hosts use; what those were granted of day and minute counts as used',
        },
      ),
    ),
    created: Moment,
  },
  CLOSED,
);

export type AccountView = Readonly<Static<typeof AccountView>>;

export function viewOfAccount(statement: AccountStatement): AccountView {
  const { record, leased } = statement;
  return {
    id: record.id,
    name: record.name,
    plan: record.planId,
    active: record.active,
    ...(statement.planMissing === true ? { plan_missing: true as const } : {}),
    balance: decimalOf(statement.available),
    held: decimalOf(statement.held),
    spent: decimalOf(statement.spent),
    credited: decimalOf(record.credited),
    uncovered: decimalOf(statement.uncovered),
    calls_today: statement.callsToday,
    requests_this_minute: statement.requestsThisMinute,
    calls_in_flight: statement.callsInFlight,
    ...(leased === undefined
      ? {}
      : {
          leased: {
            balance: decimalOf(leased.money),
            calls_today: leased.dayCalls,
            requests_this_minute: leased.minute,
            calls_in_flight: leased.callsInFlight,
          },
        }),
    created: secondsOf(record.createdMs),
  };
}

export const NewAccount = Type.Object(
  {
    name: nameOf('unique'),
    plan: planId,
    credit: Type.Optional(Amount),
  },
  CLOSED,
);
const AccountsQuery = Type.Object(
  {
    ...PAGE_PARAMETERS,
    search: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 100,
        description: 'part of the name, or the beginning of the id',
      }),
    ),
    plan: Type.Optional(planId),
    active: Type.Optional(Type.Boolean()),
  },
  CLOSED,
);
const PlanChange = Type.Object({ plan: planId }, CLOSED);

export const ACCOUNT_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/accounts',
    summary: 'List accounts in the order of their creation. A page of a search may be short and still go on.',
    query: AccountsQuery,
    responseSchema: listSchema(AccountView),
    answer: ({ query }, { service }) => {
      const { from, limit } = pageOf(query);
      const { search: text, plan: planId, active } = query;
      const all = text === undefined && planId === undefined && active === undefined;
      return service.read(({ accounts }) => {
        const { items, next } = all
          ? accounts.list(from, limit)
          : accounts.search({ text, planId, active }, from, limit);
        return listOf(items.map(viewOfAccount), next);
      });
    },
  }),
  defineRoute({
    method: 'POST',
    path: '/accounts',
    summary: 'Create an account.',
    body: NewAccount,
    responseSchema: AccountView,
    answer: ({ body: { name, plan, credit } }, { service }) => {
      const amount = credit === undefined ? asPicoUnits(0n) : amountOf('credit', credit);
      return service.change(({ accounts }) =>
        viewOfAccount(accounts.create({ name, planId: plan, credit: amount })),
      );
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/accounts/{account}',
    summary: 'Show an account, by id or name, with its live counters.',
    responseSchema: AccountView,
    answer: ({ id }, { service }) => service.read(({ accounts }) => viewOfAccount(accounts.find(id))),
  }),
  defineRoute({
    method: 'POST',
    path: '/accounts/{account}/set-plan',
    summary: 'Move an account to another plan; what it has used in this minute and day stays used.',
    body: PlanChange,
    responseSchema: AccountView,
    answer: ({ id, body: { plan } }, { service }) =>
      service.change(({ accounts }) => viewOfAccount(accounts.setPlan(id, plan))),
  }),
  defineRoute({
    method: 'POST',
    path: '/accounts/{account}/disable',
    summary: 'Refuse all keys of an account.',
    responseSchema: AccountView,
    answer: ({ id }, { service }) =>
      service.change(({ accounts }) => viewOfAccount(accounts.setActive(id, false))),
  }),
  defineRoute({
    method: 'POST',
    path: '/accounts/{account}/enable',
    summary: 'Take the keys of a disabled account again.',
    responseSchema: AccountView,
    answer: ({ id }, { service }) =>
      service.change(({ accounts }) => viewOfAccount(accounts.setActive(id, true))),
  }),
];
