/** What rejections repeat of a request, and what each end of a wait for a lease means. */
import t from 'tap';
import { compressedBody, coordinatorRejection, LEASE_LATE, unknownModel } from '#src/request/rejections.js';

void t.test('a text of the request is repeated to a bound, and a cut is shown', (t) => {
  for (const messageOf of [
    (text: string) => unknownModel(text).message,
    (text: string) => compressedBody(text)!.message,
  ]) {
    t.ok(messageOf('short').includes('"short"'));
    t.notOk(messageOf('short').includes('…'));
    const long = messageOf('x'.repeat(10_000));
    t.match(long, /x…"/);
    t.ok(long.length < 300);
    t.match(messageOf('a"\n\u0000b'), /"a\\"\\n\\u0000b"/, 'nothing of it ends the line or the quotes');
  }
  t.end();
});

void t.test('a body is compressed if its coding is none of the names for none', (t) => {
  for (const coding of [undefined, '', 'identity', 'Identity']) t.equal(compressedBody(coding), undefined);
  for (const coding of ['gzip', 'identity, gzip', ' '])
    t.match(compressedBody(coding), { code: 'unsupported_media_type' });
  t.end();
});

void t.test('a request is rejected if no coordinator could decide, and not if one has', (t) => {
  for (const end of ['try', { refused: [] }] as const) t.equal(coordinatorRejection(end), undefined);
  t.equal(coordinatorRejection('late'), LEASE_LATE);
  t.match(coordinatorRejection('lost'), { code: 'overloaded', detail: 'authority_lost' });
  for (const [lostForMs, seconds] of [
    [0, 1],
    [1, 1],
    [1_001, 2],
    [86_000, 86],
  ] as const)
    t.match(coordinatorRejection({ lostForMs }), {
      code: 'overloaded',
      detail: 'authority_lost',
      retryAfterSeconds: seconds,
      message: new RegExp(` Retry after ${seconds} seconds?\\.$`),
    });
  t.end();
});
