/** What the name of a model on Bedrock tells of it: family, version, and whether it takes cache points. */
import t from 'tap';
import { factsOf, publicName, V4_5, V4_7 } from '#src/providers/bedrock/models.js';

const ARN = 'arn:aws:bedrock:eu-west-1:123456789012:';

/** Ids of Bedrock, as LiteLLM lists them. A version is 100 times the major one and the minor. */
const MODELS: readonly (readonly [name: string, family: string, version: number, caches: boolean])[] = [
  ['anthropic.claude-instant-v1', 'claude', 100, false],
  ['anthropic.claude-v2:1', 'claude', 200, false],
  ['anthropic.claude-3-haiku-20240307-v1:0', 'claude', 300, false],
  ['anthropic.claude-3-5-sonnet-20241022-v2:0', 'claude', 305, true],
  ['apac.anthropic.claude-3-7-sonnet-20250219-v1:0', 'claude', 307, true],
  ['anthropic.claude-opus-4-20250514-v1:0', 'claude', 400, true],
  ['us.anthropic.claude-sonnet-4-5-20250929-v1:0', 'claude', V4_5, true],
  ['global.anthropic.claude-opus-4-7', 'claude', V4_7, true],
  ['anthropic.claude-opus-4-10-v1:0', 'claude', 410, true],
  [`${ARN}inference-profile/eu.anthropic.claude-sonnet-4-20250514-v1:0`, 'claude', 400, true],
  // Without a version a Claude counts as the newest, as in anthropic/models.ts.
  ['anthropic.claude-mythos-preview', 'claude', Infinity, true],
  ['us.anthropic.claude-next', 'claude', Infinity, true],
  ['us.amazon.nova-pro-v1:0', 'nova', 0, true],
  ['us.amazon.nova-2-lite-v1:0', 'nova-2', 0, true],
  ['us.deepseek.r1-v1:0', 'deepseek-r1', 0, false],
  ['deepseek.v3-v1:0', 'deepseek', 0, false],
  ['openai.gpt-oss-120b-1:0', 'gpt-oss', 0, false],
  ['openai.gpt-6-sol', 'gpt', 0, false],
  ['meta.llama4-scout-17b-instruct-v1:0', 'other', 0, false],
  [`${ARN}application-inference-profile/a1b2c3d4e5f6`, 'hidden', 0, true],
];

void t.test('a name tells family, version and cache points', (t) => {
  for (const [name, family, version, allowsCachePoints] of MODELS) {
    t.match(factsOf(name), { family, version, allowsCachePoints }, name);
    t.equal(factsOf(name).claude !== undefined, family === 'claude', name);
  }
  t.end();
});

void t.test('callers see no account of an operator in the name of a model', (t) => {
  for (const [name] of MODELS) {
    const shown = publicName(name);
    t.notMatch(shown, /arn:|\d{12}/, name);
    t.ok(shown === 'bedrock' || name.endsWith(shown), name);
  }
  t.end();
});
