/** Secrets in texts: every spelling, alignment and cut of them is overwritten, and nothing else. */
import t from 'tap';
import { SecretMask } from '#src/call-log/secret-mask.js';
import { generateKey } from '#src/registry/key-digest.js';
import { isOperatorToken } from '#src/registry/operators.js';
import { randomOf } from '../../support/random.js';

const random = randomOf(11);
const textOf = (alphabet: string, length: number): string =>
  Array.from({ length }, () => alphabet[Math.floor(random() * alphabet.length)]).join('');
const WORD = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-';
const VISIBLE = `${WORD}!"#$%&'()*+,./:;<=>?@[\\]^\`{|}~`;

const hidden = (mask: SecretMask, text: string, from = 0, to = Buffer.byteLength(text)): string => {
  const data = Buffer.from(text);
  mask.renew(0);
  mask.hide(data, from, to);
  if (data.length !== Buffer.byteLength(text)) throw new Error('the length changed');
  return data.toString();
};
const json = (text: string): string => JSON.stringify(text).slice(1, -1);
const lower = (text: string): string => text.replace(/%../g, (escape) => escape.toLowerCase());
const base64 = (text: string): string => Buffer.from(text).toString('base64');

/** The ways in which a text may stand in a body. */
const SPELLINGS: Readonly<Record<string, (text: string) => string>> = {
  plain: (text) => text,
  json,
  'json, slashes escaped': (text) => json(text).replaceAll('/', '\\/'),
  'json in json': (text) => json(json(text)),
  url: encodeURIComponent,
  'url, small letters': (text) => lower(encodeURIComponent(text)),
  form: (text) => new URLSearchParams([['', text]]).toString().slice(1),
  'form, small letters': (text) => lower(new URLSearchParams([['', text]]).toString().slice(1)),
  base64,
  base64url: (text) => Buffer.from(text).toString('base64url'),
  'base64 behind one byte': (text) => base64(`:${text}:`),
  'base64 behind two': (text) => base64(`u:${text}`),
  'base64 behind a name': (text) => base64(`somebody:${text} and more`),
  'base64 in json': (text) => json(base64(`ab${text}`)),
};

/** Of a secret in base64 its first and last character may stay: they have bits of what is beside it. */
function assertHidden(t: Tap, mask: SecretMask, secret: string, shown = ''): void {
  for (const [spelling, spelled] of Object.entries(SPELLINGS)) {
    const there = spelled(secret);
    const found = hidden(mask, `{"a":"é ${there} z"}`);
    const left = found.slice('{"a":"é '.length, -' z"}'.length);
    if (!found.startsWith('{"a":"é ') || !found.endsWith(' z"}')) t.fail(`${secret}, ${spelling}: ${found}`);
    const isBase64 = spelling.startsWith('base64');
    const open = isBase64 ? Buffer.from(left.replaceAll('*', '~'), 'base64').toString('latin1') : left;
    for (let at = shown.length; at + 4 <= secret.length; at++)
      if (open.includes(secret.slice(at, at + 4))) t.fail(`${secret}, ${spelling}: ${there} -> ${left}`);
    if (!/\*{8}/.test(left)) t.fail(`${secret}, ${spelling}: ${there} -> ${left}`);
  }
}
type Tap = Pick<typeof t, 'fail'>;

void t.test('known secrets, in every spelling', (t) => {
  const secrets = Array.from({ length: 100 }, (_, index) =>
    textOf(index % 2 === 0 ? WORD : VISIBLE, 8 + Math.floor(random() * 60)),
  );
  const mask = new SecretMask(() => secrets);
  for (const secret of secrets) assertHidden(t, mask, secret);
  t.pass('all of them');
  t.end();
});

void t.test('the form that is masked is that of the keys and tokens that are made', (t) => {
  const mask = new SecretMask(() => []);
  for (let round = 0; round < 50; round++)
    t.equal(hidden(mask, `${generateKey()}.`), `sk-${'*'.repeat(43)}.`);
  for (const [chars, isToken] of [
    [42, false],
    [43, true],
    [44, false],
  ] as const)
    t.equal(isOperatorToken(`tgop_${'a'.repeat(chars)}`), isToken, `${chars} characters`);
  t.equal(hidden(mask, `tgop_${'a'.repeat(43)}.`), `tgop_${'*'.repeat(43)}.`);
  t.end();
});

void t.test('keys of callers and tokens of operators that nobody tells of', (t) => {
  const mask = new SecretMask(() => []);
  for (const mark of ['sk-', 'tgop_'])
    for (let round = 0; round < 50; round++) assertHidden(t, mask, `${mark}${textOf(WORD, 43)}`, mark);
  t.equal(hidden(mask, `my sk-${'a'.repeat(43)}!`), `my sk-${'*'.repeat(43)}!`);
  for (const text of [
    'sk-short and tgop_short',
    `x${base64('sk-short is none')}`,
    'the desk-lamps-are-on-sale.',
  ])
    t.equal(hidden(mask, text), text);
  t.end();
});

