/**
 * The declarations themselves, judged by TypeBox: the reader fills what they declare, and each says what it
 * is.
 */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { Check } from 'typebox/value';
import type { Declaration } from '#src/config/annotations.js';
import { settingsDeclaration, settingsSchema, settingsSchemaText } from '#src/config/schema.js';
import { exampleYaml } from '#src/config/examples.js';
import { worldOf } from './support.js';

void t.test('what the loader makes, TypeBox accepts', (t) => {
  t.ok(Check(settingsSchema, worldOf(t, {}).load().settings), 'the demo');
  t.notOk(Check(settingsSchema, {}), 'and it does refuse');
  t.end();
});

void t.test('the example passes with its variable and names it without', (t) => {
  const world = worldOf(t, { 'tollgate.yaml': exampleYaml('schema.json') });
  const { settings } = world.load({}, { OPENAI_API_KEY: 'sk-test' });
  t.ok(Check(settingsSchema, settings));
  t.equal(settings.models[0]?.upstreams[0]?.key, 'sk-test');
  t.equal(settings.models[0]?.price.cached_input, '0.075');
  t.match(world.faults(), [
    /^tollgate\.yaml:\d+: models\[0\]\.upstreams\[0\]\.key: .* OPENAI_API_KEY is not set$/,
  ]);
  t.end();
});

void t.test('the example repeats the defaults of the settings that have one', (t) => {
  const world = worldOf(t, {});
  const valuesOf = (text: string): Map<string, string> => {
    const { inForce } = world.load({ config: 'tollgate.yaml', text }, { OPENAI_API_KEY: 'sk-test' });
    return new Map(inForce.map(({ setting, value }) => [setting, value]));
  };
  const defaults = valuesOf(`models: [{ id: gpt-4o-mini, upstreams: [{ url: "https://api.openai.com/v1" }] }]
plans: [{ id: free, requests_per_minute: 1, calls_per_day: 1 }]`);
  const others = [...valuesOf(exampleYaml('schema.json'))].filter(
    ([name, value]) => value !== defaults.get(name),
  );
  t.same(
    others.map(([setting]) => setting.replace(/^(?:models|plans)\.[^.]+\./, '')),
    [
      'aliases',
      'owned_by',
      'price.input',
      'price.output',
      'price.cached_input',
      'upstreams[0].key',
      'upstreams[0].model',
      'requests_per_minute',
      'calls_per_day',
    ],
  );
  t.end();
});

void t.test('the schema in the package is the one of the settings', (t) => {
  const file = new URL('../tollgate.schema.json', import.meta.resolve('#src/config/schema.js'));
  t.equal(readFileSync(file, 'utf8'), settingsSchemaText());
  t.match(exampleYaml('./a.json'), /^# yaml-language-server: \$schema=\.\/a\.json\n/);
  t.end();
});

/** The keywords that settings-reader.ts checks or that describe a setting; `~…` are TypeBox's own. */
const KEYWORDS: ReadonlySet<string> = new Set([
  ...['type', 'enum', 'default', 'properties', 'required', 'patternProperties', 'maxProperties', 'items'],
  ...['minItems', 'maxItems', 'minimum', 'maximum', 'pattern', 'minLength', 'maxLength', '~refine'],
  ...['description', 'x-unit', 'x-environment', 'x-want', 'x-hint', 'x-applies'],
  ...['x-secret', 'x-secret-path', 'x-names', 'x-names-refused', 'x-names-secret'],
]);
/** Keywords that settings-reader.ts checks in maps and lists alone, or in other values alone. */
const OF_TYPE: Readonly<Record<string, string>> = {
  maxProperties: 'object',
  patternProperties: 'object',
  minItems: 'array',
  maxItems: 'array',
  minimum: 'integer',
  maximum: 'integer',
  pattern: 'string',
  minLength: 'string',
  maxLength: 'string',
  '~refine': 'string',
};

void t.test('settings-reader.ts checks every keyword that a setting is declared by', (t) => {
  const unknown: string[] = [];
  const walk = (declaration: Declaration, path: string): void => {
    const { type, properties = {}, patternProperties = {}, items } = declaration;
    for (const keyword of Object.keys(declaration))
      if (!KEYWORDS.has(keyword) || (OF_TYPE[keyword] ?? type) !== type) unknown.push(`${path}: ${keyword}`);
    for (const [name, inner] of Object.entries({ ...properties, ...patternProperties }))
      walk(inner, `${path}.${name}`);
    if (items !== undefined) walk(items, `${path}[]`);
  };
  walk(settingsDeclaration, 'settings');
  t.same(unknown, []);
  t.end();
});

void t.test('every setting has a description, every number bounds, every text a rule in words', (t) => {
  let settings = 0;
  const walk = (declaration: Declaration, path: string): void => {
    settings++;
    t.ok(declaration.description, `${path} has a description`);
    if (declaration.type === 'integer') {
      t.type(declaration.minimum, 'number', path);
      t.type(declaration.maximum, 'number', path);
    } else if (declaration.enum === undefined) {
      t.type(declaration['x-want'], 'string', path);
    }
    for (const [name, property] of Object.entries(declaration.properties ?? {}))
      walk(property, `${path}.${name}`);
    if (declaration.items !== undefined) walk(declaration.items, `${path}[]`);
    for (const value of Object.values(declaration.patternProperties ?? {})) walk(value, `${path}.*`);
  };
  walk(settingsDeclaration, 'settings');
  t.ok(settings > 50, 'and all were seen');
  t.end();
});

void t.test('the printed schema asks for what has no default alone', (t) => {
  const printed = JSON.parse(settingsSchemaText()) as Declaration;
  t.same(printed.required, ['models', 'plans']);
  t.same(printed.properties?.models?.items?.required, ['id', 'upstreams']);
  t.same(printed.properties?.models?.items?.properties?.price?.required, ['input', 'output']);
  t.same(printed.properties?.models?.items?.properties?.upstreams?.items?.required, []);
  t.notMatch(JSON.stringify(printed), /"~/, "TypeBox's own words stay out");
  t.end();
});
