/** The mock's options: texts to values, and what is refused. */
import t from 'tap';
import {
  FAULTS,
  MOCK_DEFAULTS,
  MOCK_FLAGS,
  USAGE_MODES,
  mockOptionsOfFlags,
  optionsWithQuery,
} from '#src/mock/mock-options.js';

void t.test('a query string is laid over the base, name by name', (t) => {
  const options = optionsWithQuery(
    MOCK_DEFAULTS,
    'status=429&retry_after=2&first_byte_ms=10&echo=1&event_crlf=0',
  );
  t.match(options, { status: 429, retryAfter: '2', firstByteMs: 10, echo: true, eventCrlf: false });
  t.equal(options.bytes, MOCK_DEFAULTS.bytes);
  t.same(optionsWithQuery(options, ''), options, 'an empty one changes nothing');
  t.equal(optionsWithQuery(options, 'status=200').retryAfter, '2', 'the base shows through');
  t.ok(Object.isFrozen(options));
  t.end();
});

void t.test('every word of a list is taken, and no other', (t) => {
  for (const fault of FAULTS) t.equal(optionsWithQuery(MOCK_DEFAULTS, `fault=${fault}`).fault, fault);
  for (const usage of USAGE_MODES) t.equal(optionsWithQuery(MOCK_DEFAULTS, `usage=${usage}`).usage, usage);
  t.throws(() => optionsWithQuery(MOCK_DEFAULTS, 'fault=reset'), {
    message: /^fault wants one of reset-before, .*, got "reset"$/,
  });
  t.end();
});

void t.test('numbers at their bounds', (t) => {
  for (const good of ['bytes=0', 'chunks=1', 'status=200', 'status=599', 'split=1', 'chunk_ms=3600000']) {
    t.doesNotThrow(() => optionsWithQuery(MOCK_DEFAULTS, good), good);
  }
  for (const bad of [
    'bytes=-1',
    'chunks=0',
    'status=199',
    'status=600',
    'split=0',
    'bytes=1.5',
    'bytes=',
    'echo=2',
  ]) {
    t.throws(() => optionsWithQuery(MOCK_DEFAULTS, bad), { message: / wants .*, got / }, bad);
  }
  t.throws(() => optionsWithQuery(MOCK_DEFAULTS, 'stat=1'), {
    message: /^no option "stat"; there are bytes, /,
  });
  t.end();
});

void t.test('flags of the command line give the same', (t) => {
  t.same(mockOptionsOfFlags({ host: '::1', status: '503', echo: true }), {
    ...MOCK_DEFAULTS,
    status: 503,
    echo: true,
  });
  t.throws(() => mockOptionsOfFlags({ chunks: 'x' }), {
    message: /^chunks wants an integer from 1 to 1000000, got "x"$/,
  });
  t.ok(
    MOCK_FLAGS.some(({ flags, help }) => flags === '--first-byte-ms <ms>' && help.endsWith('(default: 0)')),
  );
  t.ok(MOCK_FLAGS.some(({ flags }) => flags === '--echo'));
  t.end();
});
