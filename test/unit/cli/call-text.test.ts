/** What is said of a call: missing names, attempts that were stopped, tokens that were not counted. */
import t from 'tap';
import type { CallView } from '#src/admin/call-routes.js';
import { contentsLines, fieldsOf, timelineLines } from '#src/cli/call-text.js';

const CALL: CallView = {
  ...{ time: '2025-01-31T12:00:00.123Z', request_id: 'req_a-1', route: '/v1/chat/completions' },
  ...{ account: 'acct_0123456789abcdef', account_name: null, key: 'key_0123456789abcdef', key_name: null },
  ...{ model: 'm', answered_model: 'm', upstream: 'u', stream: false, cache: null, status: 200, code: null },
  ...{ prompt_tokens: null, cached_tokens: null, cache_write_tokens: null, cache_write_1h_tokens: null },
  ...{ completion_tokens: null, reasoning_tokens: null, source: null, cost: null, first_token_ms: null },
  ...{ duration_ms: 5, queued_ms: 0, admitted_ms: 1, error: null, attempts: [], quotas: [] },
};

const fieldOf = (call: CallView, name: string): string | undefined =>
  fieldsOf(call).find(([field]) => field === name)?.[1];

void t.test('why an id has no name: keys are deleted, accounts are not', (t) => {
  t.equal(fieldOf(CALL, 'account'), 'acct_0123456789abcdef (not in the books of this host)');
  t.equal(fieldOf(CALL, 'key'), 'key_0123456789abcdef (deleted)');
  t.equal(fieldOf({ ...CALL, key: null }, 'key'), 'not known');
  t.end();
});

void t.test('tokens that were not counted are no word', (t) => {
  t.equal(fieldOf(CALL, 'tokens'), '-');
  const counted = { ...CALL, prompt_tokens: 5 };
  t.equal(fieldOf(counted, 'tokens'), '5 prompt, 0 completion');
  t.equal(
    fieldOf({ ...counted, completion_tokens: 7, cached_tokens: 2, reasoning_tokens: 3 }, 'tokens'),
    '5 prompt, 7 completion (of them 2 cached, 3 reasoning)',
  );
  t.end();
});

void t.test('an attempt that the caller has ended has not failed', (t) => {
  const attempt = { upstream: 'u', model: 'm', start_ms: 1, duration_ms: 3, error: null };
  const attempts = [
    { ...attempt, status: 500, code: 'status' },
    { ...attempt, start_ms: 5, status: 200, code: 'cancelled' },
  ];
  const text = timelineLines({ ...CALL, code: 'client_gone', attempts }).join('\n');
  t.match(text, /attempt 1 failed \(status\), status 500, after 3\.0 ms$/m);
  t.match(text, /attempt 2 was stopped, as the caller had left, status 200, after 3\.0 ms$/m);
  t.notMatch(text, /failed \(cancelled\)/);
  t.match(timelineLines(CALL).at(-1), /^ +\+5\.0 ms {2}ended, 200$/, 'the end is last');
  t.end();
});

void t.test('contents keep their lines', (t) => {
  t.same(contentsLines('request', { text: '{\n\t1\r\n}', bytes: 8, cut: true }), [
    '',
    'request, 8 bytes, of which the beginning is kept:',
    '{',
    '    1',
    '}',
  ]);
  t.end();
});
