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
    quotas: {},
    private: false,
    replaced_by: null,
  };
  t.same(
    viewOfKey({ record, accountName: 'acme', expired: false, lastUsedSeconds: undefined, quotas: [] }),
    view,
  );
  const limits = { ...NO_QUOTAS, requestsPerMinute: 2, callsPerDay: 3 };
  const rich = { ...record, expiresSeconds: 9, limits, replacedById: 'key_y' };
  const use = { held: 0n, resetsMs: undefined };
  const quotas = [
    { ...use, quota: 'requests_per_minute', limit: 2n, used: 1n },
    { ...use, quota: 'spend_per_day', limit: 1n, used: 0n, held: 1n, resetsMs: asWallMs(7_999) },
  ] as const;
  const richView = {
    ...view,
    expires: 9,
    expired: true,
    last_used: 8,
    requests_per_minute: 2,
    calls_per_day: 3,
    quotas: {
      requests_per_minute: { limit: 2, used: 1, held: 0, left: 1, resets_at: null },
      spend_per_day: {
        limit: '0.000000000001',
        used: '0.00',
        held: '0.000000000001',
        left: '0.00',
        resets_at: 7,
      },
    },
    replaced_by: 'key_y',
  };
  t.same(
    viewOfKey({ record: rich, accountName: 'acme', expired: true, lastUsedSeconds: 8, quotas }),
    richView,
  );
  const replaced = { record: rich, accountName: 'acme', expired: true, lastUsedSeconds: 8, quotas };
  // What rotation has made has used what the other has used.
  const keys = { find: () => ({ ...replaced, record: limited }) };
  const limited = { ...record, limits };
  t.same(viewOfRotatedKey({ record: limited, accountName: 'acme', key: 'sk-abcdefg', replaced }, keys), {
    ...view,
    requests_per_minute: 2,
    calls_per_day: 3,
    quotas: richView.quotas,
    key: 'sk-abcdefg',
    replaces: richView,
  });
  t.same(viewOfCreatedKey({ record, accountName: 'acme', key: 'sk-abcdefg' }, keys), {
    ...view,
    key: 'sk-abcdefg',
  });
  t.end();
});
