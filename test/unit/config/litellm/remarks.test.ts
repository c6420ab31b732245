/** Nothing of a file is lost in silence: a value that is read changes what is written, or gets a remark. */
import t, { type Test } from 'tap';
import { importLitellm } from '#src/config/litellm/import.js';
import { ImportMap } from '#src/config/litellm/remarks.js';

type Params = Readonly<Record<string, unknown>>;

/** One of each kind of provider. */
const ENTRIES: readonly Params[] = [
  { model: 'openai/gpt-4o' },
  { model: 'azure/gpt-4o', api_base: 'https://r.openai.azure.com', api_version: '2024-10-21' },
  { model: 'anthropic/claude-sonnet-4-5' },
  { model: 'vertex_ai/gemini-2.5-pro', vertex_project: 'p', vertex_location: 'europe-west4' },
  { model: 'bedrock/anthropic.claude-3', aws_region_name: 'us-east-1' },
];
/** Of each kind of YAML, right for some settings and odd for all others. */
const VALUES = ['7', 0.5, 1e-7, true, { x: 'y' }];

/** What an import says of an entry. */
function importOf(params: Params, info: Params): string {
  const model_list = [
    { model_name: 'm', litellm_params: params, model_info: info },
    // So that a weight means something, and a model is left if the first entry is left out.
    { model_name: 'm', litellm_params: { model: 'openai/gpt-4o', weight: 3 } },
  ];
  const { yaml, remarks } = importLitellm(JSON.stringify({ model_list }), 'x');
  return JSON.stringify([yaml, remarks.map(({ path, text }) => [path, text])]);
}

/** The names that imports of the entries look for, in whichever map. */
function namesLookedFor(t: Test): ReadonlySet<string> {
  // `capture` calls it as a method.
  // oxlint-disable-next-line typescript/unbound-method
  const peeked = t.capture(ImportMap.prototype, 'peek', ImportMap.prototype.peek);
  for (const params of ENTRIES) importOf({ ...params, api_key: 'sk-1' }, {});
  peeked.restore();
  return new Set(peeked().map(({ args: [name] }) => name));
}

void t.test('each value that an import reads is written or has a remark', (t) => {
  const names = namesLookedFor(t);
  t.ok(names.size > 40, `${names.size} names`);
  for (const params of ENTRIES) {
    const without = importOf(params, {});
    for (const name of names)
      for (const value of VALUES) {
        const more = { [name]: value };
        const shown = `${name}: ${JSON.stringify(value)} of ${String(params.model)}`;
        if (!Object.hasOwn(params, name) && importOf({ ...params, ...more }, {}) === without) t.fail(shown);
        if (params === ENTRIES[0] && importOf(params, more) === without) t.fail(`model_info.${shown}`);
      }
  }
  t.end();
});
