import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import t from 'tap';
import { parse } from 'yaml';
import { loadSettings } from '#src/config/load.js';
import { EXIT_GRACE_MS } from '#src/core/limits.js';
import { NO_COMPOSE, composeConfig, deployed } from './compose-config.js';
import { composeFaults } from './schemas.js';

interface ComposeFile {
  readonly services: {
    readonly gateway: {
      readonly image: string;
      readonly stop_grace_period: string;
      readonly environment: Readonly<Record<string, string>>;
      readonly volumes: readonly string[];
    };
  };
}

const read = (path: string): ComposeFile => parse(readFileSync(path, 'utf8')) as ComposeFile;

void t.test('compose.yaml is what the Compose specification allows', (t) => {
  const file = read('deploy/compose.yaml');
  t.same(composeFaults(file), []);
  const { gateway } = file.services;
  t.not(
    composeFaults({ services: { gateway: { ...gateway, read_onyl: true } } }).length,
    0,
    'no misspelt field',
  );
  t.not(composeFaults({ services: { gateway: { ...gateway, ports: 8080 } } }).length, 0, 'nor a wrong type');
  t.end();
});

void t.test('Compose itself takes it', NO_COMPOSE, (t) => {
  const text = deployed('compose.yaml');
  const { status, output, refusal } = composeConfig(text);
  t.equal(status, 0, refusal);
  const { gateway } = (parse(output) as ComposeFile).services;
  t.match(gateway.environment, { OPENAI_API_KEY: 'a-key' });
  const wanting = composeConfig(text, {});
  t.not(wanting.status, 0, 'not without the key of the provider');
  t.match(wanting.refusal, /the key of your provider/);
  t.not(composeConfig(text.replace('read_only:', 'read_onyl:')).status, 0, 'no misspelt field');
  t.end();
});

void t.test('it runs this version with settings that the gateway takes', (t) => {
  const { gateway } = read('deploy/compose.yaml').services;
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  t.equal(gateway.image, `tollgate:${version}`);
  t.ok(gateway.volumes.includes('./tollgate.yaml:/etc/tollgate/tollgate.yaml:ro'));

  const environment = Object.fromEntries(Object.keys(gateway.environment).map((name) => [name, 'a-key']));
  const { settings } = loadSettings(
    { config: 'deploy/tollgate.yaml' },
    { environment, workingDirectory: resolve('.') },
  );
  t.equal(settings.models[0]?.upstreams[0]?.key, 'a-key', 'the provider’s key comes from the environment');
  const graceMs = Number.parseInt(gateway.stop_grace_period, 10) * 1_000;
  t.ok(graceMs >= settings.drain_timeout_ms + EXIT_GRACE_MS, 'streams in flight may end before the kill');
  t.end();
});
