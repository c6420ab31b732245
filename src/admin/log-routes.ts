/**
 * `/admin/v1/log`: what a running gateway logs, seen and changed until it is started or reloaded. Main thread.
 */
import { Type, type Static } from 'typebox';
import { LOG_LEVELS } from '../telemetry/log.js';
import { CLOSED, defineRoute, type Route } from './route.js';

const LEVEL = Type.Enum([...LOG_LEVELS], { description: 'least severe events that are written' });
const ACCESS_LOG = Type.Boolean({ description: 'whether a line is written for each chat call' });
const SAMPLE_PERCENT = Type.Integer({
  minimum: 0,
  maximum: 100,
  description: 'share of the calls that went well which the access log has',
});

export const LogView = Type.Object(
  { level: LEVEL, access_log: ACCESS_LOG, sample_percent: SAMPLE_PERCENT },
  CLOSED,
);
export type LogView = Static<typeof LogView>;

const LogChange = Type.Object(
  {
    level: Type.Optional(LEVEL),
    access_log: Type.Optional(ACCESS_LOG),
    sample_percent: Type.Optional(SAMPLE_PERCENT),
  },
  CLOSED,
);
export type LogChange = Static<typeof LogChange>;

export const LOG_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/log',
    summary: 'Show what is logged.',
    responseSchema: LogView,
    answer: (_, { changeLog }) => changeLog({}),
  }),
  defineRoute({
    method: 'PUT',
    path: '/log',
    summary:
      'Change what is logged, at once and in all threads; what is not named stays. A reload or a restart puts the settings in force again.',
    body: LogChange,
    responseSchema: LogView,
    answer: ({ body }, { changeLog }) => changeLog(body),
  }),
];
