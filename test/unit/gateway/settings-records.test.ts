/** Which doors besides chat an upstream at a cloud has, by the name of its model; and who gets keys. */
import t from 'tap';
import { catalogOf } from '#src/gateway/catalog-records.js';
import { listenerSettingsOf, routesOf } from '#src/gateway/settings-records.js';
import { CredentialPositions } from '#src/providers/credentials/credential-spec.js';
import { factsOf } from '#src/providers/bedrock/models.js';
import { UpstreamNames } from '#src/telemetry/upstream-names.js';
import { UpstreamScopes } from '#src/upstream/upstream-scopes.js';
import { worldOf } from '../config/support.js';

const CLOUDS = {
  vertex: 'provider: vertex, region: global, project: p-1',
  bedrock: 'provider: bedrock, region: eu-west-1',
};

void t.test('Messages pass to the models that a cloud serves by that protocol, and to no others', (t) => {
  const doorsOf = (cloud: keyof typeof CLOUDS, model: string): string[] => {
    const yaml = `models:
  - id: m1
    price: { input: "1", output: "2" }
    upstreams: [{ ${CLOUDS[cloud]}, model: "${model}" }]
plans:
  - { id: p1, requests_per_minute: 60, calls_per_day: 1000 }
`;
    const { settings } = worldOf(t, { 'tollgate.yaml': yaml }).load();
    const routes = routesOf(settings, new UpstreamNames(), new UpstreamScopes(), new CredentialPositions());
    return Object.keys(routes[0]!.targets[0]!.doors);
  };
  for (const model of ['claude-opus-4-5@20251101', 'publishers/anthropic/models/claude-haiku-4-5'])
    t.ok(doorsOf('vertex', model).includes('messages'), model);
  // Vertex serves these by another protocol, or as Gemini's: their calls are translated.
  for (const model of ['gemini-like-claude-3', 'publishers/acme/models/claude-tune', 'Claude-x'])
    t.strictSame(doorsOf('vertex', model), [], model);
  for (const model of [
    'eu.anthropic.claude-sonnet-4-5-20250929-v1:0',
    'acme.Claude-v1',
    'amazon.nova-pro-v1:0',
  ]) {
    const isClaude = factsOf(model).family === 'claude';
    t.equal(doorsOf('bedrock', model).includes('messages'), isClaude, model);
  }
  t.end();
});

void t.test("no provider's key is in what listeners get", (t) => {
  const yaml = `models:
  - id: m1
    price: { input: "1", output: "2" }
    cache: { ttl_seconds: 60 }
    upstreams:
      - { url: "https://a.example/v1", key: "\${KEY}", headers: { x-api-key: "\${HEADER}" } }
      - { url: "https://b.example/v1", key_file: key }
plans:
  - { id: p1, requests_per_minute: 60, calls_per_day: 1000 }
`;
  const secrets = { KEY: 'secret-of-the-key', HEADER: 'secret-of-the-header' };
  const world = worldOf(t, { 'tollgate.yaml': yaml, key: 'secret-of-the-file' });
  const { settings } = world.load({}, secrets);
  const routes = routesOf(settings, new UpstreamNames(), new UpstreamScopes(), new CredentialPositions());
  const textOf = (value: unknown): string =>
    JSON.stringify(value, (_, member: unknown) => (typeof member === 'bigint' ? String(member) : member));
  const all = [...Object.values(secrets), 'secret-of-the-file'];
  for (const secret of all) t.match(textOf(routes), secret, 'workers have it');
  t.notMatch(textOf(listenerSettingsOf(settings, catalogOf(settings))), /secret/);
  t.end();
});