void t.test('beside, within and across one another', (t) => {
  const secrets = ['abcdefgh12345', 'abcdefgh12345-longer', 'h12345-longer-still', 'é-ünïcode-sécret'];
  const mask = new SecretMask(() => secrets);
  t.equal(hidden(mask, 'a abcdefgh12345-longer-still b'), `a ${'*'.repeat(26)} b`);
  t.equal(hidden(mask, 'abcdefgh12345abcdefgh12345'), '*'.repeat(26));
  t.match(hidden(mask, 'a é-ünïcode-sécret b'), /^a \*{20} b$/);
  t.end();
});

void t.test('a text that was cut within a secret, and what is beside the text', (t) => {
  const secret = 'a-secret-of-some-length';
  const mask = new SecretMask(() => [secret]);
  for (let chars = 8; chars < secret.length; chars++)
    t.equal(hidden(mask, `x ${secret.slice(0, chars)}`), `x ${'*'.repeat(chars)}`);
  for (let chars = 8; chars < secret.length; chars++)
    t.equal(hidden(mask, `"${secret.slice(0, chars)}…" x`), `"${'*'.repeat(chars)}…" x`, 'as messages clip');
  t.equal(hidden(mask, `"${secret.slice(0, 12)}" x`), `"${secret.slice(0, 12)}" x`, 'it was not cut there');
  t.equal(hidden(mask, `x sk-${'k'.repeat(30)}`), `x sk-${'*'.repeat(30)}`);
  t.equal(hidden(mask, `got "sk-${'k'.repeat(37)}…".`), `got "sk-${'*'.repeat(37)}…".`, 'as messages clip');
  t.equal(hidden(mask, `got "sk-${'k'.repeat(7)}…".`), `got "sk-${'k'.repeat(7)}…".`);
  t.equal(hidden(mask, `sk-${'k'.repeat(30)}…`, 0, 34), `sk-${'k'.repeat(30)}…`, 'the ellipsis is not whole');
  const clipped = base64(`u:sk-${'k'.repeat(43)}`).slice(0, 40);
  t.match(hidden(mask, `got "${clipped}…"`), /^got "dTp.?\*{36,37}…"$/);
  const whole = base64(`u:sk-${'k'.repeat(43)}`);
  t.equal(hidden(mask, whole, 4), whole, 'it begins beside the text');
  t.equal(hidden(mask, `tgop_${'k'.repeat(43)}`, 0, 20), `tgop_${'*'.repeat(15)}${'k'.repeat(28)}`);
  t.equal(hidden(mask, `${secret}${secret}`, secret.length), `${secret}${'*'.repeat(secret.length)}`);
  t.end();
});

void t.test('a secret that was replaced is still looked for, ten minutes long', (t) => {
  let secrets = ['the-first-secret', 'another-secret'];
  const mask = new SecretMask(() => secrets);
  const at = (nowMs: number): string => {
    const data = Buffer.from('the-first-secret the-second-secret');
    mask.renew(nowMs);
    mask.hide(data, 0, data.length);
    return data.toString();
  };
  t.equal(at(0), `${'*'.repeat(16)} the-second-secret`);
  secrets = ['the-second-secret', 'another-secret'];
  t.equal(at(1_000), `${'*'.repeat(16)} ${'*'.repeat(17)}`);
  secrets = ['the-second-secret', 'yet-another-secret'];
  t.equal(at(600_000), `${'*'.repeat(16)} ${'*'.repeat(17)}`);
  secrets = ['the-second-secret'];
  t.equal(at(601_001), `the-first-secret ${'*'.repeat(17)}`);
  t.end();
});

void t.test('texts without secrets stay, and a thousand secrets cost a pass as a few do', (t) => {
  // Of the processor, so that it is not about who else wants one.
  const cpuMs = (secrets: readonly string[]): number => {
    const mask = new SecretMask(() => secrets);
    mask.renew(0);
    let least = Infinity;
    for (let round = 0; round < 7; round++) {
      const data = Buffer.from(text);
      const before = process.cpuUsage();
      mask.hide(data, 0, data.length);
      const { user, system } = process.cpuUsage(before);
      least = Math.min(least, (user + system) / 1_000);
      if (data.compare(Buffer.from(text)) !== 0) t.fail('changed');
    }
    return least;
  };
  const text = Array.from({ length: 20_000 }, () => textOf(`${WORD}      `, 50)).join('\n');
  const secrets = Array.from({ length: 1_000 }, () => textOf(WORD, 40));
  const [few, many] = [cpuMs(secrets.slice(0, 10)), cpuMs(secrets)];
  t.comment(`1 MB: ${few.toFixed(1)} ms with 10 secrets, ${many.toFixed(1)} ms with 1,000`);
  t.ok(many < 30 * few, `${few} and ${many} ms`);
  t.end();
});
