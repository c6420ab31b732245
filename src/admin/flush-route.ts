/**
 * `/admin/v1/flush`: what was settled until now, on disk, for whoever reads the books themselves. Main thread.
 */
import { Type } from 'typebox';
import { CLOSED, defineRoute, type Route } from './route.js';

const FlushView = Type.Object(
  {
    flushed: Type.Boolean({
      description: 'false where a process did not answer in time, or the disk takes nothing now',
    }),
  },
  CLOSED,
);

export const FLUSH_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'POST',
    path: '/flush',
    summary: 'Write the charges of all calls that have ended to disk, as happens each flush_interval_ms.',
    answerSchema: FlushView,
    answer: async (_input, { flushBooks }) => ({ flushed: await flushBooks() }),
  }),
];
