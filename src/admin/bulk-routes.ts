/**
 * `/admin/v1/bulk`: many accounts with their keys at once. Main thread.
 */
import { Type } from 'typebox';
import { asPicoUnits } from '../core/units.js';
import { AccountView, NewAccount, viewOfAccount } from './account-routes.js';
import { amountOf } from './fields.js';
import { KeyTerms, newKeyOf } from './key-routes.js';
import { CreatedKeyView, viewOfCreatedKey } from './key-view.js';
import { CLOSED, defineRoute, type Route } from './route.js';

/**
 * One request keeps the main thread for some 100 ms, and with it the admin port and the flush; calls are served meanwhile.
 * Larger ones would be hardly faster.
 */
const ACCOUNTS_MAX = 1_000;
const KEYS_OF_ACCOUNT_MAX = 10;
/** A thousand accounts of the longest names, each with ten keys. */
const BULK_BODY_BYTES_MAX = 8 * 1024 * 1024;

const NewKeys = Type.Array(KeyTerms, { maxItems: KEYS_OF_ACCOUNT_MAX });

const Bulk = Type.Object(
  {
    accounts: Type.Array(Type.Object({ ...NewAccount.properties, keys: Type.Optional(NewKeys) }, CLOSED), {
      minItems: 1,
      maxItems: ACCOUNTS_MAX,
    }),
  },
  CLOSED,
);

const BulkView = Type.Object(
  {
    data: Type.Array(Type.Object({ account: AccountView, keys: Type.Array(CreatedKeyView) }, CLOSED), {
      description: 'in the order of the request',
    }),
  },
  CLOSED,
);

export const BULK_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'POST',
    path: '/bulk',
    summary:
      'Create accounts with credit and keys, all of them or none. The answer holds the keys this once.',
    body: Bulk,
    bodyBytesMax: BULK_BODY_BYTES_MAX,
    responseSchema: BulkView,
    answer: ({ body: { accounts } }, { service }) => {
      const items = accounts.map(({ name, plan, credit, keys = [] }, at) => ({
        name,
        planId: plan,
        credit: credit === undefined ? asPicoUnits(0n) : amountOf(`accounts[${at}].credit`, credit),
        keys: keys.map(newKeyOf),
      }));
      return service.change((registry) => ({
        data: registry.createInBulk(items).map(({ statement, keys }) => ({
          account: viewOfAccount(statement),
          keys: keys.map(viewOfCreatedKey),
        })),
      }));
    },
  }),
];
