/** Each file of which the settings are made is watched: also one that a setting of tomorrow names. */
import t from 'tap';
import { loadSettings } from '#src/config/load.js';
import { type Settings, settingsDeclaration } from '#src/config/schema.js';
import { filesOf } from '#src/supervisor/file-watch.js';

/** The settings that name a file, and whether the settings have its content. */
const FILE_SETTINGS = {
  'listen.tls.cert_file': true,
  'listen.tls.key_file': true,
  'admin.oidc.client_secret_file': true,
  'models.upstreams.key_file': true,
  'models.upstreams.credentials_file': false,
  'models.upstreams.ca_file': true,
  'notify.secret_file': true,
};

/** The paths of the declared settings whose name says that they name a file. */
function* fileSettingsOf(declaration: unknown, path: readonly string[] = []): Generator<string> {
  if (typeof declaration !== 'object' || declaration === null) return;
  const { properties, items } = declaration as { properties?: object; items?: unknown };
  if (items !== undefined) yield* fileSettingsOf(items, path);
  for (const [name, declared] of Object.entries(properties ?? {})) {
    if (name.endsWith('_file')) yield [...path, name].join('.');
    yield* fileSettingsOf(declared, [...path, name]);
  }
}

void t.test('every file that the settings are read from is watched, once', (t) => {
  t.same([...fileSettingsOf(settingsDeclaration)].sort(), Object.keys(FILE_SETTINGS).sort());
  const { settings } = loadSettings({}, { environment: {}, workingDirectory: t.testdir() });
  const [model] = settings.models;
  const [upstream] = model!.upstreams;
  const at = (setting: keyof typeof FILE_SETTINGS): string => `/${setting}`;
  const named = {
    ...settings,
    models: [1, 2].map(() => ({
      ...model!,
      upstreams: [
        {
          ...upstream!,
          key_file: at('models.upstreams.key_file'),
          ca_file: at('models.upstreams.ca_file'),
          credentials_file: at('models.upstreams.credentials_file'),
        },
      ],
    })),
    notify: { ...settings.notify, secret_file: at('notify.secret_file') },
    admin: { ...settings.admin, oidc: { client_secret_file: at('admin.oidc.client_secret_file') } },
    listen: {
      ...settings.listen,
      tls: { cert_file: at('listen.tls.cert_file'), key_file: at('listen.tls.key_file') },
    },
  } as unknown as Settings;
  const watched = Object.entries(FILE_SETTINGS).flatMap(([setting, isRead]) =>
    isRead ? [`/${setting}`] : [],
  );
  const files = filesOf('/tollgate.yaml', named);
  t.equal(files[0], '/tollgate.yaml', 'the most important first');
  t.same(files.slice(1).sort(), watched.sort());
  t.same(filesOf(undefined, settings), []);
  t.end();
});
