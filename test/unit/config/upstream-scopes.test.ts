/** Which upstreams share their limits, and limits that contradict each other. */
import t from 'tap';
import { limitsByScope, scopesOf, scopeTextOf } from '#src/config/upstream-scopes.js';
import { worldOf, type World } from './support.js';

const model = (id: string, ...upstreams: readonly string[]): string =>
  `  - { id: ${id}, upstreams: [${upstreams.map((upstream) => `{ ${upstream} }`).join(', ')}] }\n`;
const fileOf = (...models: readonly string[]): string =>
  `models:\n${models.join('')}plans:\n  - { id: p1, requests_per_minute: 60, calls_per_day: 1000 }\n`;
const ENVIRONMENT = { K: 'sk-1', SAME: 'sk-1', L: 'sk-2' };
const at = (more: string, key = 'K'): string => `url: "http://h/v1", key: "\${${key}}", ${more}`;

const faults = (world: World): readonly string[] => world.faults({}, ENVIRONMENT);

void t.test('limits that differ for one url and key name both places', (t) => {
  const one = worldOf(t, {
    'tollgate.yaml': fileOf(
      model('a', at('requests_per_minute: 5')),
      model('b', at('tokens_per_minute: 9'), at('requests_per_minute: 6', 'SAME')),
    ),
  });
  t.same(faults(one), [
    'tollgate.yaml:3: models[1].upstreams[1].requests_per_minute: got 6, but models[0].upstreams[0].requests_per_minute says 5 for the same url and key, which share one limit (quota_scope)',
  ]);
  const two = worldOf(t, {
    'tollgate.yaml': fileOf(
      model('a', at('calls_in_flight: 5')),
      model('b', at('calls_in_flight: 5, quota_scope: model')),
    ),
  });
  t.match(faults(two), [/^tollgate.yaml:3: models\[1\].*quota_scope: got model, but .*quota_scope says key/]);
  t.end();
});

void t.test('limits by model of models whose ids are wrong are not compared', (t) => {
  for (const id of ['""', '7', '[a]', 'é']) {
    const world = worldOf(t, {
      'tollgate.yaml': fileOf(
        model(id, at('requests_per_minute: 5, quota_scope: model')),
        model(id, at('requests_per_minute: 6, quota_scope: model')),
      ),
    });
    const wrong = faults(world);
    t.equal(wrong.length, 2, id);
    t.ok(
      wrong.every((fault) => /models\[\d\]\.id: /.test(fault)),
      wrong.join('\n'),
    );
  }
  t.end();
});

void t.test('other keys, other addresses and limits by model may differ', (t) => {
  const world = worldOf(t, {
    'tollgate.yaml': fileOf(
      model('a', at('requests_per_minute: 5'), at('requests_per_minute: 6', 'L')),
      model('b', 'url: "http://h/v2", key: "${K}", requests_per_minute: 7'),
      model('c', at('requests_per_minute: 8, quota_scope: model').replace('/v1', '/v3')),
      model('d', at('requests_per_minute: 9, quota_scope: model').replace('/v1', '/v3')),
    ),
  });
  const { settings } = world.load({}, ENVIRONMENT);
  const limits = [...limitsByScope(settings.models).values()].map((scope) => scope.requests_per_minute);
  t.same(limits, [5, 6, 7, 8, 9]);
  t.end();
});

void t.test('a limit that one upstream of a scope leaves out is that of the others', (t) => {
  const world = worldOf(t, {
    'tollgate.yaml': fileOf(
      model('a', at('requests_per_minute: 5')),
      model('b', at('tokens_per_minute: 9', 'SAME')),
      model('c', at('queue_ms: 1')),
      model('d', 'url: "http://h/v1"'),
    ),
  });
  const { models } = world.load({}, ENVIRONMENT).settings;
  t.same([...limitsByScope(models).values()], [{ requests_per_minute: 5, tokens_per_minute: 9 }]);
  const texts = models.map(({ id, upstreams }) => scopeTextOf(upstreams[0]!, id));
  t.equal(new Set(texts.slice(0, 3)).size, 1);
  t.not(texts[3], texts[0]);
  t.end();
});

void t.test('an upstream without limits counts by what those with limits count by', (t) => {
  const same = 'model: same';
  const world = worldOf(t, {
    'tollgate.yaml': fileOf(
      model('a', at(`${same}, requests_per_minute: 5, quota_scope: model`)),
      model('b', at(same, 'SAME')),
      model('c', at('model: other')),
      model('d', at('requests_per_minute: 6', 'L')),
      model('e', at('quota_scope: model', 'L')),
    ),
  });
  const { models } = world.load({}, ENVIRONMENT).settings;
  const limits = limitsByScope(models);
  const scopeOf = scopesOf(models);
  t.same(
    models.map(({ id, upstreams }) => limits.get(scopeOf(upstreams[0]!, id))?.requests_per_minute),
    [5, 5, undefined, 6, 6],
  );
  t.end();
});

void t.test('a key in a header or in the query is a key', (t) => {
  const base = { url: 'http://h/v1/', quota_scope: 'key' } as const;
  const text = (more: object): string => scopeTextOf({ ...base, ...more }, 'm');
  t.equal(text({}), text({ url: 'http://h/v1' }));
  t.equal(text({ headers: { 'x-title': 'a' } }), text({}));
  t.not(text({ headers: { 'API-Key': 'a' } }), text({ headers: { 'api-key': 'b' } }));
  t.equal(text({ headers: { 'API-Key': 'a' } }), text({ headers: { 'api-key': 'a' } }));
  t.not(text({ url: 'http://h/v1?key=1' }), text({ url: 'http://h/v1?key=2' }));
  // Hosts with another version share limits by the text: these were secrets later, and never part of it.
  for (const name of ['apikey', 'x-apikey', 'x_api_key', 'api_token'])
    t.equal(text({ headers: { [name]: 'a' } }), text({}), name);
  t.end();
});

void t.test('the text of a scope is the same in every version', (t) => {
  // Literal: hosts of an earlier version share limits by exactly these texts.
  for (const [upstream, text] of [
    [{ url: 'https://h:8443/v1/?a=1', key: 'k' }, '["https://h:8443","/v1","?a=1","k",[],null]'],
    [{ url: 'http://h', model: 'there', quota_scope: 'model' }, '["http://h","","",null,[],"there"]'],
    [{ url: 'http://h/v1', quota_scope: 'model' }, '["http://h","/v1","",null,[],"m"]'],
    [
      { url: 'http://h/v1', region: 'r', headers: { 'X-Token': 'b', Cookie: 'a', 'x-note': 'c' } },
      '["http://h","/v1","",null,[["cookie","a"],["x-token","b"]],null]',
    ],
    [
      { provider: 'vertex', region: 'us', project: 'p' },
      '["https://us-aiplatform.googleapis.com","","",null,[],null,"vertex","us","p",""]',
    ],
    [
      { provider: 'bedrock', region: 'r', profile: 'x' },
      '["https://bedrock-runtime.r.amazonaws.com","","",null,[],null,"bedrock","r","","x"]',
    ],
  ] as const)
    t.equal(scopeTextOf({ quota_scope: 'key', ...upstream }, 'm'), text);
  t.end();
});

void t.test('a file is read without its keys too', (t) => {
  const world = worldOf(t, {
    'tollgate.yaml': fileOf(model('a', at('requests_per_minute: 5'), at('requests_per_minute: 6', 'L'))),
  });
  t.equal(world.load({ secrets: false }, {}).settings.models.length, 1);
  t.end();
});
