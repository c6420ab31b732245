import t from 'tap';
import { QUOTA_NAMES, type QuotaName } from '#src/core/quotas.js';
import { neverFits, quotaUsedUp, type QuotaOwner } from '#src/request/quota-rejections.js';

const UNIT = 1_000_000_000_000n;
const OWNERS: readonly QuotaOwner[] = [
  { kind: 'key' },
  { kind: 'account', plan: 'free' },
  { kind: 'group', name: 'research' },
  { kind: 'model', plan: 'free', model: 'dear' },
];
const usedUp = (
  owner: QuotaOwner,
  quota: QuotaName,
  limit = 100n,
  left = 40n,
  need = 60n,
  retryAfterSeconds = 12,
) => quotaUsedUp({ owner, quota, limit, left, need, retryAfterSeconds });

void t.test('each quota of each scope has its code, and says whose it is and when to come back', (t) => {
  const texts = new Set<string>();
  for (const owner of OWNERS) {
    for (const quota of QUOTA_NAMES) {
      const { code, message, retryAfterSeconds } = usedUp(owner, quota);
      texts.add(message);
      t.equal(retryAfterSeconds, 12, message);
      t.match(message, / Retry after 12 seconds[^0-9]*(at 00:00 UTC\+8)?\.$/);
      t.match(
        message,
        {
          key: /^This key /,
          account: /^The plan free /,
          group: /^The group research /,
          model: /^The plan free .* for the model dear[ ,]/,
        }[owner.kind],
      );
      const [, per] = /_(?:per|in)_(.*)/.exec(quota)!;
      const expected =
        quota.startsWith('spend') || per === 'month'
          ? 'budget_exceeded'
          : per === 'flight'
            ? 'overloaded'
            : per === 'day'
              ? 'daily_limit_exceeded'
              : 'rate_limit_exceeded';
      t.equal(code, expected, quota);
    }
  }
  t.equal(texts.size, OWNERS.length * QUOTA_NAMES.length);
  t.end();
});

void t.test('the words of each unit', (t) => {
  const [key, account, group, model] = OWNERS as [QuotaOwner, QuotaOwner, QuotaOwner, QuotaOwner];
  t.equal(
    usedUp(group, 'tokens_per_minute').message,
    'The group research allows 100 tokens per minute, of which 40 are left, and the call may use up to 60 tokens. Retry after 12 seconds.',
  );
  t.equal(
    usedUp(account, 'spend_per_month', 10n * UNIT, UNIT / 50n, UNIT / 20n).message,
    'The plan free allows spending 10.00 per month, of which 0.02 is left, and the call may cost up to 0.05. Retry after 12 seconds.',
  );
  t.equal(
    usedUp(model, 'requests_per_minute', 10n).message,
    'The plan free allows 10 requests per minute for the model dear and they are used up. Retry after 12 seconds.',
  );
  t.equal(
    usedUp(key, 'calls_per_day', 2n).message,
    'This key allows 2 calls per day and they are used up. Retry after 12 seconds, at 00:00 UTC+8.',
  );
  t.equal(
    usedUp(key, 'calls_in_flight', 2n).message,
    'This key allows 2 calls in flight and they are all in use. Retry after 12 seconds.',
  );
  for (const quota of QUOTA_NAMES)
    t.match(usedUp(key, quota, 2n, 0n, 0n, 1).message, /Retry after 1 second(, at 00:00 UTC\+8)?\.$/);
  t.end();
});

void t.test('the reason that the metric shows names the quota, if the code does not', (t) => {
  const reasonOf = (quota: QuotaName, owner = OWNERS[2]!) => usedUp(owner, quota).detail;
  t.equal(reasonOf('requests_per_minute'), undefined);
  t.equal(reasonOf('calls_per_day'), undefined);
  t.equal(reasonOf('tokens_per_day'), 'tokens_per_day');
  t.equal(reasonOf('spend_per_day'), 'spend_per_day');
  t.equal(reasonOf('calls_in_flight'), 'group_calls_in_flight');
  t.equal(reasonOf('calls_in_flight', OWNERS[0]), 'key_calls_in_flight');
  t.end();
});

void t.test('a call that never fits is told the bound, and what would fit', (t) => {
  const beyond = { owner: OWNERS[2]!, quota: 'tokens_per_day', limit: 100n, need: 150n } as const;
  t.match(neverFits(beyond, 'chat', 'max_tokens', 40), {
    code: 'invalid_parameters',
    detail: 'beyond_quota',
    message:
      'The call may use up to 150 tokens and the group research allows 100 tokens per day: it can never be admitted. Set max_tokens to at most 40.',
  });
  t.match(neverFits(beyond, 'chat', 'max_tokens', 0).message, /admitted\. Shorten the messages\.$/);
  t.match(neverFits(beyond, 'chat', undefined, 40).message, /admitted\.$/, 'a hit');
  t.match(neverFits(beyond, 'rerank', 'max_tokens', 0).message, /admitted\. Shorten the documents\.$/);
  const money = { ...beyond, quota: 'spend_per_day', limit: UNIT, need: 2n * UNIT } as const;
  t.match(
    neverFits(money, 'chat', 'max_completion_tokens', undefined).message,
    /^The call may cost up to 2\.00 and the group research allows spending 1\.00 per day: /,
  );
  const calls = { ...beyond, quota: 'calls_per_day', limit: 1n, need: 2n } as const;
  t.match(neverFits(calls, 'chat', 'max_tokens', 0).message, /^The call may use up to 2 calls and /);
  t.end();
});
