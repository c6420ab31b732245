/**
 * `/admin/v1/accounts` and `/admin/v1/history/accounts`: accounts, their credits and their recent calls; and
 * `/admin/v1/bulk`, many accounts with their keys at once. routes.ts lists these routes with the others,
 * api.ts calls them. Main thread.
 *
 * Must hold: each change runs inside `service.change`, in one transaction with the row that says who made the
 * change (test/unit/admin/api.test.ts, test/unit/admin/openapi.test.ts). Statements are read by
 * `service.read`, which knows what all processes have used (RecordReader of context.ts). Views:
 * test/unit/admin/account-routes.account-view.test.ts, test/unit/admin/account-routes.history.test.ts.
 */
import * as Type from 'typebox';
import { jsonText } from '../core/json.js';
import { decimalOf } from '../core/money.js';
import { asPicoUnits } from '../core/units.js';
import { ADMIN_ONLY, RIGHTS } from '../core/roles.js';
import type { CreditRecord } from '../registry/account-record.js';
import type { AccountStatement } from '../registry/account-statement.js';
import type { Accounts } from '../registry/accounts.js';
import { NOTE_RULE } from '../registry/credits.js';
import { IDEMPOTENCY_KEY_RULE } from '../registry/record-id.js';
import { accountSeries, type AccountStats, busiestAccounts } from '../telemetry/account-history.js';
import {
  Amount,
  amountOf,
  nameSchema,
  PAGE_PARAMETERS,
  pageView,
  PlanId,
  RangeQuery,
  referenceSchema,
  textWithRule,
  secondsOf,
  viewOfQuotas,
} from './fields.js';
import { KeyTerms, newKeyOf, viewOfCreatedKey } from './key-routes.js';
import { defineRoute, JSON_TYPE, TextResponse } from './route.js';
import {
  AccountSpanView,
  type AccountStatsView,
  AccountView,
  BulkView,
  BusyAccountView,
  closedObject,
  CreditView,
  historyOf,
  historySchema,
  listSchema,
  orNull,
} from './views.js';

