/** Headers of an entry: import.test.ts and import.credentials.test.ts have more of them. */
import t from 'tap';
import { imported } from './support.js';

void t.test('a header that is not carried over has a remark, and the others pass the check', (t) => {
  const { upstreams, lines } = imported(t, {
    model: 'openai/o',
    organization: 'org-1',
    extra_headers: {
      'x-team': 'Équipe',
      'x-note': 'two\nlines',
      'x-long': 'a'.repeat(4_097),
      'x-token': 'none',
      'OpenAI-Organization': 'org-2',
      'X-Same': 'first',
      'x-same': 'second',
    },
  });
  t.same(upstreams[0]!.headers, { 'OpenAI-Organization': 'org-2', 'X-Same': 'first' });
  const path = 'model_list[0].litellm_params.extra_headers';
  for (const name of ['x-team', 'x-note', 'x-long'])
    t.ok(lines.includes(`${path}.${name}: wanted is printable ASCII text of at most 4096 characters`), name);
  t.ok(lines.includes(`${path}.x-token: a word that stands for no secret: the header was left out`));
  t.ok(lines.includes(`${path}.x-same: a header that is given twice`));
  t.ok(lines.includes('model_list[0].litellm_params.organization: a header that is given twice'));
  t.notMatch(lines.join(), /config check|Équipe/);
  t.end();
});

void t.test('a header with the name of a member of every object', (t) => {
  // An object literal would take the first name for the prototype.
  const names = ['__proto__', 'constructor', 'toString'];
  const headers = Object.fromEntries(names.map((name) => [name, 'x']));
  const { upstreams, lines } = imported(t, { model: 'openai/o', extra_headers: headers });
  t.same(Object.entries(upstreams[0]!.headers), Object.entries(headers));
  t.notMatch(lines.join(), /extra_headers|config check/);
  t.end();
});
