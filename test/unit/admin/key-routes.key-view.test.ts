import t from 'tap';
import { viewOfCreatedKey, viewOfKey, viewOfRotatedKey } from '#src/admin/key-routes.js';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asAccountIndex, asKeyIndex, asWallMs } from '#src/core/units.js';

void t.test('a key’s digest is never shown, the key where it is made', (t) => {
  const record = {
    index: asKeyIndex(0),
    id: 'key_x',
    accountIndex: asAccountIndex(0),
    accountId: 'acct_x',
    name: 'ci',
    digest: Buffer.alloc(32, 7),
    prefix: 'sk-abcd',
    active: true,
    createdMs: asWallMs(2_000),
    expiresSeconds: undefined,
    limits: NO_QUOTAS,
    replacedById: undefined,
  };
  const view = {
    id: 'key_x',
    account: 'acct_x',
    account_name: 'acme',
    name: 'ci',
    prefix: 'sk-abcd…',
    active: true,
    created: 2,
    expires: null,
    expired: false,
    last_used: null,
    requests_per_minute: null,
    calls_per_day: null,
    replaced_by: null,
  };
  t.same(
    viewOfKey({ record, accountName: 'acme', expired: false, lastUsedSeconds: undefined, quotas: [] }),
    view,
  );
  const limits = { ...NO_QUOTAS, requestsPerMinute: 2, callsPerDay: 3 };
  const rich = { ...record, expiresSeconds: 9, limits, replacedById: 'key_y' };
  const richView = {
    ...view,
    expires: 9,
    expired: true,
    last_used: 8,
    requests_per_minute: 2,
    calls_per_day: 3,
    replaced_by: 'key_y',
  };
  t.same(
    viewOfKey({ record: rich, accountName: 'acme', expired: true, lastUsedSeconds: 8, quotas: [] }),
    richView,
  );
  t.same(
    viewOfRotatedKey({
      record,
      accountName: 'acme',
      key: 'sk-abcdefg',
      replaced: { record: rich, accountName: 'acme', expired: true, lastUsedSeconds: 8, quotas: [] },
    }),
    { ...view, key: 'sk-abcdefg', replaces: richView },
  );
  t.same(viewOfCreatedKey({ record, accountName: 'acme', key: 'sk-abcdefg' }), {
    ...view,
    key: 'sk-abcdefg',
  });
  t.end();
});
