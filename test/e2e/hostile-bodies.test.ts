/**
 * Bodies as no client should send them: each gets its documented answer, and the same gateway serves the next
 * request.
 */
import t from 'tap';
import { startBed } from '../support/bed.js';
import { checkError, type ErrorName } from '../support/error-answer.js';
import { RawConnection } from '../support/raw-connection.js';

const BODY_BYTES = 10_485_760;
const USER = { role: 'user', content: 'Hello' };
const BODY = { model: 'mock-model', messages: [USER] };

/** What is sent, and what comes: 200, or the code and what its message contains. */
type Case = readonly [name: string, body: string | Uint8Array, expected: 200 | readonly [ErrorName, RegExp]];

const json = (more: object): string => JSON.stringify({ ...BODY, ...more });
const invalid = (message: RegExp): readonly [ErrorName, RegExp] => ['invalid_parameters', message];

/** A number with both ends in its range: what is right, and what is said of the wrong. */
function ranged(field: string, max: number): Case[] {
  const range = new RegExp(`${field} must be (a number )?between 0 and ${max}`);
  return [
    [`${field} 0`, json({ [field]: 0 }), 200],
    [`${field} ${max}`, json({ [field]: max }), 200],
    [`${field} ${max}.0001`, json({ [field]: max + 0.0001 }), invalid(range)],
    [`${field} -0.1`, json({ [field]: -0.1 }), invalid(range)],
    [`${field} "1"`, json({ [field]: '1' }), invalid(new RegExp(`^${field} must be`))],
    // Clients of the compatible interface send null for what they do not set.
    [`${field} null`, json({ [field]: null }), 200],
  ];
}

const deep = (levels: number): string =>
  `{"model":"mock-model","messages":[{"role":"user","content":"Hello"}],"metadata":${'['.repeat(levels)}${']'.repeat(levels)}}`;

const CASES: readonly Case[] = [
  ...ranged('temperature', 2),
  ...ranged('top_p', 1),
  ['max_tokens 0', json({ max_tokens: 0 }), 200],
  ['max_tokens -1', json({ max_tokens: -1 }), invalid(/^max_tokens must/)],
  ['max_tokens 1.5', json({ max_tokens: 1.5 }), invalid(/^max_tokens must/)],
  ['max_tokens 10^12', json({ max_tokens: 1e12 }), 200],
  ['max_completion_tokens -1', json({ max_completion_tokens: -1 }), invalid(/^max_completion_tokens must/)],
  ['empty messages', json({ messages: [] }), invalid(/messages/)],
  ['no messages', '{"model":"mock-model"}', invalid(/messages/)],
  ['no model', JSON.stringify({ messages: [USER] }), invalid(/model/)],
  ['model 3', json({ model: 3 }), invalid(/model/)],
  ['model ""', json({ model: '' }), invalid(/^model must be a non-empty string, got ""$/)],
  [
    'model "", large',
    json({ model: '', padding: 'x'.repeat(200_000) }),
    invalid(/^model must be a non-empty string/),
  ],
  ['model " "', json({ model: ' ' }), ['model_not_found', /" "/]],
  ['stream "yes"', json({ stream: 'yes' }), invalid(/stream/)],
  ['an unknown role', json({ messages: [{ role: 'wizard', content: 'x' }] }), invalid(/messages\[0\]\.role/)],
  ['content 3', json({ messages: [USER, { role: 'user', content: 3 }] }), invalid(/messages\[1\]\.content/)],
  ['10,000 messages', json({ messages: Array.from({ length: 10_000 }, () => USER) }), 200],
  ['content of 3 MB', json({ messages: [{ role: 'user', content: 'x'.repeat(3_000_000) }] }), 200],
  ['content of 3 MB, no ASCII', json({ messages: [{ role: 'user', content: 'é'.repeat(1_500_000) }] }), 200],
  [
    'invalid UTF-8',
    Buffer.from('{"model":"mock-model","messages":[{"role":"user","content":"\xff\xfe"}]}', 'latin1'),
    invalid(/UTF-8/),
  ],
  ['nested as deep as may be', deep(63), 200],
  ['nested a level deeper', deep(64), invalid(/nested at most 64 levels/)],
  ['deep nesting', deep(100_000), invalid(/nested at most 64 levels/)],
  ['deep and never closed', '['.repeat(500_000), invalid(/nested at most 64 levels/)],
  [
    'a key twice',
    '{"model":"mock-model","model":"hidden-model","messages":[{"role":"user","content":"x"}]}',
    invalid(/model must be given once/),
  ],
  [
    'a key twice, escaped',
    '{"model":"mock-model","mod\\u0065l":"hidden-model","messages":[{"role":"user","content":"x"}]}',
    invalid(/model must be given once/),
  ],
  [
    '__proto__',
    '{"__proto__":{"model":"mock-model"},"messages":[{"role":"user","content":"x"}]}',
    invalid(/model/),
  ],
  ['truncated', json({}).slice(0, -5), invalid(/JSON/)],
  ['text after it', `${json({})} x`, invalid(/JSON/)],
  ['a number', '3', invalid(/object/)],
  ['an array', '[]', invalid(/object/)],
  ['null', 'null', invalid(/object/)],
  ['empty', '', invalid(/body/)],
  ['only spaces', '   ', invalid(/JSON|body/)],
  ['over the limit', json({ padding: 'x'.repeat(BODY_BYTES) }), ['request_too_large', /10485760|10,485,760/]],
];

