/** Addresses as they are shown, and the secrets that they hold. */
import t from 'tap';
import {
  secretsInPath,
  secretsInQuery,
  withoutPathSecrets,
  withoutUrlPath,
  withoutUrlSecrets,
} from '#src/core/secret-url.js';

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
    ['https://h/sk-proxy-0a1b2c3d4e5f6a7b/v1?key=abc', 'https://h/(secret)/v1?(secret)'],
    ['https://me:pass@h/t/0123456789abcdef0', 'https://(secret)@h/t/(secret)'],
    ['https://me:12#34@h/v1', 'https://(secret)@h/v1'],
    ['https://pass#word@h/v1?key=abc', 'https://(secret)@h/v1?(secret)'],
    ['https://h/v1#key=abc', 'https://h/v1#(secret)'],
    ['https://h/v1#a?key=abc', 'https://h/v1#(secret)'],
    ['https://h/v1?a#b@c', 'https://h/v1?(secret)'],
    ['api.example/v1?key=abc', 'api.example/v1?(secret)'],
    ['api.example/v1?a=b&key=abc#x', 'api.example/v1?(secret)'],
    ['api.example:443/v1?api_key=abc', 'api.example:443/v1?(secret)'],
    ['me:pass@h/v1?key=abc', '(secret)@h/v1?(secret)'],
    ['//h/v1?key=abc', '//h/v1?(secret)'],
    ['echo:', 'echo:'],
    ['what is this? a=b', 'what is this? a=b'],
    ['what? a@b', 'what? a@b'],
    ['', ''],
  ] as const)
    t.equal(withoutUrlSecrets(text), shown, text);
  t.equal(withoutUrlPath('https://hooks.example/T/B/x'), 'https://hooks.example/(secret)');
  t.equal(withoutUrlPath('https://hooks.example/?x'), 'https://hooks.example/(secret)');
  t.equal(withoutUrlPath('https://hooks.example'), 'https://hooks.example');
  t.end();
});

void t.test('what looks like a secret in a path', (t) => {
  for (const path of [
    '/openai/deployments/gpt-4o-mini-2024-07-18',
    '/v1/projects/my-project-123456/locations/us-central1/publishers/google',
    '/model/anthropic.claude-3-5-sonnet-20241022-v2%3A0/invoke',
    '/accounts/fireworks/models/qwen2p5-coder-32b-instruct',
    '/api/compatible-mode/v1beta1/chat/completions',
    '/inference/deepseek-r1-distill-llama-70b-preview',
    '',
    '/',
  ])
    t.equal(withoutPathSecrets(path), path);
  for (const secret of [
    'sk-ant-api03-Zx9Kq2Lm8Wn4Rt6Y',
    'a1B2c3D4e5F6g7H8',
    '550e8400-e29b-41d4-a716-446655440000',
    '9f86d081884c7d659a2feaa0c55ad015',
  ]) {
    t.equal(withoutPathSecrets(`/proxy/${secret}/v1`), '/proxy/(secret)/v1', secret);
    t.ok(secretsInPath(`/proxy/${secret}/v1?x`).some((part) => part.length >= 12 && secret.includes(part)));
  }
  t.end();
});

void t.test('the secrets of a query', (t) => {
  t.same(secretsInQuery('/v1'), []);
  t.same(secretsInQuery('/v1?api-version=2025-01-01&key=short'), []);
  t.same(secretsInQuery('https://h/?a=b&API_KEY=0123456789#key=x'), ['0123456789']);
  t.same(secretsInQuery('/?token=a%20b%20c%20d%20e'), ['a%20b%20c%20d%20e', 'a b c d e']);
  t.end();
});
