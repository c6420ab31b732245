/**
 * `/admin/v1/status`: how the gateway is. Main thread.
 */
import { Type } from 'typebox';
import { defineRoute, type Route } from './route.js';

/** Empty where a command answers from the store, without a gateway. */
const StatusView = Type.Object({}, { additionalProperties: true });

export const STATUS_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/status',
    summary: 'Show threads, calls in flight, outcomes and the state of the books.',
    answerSchema: StatusView,
    answer: (_, { status }) => status(),
  }),
];
