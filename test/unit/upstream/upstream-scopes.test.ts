/** Scopes keep their slots and ids; a reload changes limits; there are not too many. */
import t from 'tap';
import type { Settings } from '#src/config/schema.js';
import { UPSTREAM_SCOPES_MAX } from '#src/core/limits.js';
import { asUpstreamScopeIndex } from '#src/core/units.js';
import { UpstreamScopes } from '#src/upstream/upstream-scopes.js';

const settingsOf = (...upstreams: readonly object[]): Settings =>
  ({
    models: upstreams.map((upstream, at) => ({
      id: `m${at}`,
      upstreams: [{ url: 'http://h/v1', headers: {}, quota_scope: 'key', ...upstream }],
    })),
  }) as unknown as Settings;
const scopesIn = (scopes: UpstreamScopes, settings: Settings) => {
  const scopeOf = scopes.assign(settings);
  return settings.models.map(({ id, upstreams }) => scopeOf(upstreams[0]!, id));
};

void t.test('one url and key is one scope, with one id everywhere', (t) => {
  const settings = settingsOf({ key: 'a', requests_per_minute: 5 }, { key: 'a' }, { key: 'b' });
  const [one, same, none] = scopesIn(new UpstreamScopes(), settings);
  t.match(one, { index: 0, limits: { requestsPerMinute: 5, tokensPerMinute: undefined } });
  t.equal(same, one);
  t.equal(none, undefined);
  t.match(one?.id, /^up_[0-9a-f]{20}$/);
  const elsewhere = scopesIn(
    new UpstreamScopes(),
    settingsOf({ key: 'c', calls_in_flight: 1 }, { key: 'a', calls_in_flight: 9 }),
  );
  t.equal(elsewhere[1]?.id, one?.id);
  t.equal(elsewhere[1]?.index, 1);
  t.end();
});

void t.test('a reload keeps slots and changes limits', (t) => {
  const scopes = new UpstreamScopes();
  scopesIn(scopes, settingsOf({ key: 'a', calls_in_flight: 1 }, { key: 'b', calls_in_flight: 2 }));
  const [b, c] = scopesIn(
    scopes,
    settingsOf({ key: 'b', calls_in_flight: 3 }, { key: 'c', calls_in_flight: 4 }),
  );
  t.match([b, c], [{ index: 1, limits: { callsInFlight: 3 } }, { index: 2 }]);
  t.match(scopes.scopeAt(asUpstreamScopeIndex(1)), { limits: { callsInFlight: 3 } });
  t.match(scopesIn(scopes, settingsOf({ key: 'a', calls_in_flight: 1 }))[0], { index: 0 });
  t.equal(scopes.scopeAt(asUpstreamScopeIndex(3)), undefined);
  t.end();
});

void t.test('too many scopes since the start are refused', (t) => {
  const scopes = new UpstreamScopes();
  const many = (first: number, count: number): Settings =>
    settingsOf(...Array.from({ length: count }, (_, n) => ({ key: `k${first + n}`, calls_in_flight: 1 })));
  scopes.assign(many(0, UPSTREAM_SCOPES_MAX));
  t.same(scopes.problemsOf(many(0, 10)), []);
  t.match(scopes.problemsOf(many(UPSTREAM_SCOPES_MAX, 1)), [/restart/]);
  t.throws(() => scopes.assign(many(UPSTREAM_SCOPES_MAX, 1)), /problemsOf is asked/);
  t.equal(scopes.scopeAt(asUpstreamScopeIndex(UPSTREAM_SCOPES_MAX)), undefined);
  t.end();
});