export function viewOfAccount(statement: AccountStatement): AccountView {
  const { record, leased } = statement;
  return {
    id: record.id,
    name: record.name,
    plan: record.planId,
    group: statement.group?.id ?? null,
    group_name: statement.group?.name ?? null,
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
    quotas: viewOfQuotas(statement.quotas),
    ...(leased !== undefined && {
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

/**
 * Returns the response to an earlier request, with the members that it lacks because an older version made
 * it: clients rely on what the interface has today. `viewNow` is called only if any are missing.
 */
function completedAccount(text: string, viewNow: () => AccountView): string {
  const earlier = JSON.parse(text) as Partial<AccountView>;
  const missing = AccountView.required.filter((name) => !Object.hasOwn(earlier, name));
  if (missing.length === 0) return text;
  const view = viewNow();
  return jsonText({ ...earlier, ...Object.fromEntries(missing.map((name) => [name, view[name]])) });
}

function viewOfCredit({ amount, note, createdMs }: CreditRecord): CreditView {
  return { amount: decimalOf(amount), note, created: secondsOf(createdMs) };
}

/**
 * Returns the account's name; its id if its record is damaged, or is gone because replication has put a new
 * copy of the registry in place. So one such account does not fail the whole list.
 */
function nameOrId(accounts: Accounts, id: string): string {
  try {
    return accounts.recordOf(id).name;
  } catch {
    return id;
  }
}

/** Shows a count below 0 as 0: a span may give back more of earlier charges than it charges. */
function viewOfStats(stats: Readonly<AccountStats>): AccountStatsView {
  return {
    calls: stats.calls,
    prompt_tokens: Math.max(0, stats.prompt),
    cached_tokens: Math.max(0, stats.cached),
    completion_tokens: Math.max(0, stats.completion),
    cost: decimalOf(BigInt(Math.max(0, Math.round(stats.costPicoUnits)))),
  };
}

const NewAccount = closedObject({
  name: nameSchema('unique'),
  plan: PlanId,
  credit: Type.Optional(Amount),
  group: Type.Optional(referenceSchema('id or name of the group that it is in')),
});

const AccountsQuery = closedObject({
  ...PAGE_PARAMETERS,
  search: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 100,
      description: 'part of the name, or the beginning of the id',
    }),
  ),
  plan: Type.Optional(PlanId),
  group: Type.Optional(referenceSchema('in this group or one below it: id or name')),
  active: Type.Optional(Type.Boolean()),
});

const NewCredit = closedObject({
  amount: Amount,
  note: Type.Optional(textWithRule('why, for the journal', NOTE_RULE)),
  idempotency_key: Type.Optional(
    textWithRule(
      'repeated with the same amount and note it changes nothing and gets the first answer',
      IDEMPOTENCY_KEY_RULE,
    ),
  ),
});

/**
 * How many accounts a request may create, which takes some 100 ms of the main thread. Meanwhile the admin
 * port and the flush wait, but calls do not. More accounts in a request would save hardly any time.
 */
const BULK_ACCOUNTS_MAX = 1_000;
const BULK_KEYS_OF_ACCOUNT_MAX = 10;
/** Enough for BULK_ACCOUNTS_MAX accounts with the longest names and BULK_KEYS_OF_ACCOUNT_MAX keys each. */
const BULK_BODY_BYTES_MAX = 8 * 1024 * 1024;

const NewKeys = Type.Array(KeyTerms, { maxItems: BULK_KEYS_OF_ACCOUNT_MAX });
const Bulk = closedObject({
  accounts: Type.Array(closedObject({ ...NewAccount.properties, keys: Type.Optional(NewKeys) }), {
    minItems: 1,
    maxItems: BULK_ACCOUNTS_MAX,
  }),
});

const NO_CREDIT = asPicoUnits(0n);

export const ACCOUNT_ROUTES = [
  defineRoute({
    method: 'GET',
    path: '/accounts',
    summary: 'List accounts in the order of their creation. A page of a search may be short and still go on.',
    query: AccountsQuery,
    responseSchema: listSchema(AccountView),
    respond: ({ query }, { service }) => {
      const { search: text, plan: planId, group, active } = query;
      const filter = { text, planId, group, active };
      const isFiltered = Object.values(filter).some((value) => value !== undefined);
      // Without a filter `list` is called, which reads the slots of the page alone.
      return service.read(({ accounts }) =>
        pageView(
          query,
          (from, limit) => (isFiltered ? accounts.search(filter, from, limit) : accounts.list(from, limit)),
          viewOfAccount,
        ),
      );
    },
  }),
  defineRoute({
    method: 'POST',
    path: '/accounts',
    roles: ADMIN_ONLY,
    summary: 'Create an account.',
    body: NewAccount,
    responseSchema: AccountView,
    respond: ({ body: { name, plan, credit, group } }, { service }) => {
      const amount = credit === undefined ? NO_CREDIT : amountOf('credit', credit);
      return service.change(({ accounts }) =>
        viewOfAccount(accounts.create({ name, planId: plan, credit: amount, group })),
      );
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/accounts/{account}',
    summary: 'Show an account, by id or name, with its live counters.',
    responseSchema: AccountView,
    respond: ({ id }, { service }) => service.read(({ accounts }) => viewOfAccount(accounts.find(id))),
  }),
  defineRoute({
    method: 'POST',
    path: '/accounts/{account}/set-plan',
    roles: ADMIN_ONLY,
    summary: 'Move an account to another plan; what it has used in this minute and day stays used.',
    body: closedObject({ plan: PlanId }),
    responseSchema: AccountView,
    respond: ({ id, body: { plan } }, { service }) =>
      service.change(({ accounts }) => viewOfAccount(accounts.setPlan(id, plan))),
  }),
  defineRoute({
    method: 'POST',
    path: '/accounts/{account}/set-group',
    roles: ADMIN_ONLY,
    summary: 'Move an account to another group, or to none; what it has used stays used in the former one.',
    body: closedObject({ group: orNull(referenceSchema('id or name; null: in no group')) }),
    responseSchema: AccountView,
    respond: ({ id, body: { group } }, { service }) =>
      service.change(({ accounts }) => viewOfAccount(accounts.setGroup(id, group ?? undefined))),
  }),
  ...(
    [
      { verb: 'disable', active: false, summary: 'Reject all keys of an account.' },
      { verb: 'enable', active: true, summary: 'Accept the keys of a disabled account again.' },
    ] as const
  ).map(({ verb, active, summary }) =>
    defineRoute({
      method: 'POST',
      path: `/accounts/{account}/${verb}`,
      roles: ADMIN_ONLY,
      summary,
      responseSchema: AccountView,
      respond: ({ id }, { service }) =>
        service.change(({ accounts }) => viewOfAccount(accounts.setActive(id, active))),
    }),
  ),
  defineRoute({
    method: 'GET',
    path: '/history/accounts',
    summary: 'List the accounts with most calls of late, the busiest first.',
    query: RangeQuery,
    responseSchema: historySchema(BusyAccountView),
    respond: ({ query: { range = '5m' } }, { accountSpans, service }) => {
      const busiest = busiestAccounts(accountSpans(range));
      return service.read(({ accounts }) => {
        const busyAccounts = busiest.map(([account, stats]) => {
          return { account, name: nameOrId(accounts, account), ...viewOfStats(stats) };
        });
        return historyOf(range, busyAccounts);
      });
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/accounts/{account}/history',
    summary: 'Show what an account has called of late, in the spans in which it was among the 50 busiest.',
    query: RangeQuery,
    responseSchema: historySchema(AccountSpanView),
    respond: ({ id, query: { range = '5m' } }, { accountSpans, service }) =>
      service.read(({ accounts }) => {
        const series = accountSeries(accountSpans(range), accounts.find(id).record.id);
        const spans = series.map(({ start, stats }) => ({ start, ...viewOfStats(stats) }));
        return historyOf(range, spans);
      }),
  }),
  defineRoute({
    method: 'POST',
    path: '/accounts/{account}/credit',
    roles: RIGHTS.credit,
    summary: 'Add to the balance; a negative amount takes away what the balance covers.',
    body: NewCredit,
    responseSchema: AccountView,
    respond: ({ id, body }, { service }) => {
      const { note = '', idempotency_key: idempotencyKey } = body;
      const amount = amountOf('amount', body.amount);
      return service.change(({ credits, accounts }) => {
        if (idempotencyKey === undefined) return viewOfAccount(credits.add(id, amount, note));
        const request = { account: id, amount, note, idempotencyKey };
        // A text, because a repeated request must get the first response byte for byte.
        const text = credits.addOnce(request, (statement) => jsonText(viewOfAccount(statement)));
        return new TextResponse(
          JSON_TYPE,
          completedAccount(text, () => viewOfAccount(accounts.find(id))),
        );
      });
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/accounts/{account}/credits',
    summary: 'List the credits and debits of an account, oldest first.',
    query: closedObject(PAGE_PARAMETERS),
    responseSchema: listSchema(CreditView),
    respond: ({ id, query }, { registry: { credits } }) =>
      pageView(query, (from, limit) => credits.list(id, from, limit), viewOfCredit),
  }),
  defineRoute({
    method: 'POST',
    path: '/bulk',
    roles: ADMIN_ONLY,
    summary:
      'Create accounts with credit and keys, all of them or none. The keys are shown only once, in this response.',
    body: Bulk,
    bodyBytesMax: BULK_BODY_BYTES_MAX,
    responseSchema: BulkView,
    respond: ({ body: { accounts } }, { service }) => {
      const newAccounts = accounts.map(({ name, plan, credit, group, keys = [] }, index) => ({
        name,
        planId: plan,
        credit: credit === undefined ? NO_CREDIT : amountOf(`accounts[${index}].credit`, credit),
        group,
        keys: keys.map((key, keyIndex) => newKeyOf(key, `accounts[${index}].keys[${keyIndex}].`)),
      }));
      return service.change((registry) => ({
        data: registry.createInBulk(newAccounts).map(({ statement, keys }) => ({
          account: viewOfAccount(statement),
          keys: keys.map((key) => viewOfCreatedKey(key, registry.keys)),
        })),
      }));
    },
  }),
];
