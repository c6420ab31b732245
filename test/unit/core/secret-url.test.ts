/** Addresses as they are shown, and the secrets that they hold. */
import t from 'tap';
import { secretsInQuery, withoutUrlPath, withoutUrlSecrets } from '#src/core/secret-url.js';

void t.test('what is shown of an address', (t) => {
  for (const [text, shown] of [
    ['https://h:1/v1', 'https://h:1/v1'],
    ['https://h/@org/v1', 'https://h/@org/v1'],
    ['https://h/v1?key=abc', 'https://h/v1?(secret)'],
    ['https://h?a@b', 'https://h?(secret)'],
    ['https://me:pass@h/v1?a=b', 'https://(secret)@h/v1?(secret)'],
    ['redis://:p@ss@h:6379/0', 'redis://(secret)@h:6379/0'],
    ['redis://:p/a?s#s@h:6379/0', 'redis://(secret)@h:6379/0'],
    ['redis-cluster://me:pass@h:1,i:2', 'redis-cluster://(secret)@h:1,i:2'],
    ['default:s3cret@valkey:6379', '(secret)@valkey:6379'],
    ['echo:', 'echo:'],
    ['what? a@b', 'what? a@b'],
    ['', ''],
  ] as const)
    t.equal(withoutUrlSecrets(text), shown, text);
  t.equal(withoutUrlPath('https://hooks.example/T/B/x'), 'https://hooks.example/(secret)');
  t.equal(withoutUrlPath('https://hooks.example/?x'), 'https://hooks.example/(secret)');
  t.equal(withoutUrlPath('https://hooks.example'), 'https://hooks.example');
  t.end();
});

void t.test('the secrets of a query', (t) => {
  t.same(secretsInQuery('/v1'), []);
  t.same(secretsInQuery('/v1?api-version=2025-01-01&key=short'), []);
  t.same(secretsInQuery('https://h/?a=b&API_KEY=0123456789#key=x'), ['0123456789']);
  t.same(secretsInQuery('/?token=a%20b%20c%20d%20e'), ['a%20b%20c%20d%20e', 'a b c d e']);
  t.end();
});
