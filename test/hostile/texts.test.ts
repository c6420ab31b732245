/**
 * No text makes the counting of tokens slow, and none makes that of the next one slow: all kinds of runs, by
 * the CPU that they take a megabyte, after as many different words as would fill any cache.
 */
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { countTokens } from '#src/upstream/token-count.js';
import { newSeed, randomOf } from '../support/random.js';

/**
 * What any text may cost. The worst take 0.4 s here, prose 0.1; the machine has other work, of which caches
 * know.
 */
const CPU_SECONDS_PER_MB_MAX = 1.5;
const TEXT_BYTES = process.env.TOLLGATE_HOSTILE_FULL === undefined ? 40_000 : 1_000_000;
/** More words than a cache would hold. */
const WORDS = 60_000;
const TOKENIZERS = ['o200k_base', 'cl100k_base'] as const;

const seed = newSeed();
const next = randomOf(seed);

/** `piece` again and again, to TEXT_BYTES. */
function filled(piece: () => string): string {
  const pieces: string[] = [];
  for (let bytes = 0; bytes < TEXT_BYTES;) {
    const one = piece();
    pieces.push(one);
    bytes += Buffer.byteLength(one);
  }
  return pieces.join('');
}
const repeated = (text: string): string => filled(() => text);
const below = (bound: number): number => Math.floor(next() * bound);
const charOf = (chars: string[]): string => chars[below(chars.length)]!;
const wordOf = (chars: string[], length: number): string =>
  Array.from({ length }, () => charOf(chars)).join('');

const SMALL = Array.from('abcdefghijklmnopqrstuvwxyz');
const CAPITALS = SMALL.map((letter) => letter.toUpperCase());
const SIGNS = Array.from('!#$%&()*+,-.:;<=>?@[]^_{|}~');
const BLANKS = Array.from(' \t\n\r\u00a0\u2003\u3000\u0085');
/** One of each kind of character that the splitting expressions tell apart. */
const CLASSES = [
  'a',
  'A',
  'ǅ',
  'ʰ',
  '龘',
  '\u0301',
  '7',
  'Ⅷ',
  ' ',
  '\n',
  '\r',
  '/',
  '!',
  "'",
  '\u200d',
  '\u{1f468}',
  '\ud800',
  '\ufeff',
  '\u0085',
];

function kinds(): Map<string, string> {
  const han = (): string => String.fromCharCode(0x4e00 + below(20_000));
  const texts = new Map<string, string>([
    ["contractions 's", repeated("'s")],
    ["contractions 'LL", repeated("'LL've'Re")],
    ['no contractions', repeated("''s'")],
    ['emoji joined', repeated('\u{1f468}\u200d\u{1f469}\u200d\u{1f467}')],
    ['marks behind a letter', `a${repeated('\u0301')}`],
    ['special tokens', repeated('<|endoftext|>')],
    ['random han', filled(han)],
    ['random han and capitals', filled(() => han() + charOf(CAPITALS))],
    ['random signs', filled(() => charOf(SIGNS))],
    ['random blanks', filled(() => charOf(BLANKS))],
    ['random digits', filled(() => String(below(10)))],
    ['random letters without an end', filled(() => charOf(SMALL))],
    ['random capitals without an end', filled(() => charOf(CAPITALS))],
    ['random emoji', filled(() => String.fromCodePoint(0x1f300 + below(0x700)))],
    ['random planes', filled(() => String.fromCodePoint(0x10000 + below(0xfffff)))],
    ['random letters of plane 2', filled(() => String.fromCodePoint(0x20000 + below(0xa000)))],
    ['random units', filled(() => String.fromCharCode(below(0x10000)))],
    ['random bytes', filled(() => Buffer.from(Array.from({ length: 1_000 }, () => below(256))).toString())],
    ['random classes', filled(() => charOf(CLASSES))],
    ['base64', filled(() => Buffer.from(Array.from({ length: 999 }, () => below(256))).toString('base64'))],
  ]);
  for (const [index, one] of CLASSES.entries()) {
    texts.set(`run of class ${index}`, repeated(one));
    for (const other of CLASSES.slice(index + 1))
      texts.set(`classes ${index} ${CLASSES.indexOf(other)}`, repeated(one + other));
  }
  // At the bound of a run and beside it.
  for (const length of [3, 8, 20, 126, 127, 128, 129, 512]) {
    texts.set(
      `unique words of ${length}`,
      filled(() => ` ${wordOf(SMALL, length)}`),
    );
    texts.set(
      `unique signs of ${length}`,
      filled(() => `a${wordOf(SIGNS, length)}\n`),
    );
    texts.set(`blanks of ${length}`, repeated(`${' '.repeat(length)}x`));
    texts.set(`newlines of ${length}`, repeated(`${'\n'.repeat(length)}x`));
    texts.set(`capitals of ${length} and one that is none`, repeated(`${'A'.repeat(length)}ʰ7`));
    texts.set(`han of ${length} and a capital`, repeated(`${'龘'.repeat(length)}A`));
  }
  return texts;
}

const costOf = (
  tokenizer: (typeof TOKENIZERS)[number],
  text: string,
): { tokens: number; seconds: number } => {
  const body = JSON.stringify({ messages: [{ role: 'user', content: text }] });
  const before = process.cpuUsage();
  const { promptTokens, source } = countTokens({
    tokenizer,
    body,
    completionForm: 'none',
    texts: new Map(),
    completion: '',
    completionBytes: 0,
    relayedBytes: 0,
  });
  const { user, system } = process.cpuUsage(before);
  t.equal(source, 'counted');
  return { tokens: promptTokens, seconds: (user + system) / 1e6 };
};

const prose =
  readFileSync('README.md', 'utf8') +
  ['docs', 'src/ledger']
    .flatMap((folder) => readdirSync(folder).map((name) => join(folder, name)))
    .filter((path) => /\.(?:md|c?ts)$/.test(path))
    .map((path) => readFileSync(path, 'utf8'))
    .join('');

for (const tokenizer of TOKENIZERS) {
  void t.test(tokenizer, (t) => {
    t.comment(`seed ${seed}`);
    const best = (): number => Math.min(...[1, 2, 3, 4].map(() => costOf(tokenizer, prose).seconds));
    const before = best();
    costOf(tokenizer, Array.from({ length: WORDS }, () => wordOf(SMALL, 9)).join(' '));
    let worst = { name: '', perMb: 0 };
    let count = 0;
    for (const [name, text] of kinds()) {
      const mb = Buffer.byteLength(text) / 1e6;
      let { seconds } = costOf(tokenizer, text);
      // Once more where other work was in between.
      if (seconds / mb > CPU_SECONDS_PER_MB_MAX / 2)
        seconds = Math.min(seconds, costOf(tokenizer, text).seconds);
      const perMb = seconds / mb;
      if (perMb > CPU_SECONDS_PER_MB_MAX) t.fail(`${name}: ${perMb.toFixed(2)} s of CPU a MB`);
      if (perMb > worst.perMb) worst = { name, perMb };
      count += 1;
    }
    t.comment(`${count} kinds, worst ${worst.perMb.toFixed(2)} s of CPU a MB: ${worst.name}`);
    const after = best();
    t.comment(`prose ${(before * 1e3).toFixed(0)} ms before, ${(after * 1e3).toFixed(0)} ms after`);
    t.ok(after < 2 * before + 0.02, 'prose counts at its speed after all of them');
    t.end();
  });
}
