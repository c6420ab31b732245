/**
 * `/admin/v1/settings`: what the gateway runs with, and where each value came from. Main thread.
 */
import { Type } from 'typebox';
import { listOf, listSchema } from './fields.js';
import { CLOSED, defineRoute, type Route } from './route.js';

const SettingView = Type.Object(
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

export const SETTINGS_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/settings',
    summary: 'Show every setting in force and where its value came from.',
    answerSchema: listSchema(SettingView),
    answer: (_, { settings }) =>
      listOf(
        settings().map((setting) => ({ ...setting })),
        undefined,
      ),
  }),
];
