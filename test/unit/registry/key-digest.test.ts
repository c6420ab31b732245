import { createHash } from 'node:crypto';
import t from 'tap';
import { digestOf, DIGEST_BYTES, generateKey, isWellFormedKey, KEY_CHARS } from '#src/registry/key-digest.js';

void t.test('a generated key is well-formed, and another each time', (t) => {
  const keys = new Set(Array.from({ length: 1_000 }, generateKey));
  t.equal(keys.size, 1_000);
  for (const key of keys) t.ok(isWellFormedKey(key) && key.length === KEY_CHARS);
  t.end();
});

void t.test('what is not `sk-` and 43 characters of base64url is not well-formed', (t) => {
  const body = 'Az09-_'.padEnd(43, 'x');
  t.ok(isWellFormedKey(`sk-${body}`));
  const wrong = [
    '',
    'sk-',
    body,
    `sk-${body.slice(1)}`,
    `sk-${body}x`,
    `SK-${body}`,
    `sk-${body.slice(1)}+`,
    `sk-${body.slice(1)}/`,
    `sk-${body.slice(1)}=`,
    `sk-${body.slice(1)}é`,
    ` sk-${body}`,
    `sk-${body} `,
    `sk-${body}\n`,
    `sk-${body.slice(1)}\0`,
  ];
  for (const text of wrong) t.notOk(isWellFormedKey(text), JSON.stringify(text));
  t.end();
});

void t.test('the digest is SHA-256 of the text, 32 bytes', (t) => {
  const key = generateKey();
  t.equal(digestOf(key).length, DIGEST_BYTES);
  t.ok(digestOf(key).equals(createHash('sha256').update(key).digest()));
  t.end();
});

void t.test('a key that callers have stays valid, and is found by the digest that is on disk', (t) => {
  const key = `sk-${'A'.repeat(43)}`;
  t.ok(isWellFormedKey(key));
  t.equal(KEY_CHARS, 46);
  t.equal(digestOf(key).toString('hex'), 'd40a82f736e89291055c8dcbddec74ad06f26425073957cce3a31c553758e683');
  t.end();
});
