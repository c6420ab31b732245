/**
 * Schemas of the admin interface's responses about the gateway itself: its settings, a reload, hosts, and
 * what was reset or cleared. (views.ts has those of accounts, keys, usage and the catalogue.) routes.ts
 * builds the responses, openapi.ts publishes schemas and descriptions, the console reads them.
 *
 * Must hold: nothing of Node is imported, because the console compiles this file for the browser (`tsc -p
 * src/console`, which `npm run lint` runs). Test of the published schemas: test/unit/admin/openapi.test.ts.
 */
import { Type, type Static } from 'typebox';
import { CLOSED, orNull } from './views.js';

const modelsView = (description: string) =>
  Type.Object({ models: Type.Array(Type.String(), { description, examples: [['gpt-4o-mini']] }) }, CLOSED);

export const UpstreamResetView = modelsView('the models whose upstreams are called again');
export type UpstreamResetView = Static<typeof UpstreamResetView>;

export const CacheClearView = modelsView('the models whose cached responses were removed');
export type CacheClearView = Static<typeof CacheClearView>;

export const SettingView = Type.Object(
  {
    setting: Type.String({ examples: ['models.gpt-4o-mini.price.input'] }),
    value: Type.String({ description: 'as text; a secret is not shown' }),
    origin: Type.String({
      description: 'a line of the file, a variable of the environment, an option of the command, or default',
      examples: ['tollgate.yaml:12', 'TOLLGATE_PORT', '--port', 'default'],
    }),
    live: Type.Boolean({ description: 'whether a reload can change it; a restart is needed otherwise' }),
  },
  CLOSED,
);
export type SettingView = Readonly<Static<typeof SettingView>>;

const SettingText = Type.Union([Type.String(), Type.Null()], {
  description: 'as text; a secret is not shown; null where there is none, or a whole entry comes or goes',
});

export const SettingChangeView = Type.Object(
  { setting: Type.String(), before: SettingText, after: SettingText },
  CLOSED,
);
export type SettingChangeView = Readonly<Static<typeof SettingChangeView>>;

export const ReloadView = Type.Object(
  {
    dry_run: Type.Boolean(),
    applied: Type.Array(Type.String(), {
      description: 'settings that took effect, or with dry_run would',
      examples: [['models.gpt-4o-mini.price', 'plans.free (removed)']],
    }),
    restart_needed: Type.Array(Type.String(), {
      description: 'settings that differ from what runs and wait for a restart',
      examples: [['listen.port']],
    }),
    changes: Type.Optional(
      Type.Array(SettingChangeView, {
        description: 'only with dry_run: the values of what would change, and of what waits for a restart',
      }),
    ),
    replacing: Type.Optional(
      Type.Integer({
        description: 'only with restart: gateway processes that are replaced one by one from now on',
      }),
    ),
  },
  CLOSED,
);
export type ReloadView = Static<typeof ReloadView>;

export const HostView = Type.Object(
  {
    id: Type.String({ description: 'made once for its data directory' }),
    self: Type.Boolean({ description: 'the host that answers' }),
    state: Type.Union([Type.Literal('heard'), Type.Literal('silent'), Type.Literal('awaited')], {
      description:
        'heard: in the last 20 s; silent: it is gone, or cut off; awaited: the sharing server has lost data, and lends nothing before this host is back or forgotten',
    }),
    last_heard: orNull(Type.Integer({ description: 'Unix seconds' })),
  },
  CLOSED,
);
export type HostView = Static<typeof HostView>;