void t.test('hostile bodies', async (t) => {
  const { gateway } = await startBed(t);
  // The dearest of these calls holds less: 3 MB as tokens at 1.5 per million, and 1,000 more.
  const { key } = await gateway.admin.customer({ credit: '1000.00' });
  const head = (more: string): string =>
    `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n` +
    `Content-Type: application/json\r\n${more}\r\n`;
  const sized = (body: string): string => `${head(`Content-Length: ${Buffer.byteLength(body)}\r\n`)}${body}`;

  for (const [name, body, expected] of CASES) {
    await t.test(name, async (t) => {
      const answer = await gateway.request(key, { method: 'POST', body });
      if (expected === 200) t.equal(answer.status, 200, answer.body.slice(0, 200));
      else t.match(checkError(t, answer, expected[0], name), expected[1]);
      t.equal((await gateway.chat(key, 'Hello')).status, 200, 'the next is served');
    });
  }

  await t.test('no body and no length', async (t) => {
    const connection = await RawConnection.open(gateway.port);
    connection.send(head(''));
    checkError(t, await connection.answer(), 'invalid_parameters', 'no body');
    connection.close();
  });

  await t.test('chunked, byte by byte', async (t) => {
    const connection = await RawConnection.open(gateway.port);
    const body = json({ messages: [{ role: 'user', content: 'Hellö' }] });
    const chunks = Array.from(Buffer.from(body), (byte) =>
      Buffer.concat([Buffer.from('1\r\n'), Uint8Array.of(byte), Buffer.from('\r\n')]),
    );
    connection.send(head('Transfer-Encoding: chunked\r\n'));
    await connection.sendByteByByte(Buffer.concat([...chunks, Buffer.from('0\r\n\r\n')]));
    const answer = await connection.answer();
    t.equal(answer.status, 200, answer.body.slice(0, 200));
    connection.close();
  });

  await t.test('with a length, byte by byte', async (t) => {
    const connection = await RawConnection.open(gateway.port);
    const body = json({});
    connection.send(head(`Content-Length: ${body.length}\r\n`));
    await connection.sendByteByByte(body);
    t.equal((await connection.answer()).status, 200);
    connection.close();
  });

  await t.test('Expect: 100-continue', async (t) => {
    const connection = await RawConnection.open(gateway.port);
    const body = json({});
    connection.send(head(`Content-Length: ${body.length}\r\nExpect: 100-continue\r\n`));
    // RFC 9110 10.1.1: a client may wait for the interim answer, and must go on without one after a while.
    await new Promise((resolve) => setTimeout(resolve, 100));
    connection.send(body);
    let answer = await connection.answer();
    if (answer.status === 100) answer = await connection.answer();
    t.equal(answer.status, 200, answer.body.slice(0, 200));
    connection.close();
  });

  await t.test('pipelined, answered at once', async (t) => {
    const connection = await RawConnection.open(gateway.port);
    const wrong = [{ temperature: 3 }, { top_p: 3 }, { max_tokens: -1 }];
    connection.send(wrong.map((more) => sized(json(more))).join(''));
    for (const more of wrong) {
      const field = Object.keys(more)[0]!;
      t.match(
        checkError(t, await connection.answer(), 'invalid_parameters', field),
        field,
        'each in its turn',
      );
    }
    connection.close();
  });

  // µWS closes a connection whose client does not wait for a response that is not there yet, so that
  // responses can't be mixed up; RFC 9112 9.3.2 has clients expect it.
  await t.test('pipelined, with an answer to wait for', async (t) => {
    const connection = await RawConnection.open(gateway.port);
    connection.send(sized(json({})) + sized(json({})));
    await t.rejects(connection.answer(), { message: /^closed before a whole answer; got: $/ });
    t.equal((await gateway.chat(key, 'Hello')).status, 200, 'the next is served');
  });

  await t.test('pipelined behind a bad one', async (t) => {
    const connection = await RawConnection.open(gateway.port);
    connection.send(sized('{') + sized(json({})));
    checkError(t, await connection.answer(), 'invalid_parameters', 'first');
    t.equal((await connection.answer()).status, 200, 'second');
    connection.close();
  });

  await t.test('a client that leaves in the middle of its body', async (t) => {
    const connection = await RawConnection.open(gateway.port);
    connection.send(head('Content-Length: 1000\r\n') + '{"model":');
    connection.close();
    t.equal((await gateway.chat(key, 'Hello')).status, 200);
  });

  t.equal(await gateway.stop(), 0);
  t.same(
    gateway.log().filter((line) => line.includes('"level":"error"')),
    [],
    'nothing of this is an error of ours',
  );
});
