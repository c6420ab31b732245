/**
 * `/admin/v1/accounts`. Main thread.
 */
import { Type } from 'typebox';
import { asPicoUnits } from '../core/units.js';
import { AccountView, viewOfAccount } from './account-view.js';
import { Amount, PAGE_PARAMETERS, amountOf, listOf, listSchema, pageOf } from './fields.js';
import { CLOSED, defineRoute, type Route } from './route.js';

export const NewAccount = Type.Object(
  {
    name: Type.String({ description: 'unique' }),
    plan: Type.String({ description: 'id of a plan' }),
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
    plan: Type.Optional(Type.String()),
    active: Type.Optional(Type.Boolean()),
  },
  CLOSED,
);
const PlanChange = Type.Object({ plan: Type.String() }, CLOSED);

export const ACCOUNT_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/accounts',
    summary: 'List accounts in the order of their creation. A page of a search may be short and still go on.',
    query: AccountsQuery,
    answerSchema: listSchema(AccountView),
    answer: ({ query }, { desk }) => {
      const { from, limit } = pageOf(query);
      const { search: text, plan: planId, active } = query;
      const all = text === undefined && planId === undefined && active === undefined;
      return desk.read(({ accounts }) => {
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
    answerSchema: AccountView,
    answer: ({ body: { name, plan, credit } }, { desk }) => {
      const amount = credit === undefined ? asPicoUnits(0n) : amountOf('credit', credit);
      return desk.change(({ accounts }) =>
        viewOfAccount(accounts.create({ name, planId: plan, credit: amount })),
      );
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/accounts/{account}',
    summary: 'Show an account, by id or name, with its live counters.',
    answerSchema: AccountView,
    answer: ({ id }, { desk }) => desk.read(({ accounts }) => viewOfAccount(accounts.find(id))),
  }),
  defineRoute({
    method: 'POST',
    path: '/accounts/{account}/set-plan',
    summary: 'Move an account to another plan; what it has used in this minute and day stays used.',
    body: PlanChange,
    answerSchema: AccountView,
    answer: ({ id, body: { plan } }, { desk }) =>
      desk.change(({ accounts }) => viewOfAccount(accounts.setPlan(id, plan))),
  }),
  defineRoute({
    method: 'POST',
    path: '/accounts/{account}/disable',
    summary: 'Refuse all keys of an account.',
    answerSchema: AccountView,
    answer: ({ id }, { desk }) => desk.change(({ accounts }) => viewOfAccount(accounts.setActive(id, false))),
  }),
  defineRoute({
    method: 'POST',
    path: '/accounts/{account}/enable',
    summary: 'Take the keys of a disabled account again.',
    answerSchema: AccountView,
    answer: ({ id }, { desk }) => desk.change(({ accounts }) => viewOfAccount(accounts.setActive(id, true))),
  }),
];
