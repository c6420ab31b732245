/**
 * Token counts against OpenAI's own tokenizer, the package `tiktoken`, on prose, code, Chinese, emoji and
 * chat messages.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import t from 'tap';
import { countTokens } from '#src/upstream/token-count.js';
import { textCounterOf } from '#src/upstream/tokenizer.js';
import { newSeed, pick, randomOf } from '../../support/random.js';

/** What is used of the judge. No special tokens are allowed or forbidden: they are text. */
interface Judge {
  get_encoding(name: string): {
    encode(text: string, allowedSpecial: string[], disallowedSpecial: string[]): Uint32Array;
    free(): void;
  };
}

function installedJudge(): Judge | undefined {
  try {
    return createRequire(import.meta.url)('tiktoken') as Judge;
  } catch {
    return undefined;
  }
}

const judge = installedJudge();
const skip = judge === undefined ? 'the package tiktoken is not installed' : false;
const TOKENIZERS = ['o200k_base', 'cl100k_base'] as const;
const RANDOM_TEXTS = 2_000;

/** Lines of a table; token-count.test.ts has what cutting long runs may cost. */
const LONG_RUN = /(.)\1{99,}/g;

const CHINESE =
  '白日依山尽，黄河入海流。欲穷千里目，更上一层楼。\n人工智能正在改变世界：从语音识别、机器翻译到自动驾驶，' +
  '应用越来越广。請問 2024 年 GDP 增長了多少？「約百分之五。」價格：￥1,299.00（含稅）。こんにちは、世界。안녕하세요 세계!';
const EMOJI =
  '\u{1f600}\u{1f680} family: \u{1f468}\u200d\u{1f469}\u200d\u{1f467}\u200d\u{1f466} flags \u{1f1e9}\u{1f1ea}\u{1f1e8}\u{1f1f3}, ' +
  'skin \u{1f44d}\u{1f3fd}, keycap 1\ufe0f\u20e3, heart \u2764\ufe0f\u200d\u{1f525}; \u{1f9d1}\u{1f3ff}\u200d\u{1f4bb}!!! \u2728\u2728\u2728';
const ODDITIES = [
  '',
  ' ',
  '\n',
  '\r\n\r\n',
  '\t\t  x',
  "I'LL we'd DON'T 'tis",
  '1234567890 3.14159 1e-10 0xDEADBEEF',
  '<|endoftext|><|im_start|>user<|im_sep|>',
  'naïve façade Ünïcødé e\u0301 \u00a0\u2003\u200b\u2060',
  'مرحبا بالعالم שלום עולם नमस्ते दुनिया สวัสดีชาวโลก',
  'https://example.com/a/b?c=d&e=f#g user@example.com',
  '\u0000\u0001\u007f',
  'aaaa    bbbb\n\n\n\ncccc   \n   ',
  '∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β)',
];

/** The program's own sources and words: prose and code that change with it. */
function corpus(): Map<string, string> {
  const texts = new Map([
    ['Chinese', CHINESE],
    ['emoji', EMOJI],
    ['prose', readFileSync('README.md', 'utf8').replace(LONG_RUN, '$1')],
    ['json', readFileSync('package-lock.json', 'utf8').slice(0, 50_000)],
    ...ODDITIES.map((text): [string, string] => [JSON.stringify(text), text]),
  ]);
  for (const folder of ['docs', 'src/upstream', 'src/ledger', 'test/unit/upstream']) {
    for (const name of readdirSync(folder).filter((file) => /\.(?:md|c?ts)$/.test(file)))
      texts.set(name, readFileSync(join(folder, name), 'utf8').replace(LONG_RUN, '$1'));
  }
  return texts;
}

for (const tokenizer of TOKENIZERS) {
  void t.test(`${tokenizer}: texts`, { skip }, (t) => {
    const encoding = judge!.get_encoding(tokenizer);
    const judged = (text: string): number => encoding.encode(text, [], []).length;
    const counted = (text: string): number => textCounterOf(tokenizer).count(text);
    let tokens = 0;
    for (const [name, text] of corpus()) {
      const wanted = judged(text);
      tokens += wanted;
      t.equal(counted(text), wanted, name.replaceAll('#', ''));
    }
    t.ok(tokens > 50_000, `${tokens} tokens`);

    const seed = newSeed();
    t.comment(`seed ${seed}`);
    const next = randomOf(seed);
    const letters = Array.from(`${CHINESE}${EMOJI}${'etaoin shrdlu,.{}();=<>'.repeat(10)}`);
    const pieces = [...letters, ...ODDITIES, 'the', ' the', '\n'];
    for (let count = 0; count < RANDOM_TEXTS; count++) {
      const text = Array.from({ length: Math.floor(next() * 60) }, () => pick(next, pieces)).join('');
      if (counted(text) !== judged(text)) t.equal(counted(text), judged(text), JSON.stringify(text));
    }
    encoding.free();
    t.end();
  });

  void t.test(`${tokenizer}: what is a blank to JavaScript alone, or to Unicode alone`, { skip }, (t) => {
    const encoding = judge!.get_encoding(tokenizer);
    for (const text of [
      '\ufeff',
      '\ufeffusing System;',
      'a\n\ufeffb',
      ' \ufeff x',
      '\u0085',
      'a \u0085b',
      ' \u0085\n x',
    ]) {
      t.equal(
        textCounterOf(tokenizer).count(text),
        encoding.encode(text, [], []).length,
        JSON.stringify(text),
      );
    }
    encoding.free();
    t.end();
  });

  void t.test(`${tokenizer}: chat messages`, { skip }, (t) => {
    const encoding = judge!.get_encoding(tokenizer);
    const judged = (text: string): number => encoding.encode(text, [], []).length;
    const seed = newSeed();
    t.comment(`seed ${seed}`);
    const next = randomOf(seed);
    const texts = [...corpus().values()].map((text) => text.slice(0, 2_000).replace(/[\ud800-\udbff]$/, ''));
    for (let count = 0; count < 200; count++) {
      const messages = Array.from({ length: 1 + Math.floor(next() * 6) }, () => ({
        role: pick(next, ['system', 'user', 'assistant']),
        content: pick(next, texts),
        ...(next() < 0.2 ? { name: pick(next, ['anna', 'example_user', 'Zoë']) } : {}),
      }));
      // The cookbook's num_tokens_from_messages, written down a second time.
      let wanted = 3;
      for (const message of messages) {
        wanted += 3;
        for (const [field, text] of Object.entries(message))
          wanted += judged(text) + (field === 'name' ? 1 : 0);
      }
      const usage = countTokens({
        tokenizer,
        body: JSON.stringify({ model: 'm', messages }),
        completionForm: 'none',
        texts: new Map(),
        completion: '',
        completionBytes: 0,
        relayedBytes: 0,
      });
      if (usage.promptTokens !== wanted || usage.source !== 'counted')
        t.same(usage, { promptTokens: wanted }, JSON.stringify(messages).slice(0, 300));
    }
    encoding.free();
    t.pass('200 prompts');
    t.end();
  });
}
