/**
 * `/admin/v1/accounts/{account}/credit` and `…/credits`: money put in and taken out, and the journal of it. Main thread.
 */
import { Type, type Static } from 'typebox';
import { jsonText } from '../core/json.js';
import { decimalOf } from '../core/money.js';
import type { CreditRecord } from '../registry/account-record.js';
import { NOTE_RULE } from '../registry/credits.js';
import { IDEMPOTENCY_KEY_RULE } from '../registry/record-id.js';
import { AccountView, viewOfAccount } from './account-routes.js';
import {
  Amount,
  Moment,
  Money,
  PAGE_PARAMETERS,
  amountOf,
  listOf,
  listSchema,
  pageOf,
  ruled,
  secondsOf,
} from './fields.js';
import { CLOSED, JSON_TYPE, TextResponse, defineRoute, type Route } from './route.js';

const NewCredit = Type.Object(
  {
    amount: Amount,
    note: Type.Optional(ruled('why, for the journal', NOTE_RULE)),
    idempotency_key: Type.Optional(
      ruled(
        'repeated with the same amount and note it changes nothing and gets the first answer',
        IDEMPOTENCY_KEY_RULE,
      ),
    ),
  },
  CLOSED,
);

const CreditView = Type.Object({ amount: Money, note: Type.String(), created: Moment }, CLOSED);

export const CREDIT_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'POST',
    path: '/accounts/{account}/credit',
    summary: 'Add to the balance; a negative amount takes away what the balance covers.',
    body: NewCredit,
    responseSchema: AccountView,
    answer: ({ id, body }, { service }) => {
      const { note = '', idempotency_key: idempotencyKey } = body;
      const amount = amountOf('amount', body.amount);
      return service.change(({ credits }) => {
        if (idempotencyKey === undefined) return viewOfAccount(credits.add(id, amount, note));
        const request = { account: id, amount, note, idempotencyKey };
        return new TextResponse(
          JSON_TYPE,
          credits.addOnce(request, (statement) => jsonText(viewOfAccount(statement))),
        );
      });
    },
  }),
  defineRoute({
    method: 'GET',
    path: '/accounts/{account}/credits',
    summary: 'List the credits and debits of an account, oldest first.',
    query: Type.Object(PAGE_PARAMETERS, CLOSED),
    responseSchema: listSchema(CreditView),
    answer: ({ id, query }, { registry }) => {
      const { from, limit } = pageOf(query);
      const { items, next } = registry.credits.list(id, from, limit);
      return listOf(items.map(viewOfCredit), next);
    },
  }),
];

function viewOfCredit({ amount, note, createdMs }: CreditRecord): Static<typeof CreditView> {
  return { amount: decimalOf(amount), note, created: secondsOf(createdMs) };
}
