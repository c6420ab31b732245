import t from 'tap';
import { encodeModels } from '#src/request/model-routes.js';

void t.test('models are listed in their order and found by their ids and aliases', (t) => {
  const bodies = encodeModels([
    {
      id: 'b "quoted"',
      aliases: ['b', 'toString'],
      ownedBy: 'x',
      createdSeconds: 1_700_000_000,
      serves: ['chat'],
    },
    { id: '__proto__', aliases: [], ownedBy: 'ü', createdSeconds: 0, serves: ['embeddings'] },
  ]);
  const first = {
    id: 'b "quoted"',
    object: 'model',
    created: 1_700_000_000,
    owned_by: 'x',
    serves: ['chat'],
  };
  const second = { id: '__proto__', object: 'model', created: 0, owned_by: 'ü', serves: ['embeddings'] };
  t.same(JSON.parse(bodies.list), { object: 'list', data: [first, second] });
  t.same(JSON.parse(bodies.byName.get('b "quoted"') ?? ''), first);
  t.same(JSON.parse(bodies.byName.get('__proto__') ?? ''), second);
  t.equal(bodies.byName.get('toString'), bodies.byName.get('b "quoted"'), 'an alias shows its model');
  t.equal(bodies.byName.get('valueOf'), undefined);
  t.end();
});

void t.test('a plan without models has an empty list', (t) => {
  const bodies = encodeModels([]);
  t.equal(bodies.list, '{"object":"list","data":[]}');
  t.equal(bodies.byName.size, 0);
  t.end();
});
