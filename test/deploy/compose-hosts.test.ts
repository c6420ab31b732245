/** Two gateways, their Valkey and the balancer in front: what belongs together does. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import t from 'tap';
import { parse } from 'yaml';
import { loadSettings } from '#src/config/load.js';
import { EXIT_GRACE_MS } from '#src/core/limits.js';
import { NO_COMPOSE, composeConfig, deployed } from './compose-config.js';
import { NO_HAPROXY } from './haproxy.js';
import { composeFaults } from './schemas.js';

interface Service {
  readonly image: string;
  readonly stop_grace_period?: string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly volumes: readonly string[];
}

const file = parse(readFileSync('deploy/compose.hosts.yaml', 'utf8'), { merge: true }) as {
  readonly services: Readonly<Record<string, Service>>;
};
const gateways = Object.entries(file.services).filter(([name]) => name.startsWith('gateway'));

void t.test('it is what the Compose specification allows', (t) => {
  t.same(composeFaults(file), []);
  t.equal(gateways.length, 2);
  t.end();
});

void t.test('Compose itself takes it', NO_COMPOSE, (t) => {
  const text = deployed('compose.hosts.yaml');
  const { status, output, refusal } = composeConfig(text);
  t.equal(status, 0, refusal);
  const { services } = parse(output) as typeof file;
  t.same(Object.keys(services).sort(), Object.keys(file.services).sort());
  for (const [name] of gateways) t.match(services[name]?.environment, { VALKEY_PASSWORD: 'a-word' }, name);
  t.match(composeConfig(text, { OPENAI_API_KEY: 'a-key' }).refusal, /a password of your choice/);
  t.end();
});

void t.test('each gateway has this version, shared settings and books of its own', (t) => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  for (const [, gateway] of gateways) {
    t.equal(gateway.image, `tollgate:${version}`);
    t.ok(gateway.volumes.includes('./tollgate.hosts.yaml:/etc/tollgate/tollgate.yaml:ro'));
    const environment = Object.fromEntries(
      Object.keys(gateway.environment ?? {}).map((name) => [name, 'a-word']),
    );
    const { settings } = loadSettings(
      { config: 'deploy/tollgate.hosts.yaml' },
      { environment, workingDirectory: resolve('.') },
    );
    t.match(settings.sharing, { url: 'redis://valkey:6379/0', password: 'a-word', namespace: 'tollgate' });
    const graceMs = Number.parseInt(gateway.stop_grace_period ?? '', 10) * 1_000;
    t.ok(graceMs >= settings.drain_timeout_ms + EXIT_GRACE_MS, 'streams in flight may end before the kill');
  }
  const folders = gateways.map(([, { volumes }]) =>
    volumes.find((path) => path.endsWith('/var/lib/tollgate')),
  );
  t.equal(new Set(folders).size, gateways.length);
  t.end();
});

void t.test('the balancer knows them all', NO_HAPROXY, (t) => {
  const path = 'deploy/haproxy.cfg';
  const { status, stderr } = spawnSync('haproxy', ['-c', '-f', path], { encoding: 'utf8' });
  t.equal(status, 0, stderr);
  const servers = [...readFileSync(path, 'utf8').matchAll(/^ +server (\S+) (\S+):8080$/gm)];
  for (const [name] of gateways)
    t.equal(servers.filter(([, server, host]) => server === name && host === name).length, 2, name);
  t.equal(servers.length, 2 * gateways.length);
  t.end();
});
