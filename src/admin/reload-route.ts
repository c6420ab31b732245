/**
 * `/admin/v1/reload`: the settings read anew, or only what that would change. Main thread.
 */
import { Type, type Static } from 'typebox';
import { ProxyError } from '../core/errors.js';
import { CLOSED, defineRoute, type Route } from './route.js';

const Value = Type.Union([Type.String(), Type.Null()], {
  description: 'as text; a secret is not shown; null where there is none, or a whole entry comes or goes',
});

const SettingChangeView = Type.Object({ setting: Type.String(), before: Value, after: Value }, CLOSED);

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

export const RELOAD_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'POST',
    path: '/reload',
    summary: 'Read the settings anew and apply what needs no restart; refused whole where they are wrong.',
    body: Type.Object(
      {
        dry_run: Type.Optional(
          Type.Boolean({ description: 'only tell what would change; false by default' }),
        ),
        restart: Type.Optional(
          Type.Boolean({
            description:
              'then replace the gateway processes one by one, for settings that need a restart or a new version; false by default',
          }),
        ),
      },
      CLOSED,
    ),
    responseSchema: ReloadView,
    answer: async ({ body }, { reload }): Promise<ReloadView> => {
      const { dry_run: dryRun = false, restart = false } = body;
      const {
        applied,
        restartNeeded,
        changes = [],
        problems: errors,
        replacing,
      } = await reload({ dryRun, restart });
      if (errors.length > 0) throw new ProxyError('invalid_parameters', 'downstream', errors.join('\n'));
      return {
        dry_run: dryRun,
        applied: [...applied],
        restart_needed: [...restartNeeded],
        ...(dryRun ? { changes: [...changes] } : {}),
        ...(restart ? { replacing } : {}),
      };
    },
  }),
];
