/**
 * `/admin/v1/hosts`: the hosts that share accounts, limits and money with this one. Main thread.
 */
import { Type, type Static } from 'typebox';
import { conflict } from '../registry/record-id.js';
import { listOf, listSchema } from './fields.js';
import { CLOSED, defineRoute, type AdminContext, type Route } from './route.js';

const HostView = Type.Object(
  {
    id: Type.String({ description: 'made once for its data directory' }),
    self: Type.Boolean({ description: 'the host that answers' }),
    state: Type.Union([Type.Literal('heard'), Type.Literal('silent'), Type.Literal('awaited')], {
      description:
        'heard: in the last 20 s; silent: it is gone, or cut off; awaited: the sharing server has lost data, and lends nothing before this host is back or forgotten',
    }),
    last_heard: Type.Union([Type.Integer({ description: 'Unix seconds' }), Type.Null()]),
  },
  CLOSED,
);
export type HostView = Static<typeof HostView>;
const ForgottenHost = Type.Object({ id: Type.String(), forgotten: Type.Literal(true) }, CLOSED);

/** What the routes need of those who share. */
export interface SharedHosts {
  list(): Promise<readonly SharedHost[]>;
  /** Rejects with `ProxyError` where the host is alive or not known, or nobody can be asked. */
  forget(id: string): Promise<void>;
}

interface SharedHost {
  readonly id: string;
  readonly isSelf: boolean;
  readonly state: HostView['state'];
  readonly heardMs: number | undefined;
}

export const HOST_ROUTES: readonly Route[] = [
  defineRoute({
    method: 'GET',
    path: '/hosts',
    summary: 'List the hosts that share with this one.',
    responseSchema: listSchema(HostView),
    answer: async (_, context) => listOf((await hostsOf(context).list()).map(viewOf), undefined),
  }),
  defineRoute({
    method: 'DELETE',
    path: '/hosts/{host}',
    summary:
      'Forget a host that will not come back: what it was lent is free, and nobody waits for it. What it charged and did not tell is lost.',
    responseSchema: ForgottenHost,
    answer: async ({ id }, context) => {
      await hostsOf(context).forget(id);
      return { id, forgotten: true as const };
    },
  }),
];

function hostsOf({ hosts }: AdminContext): SharedHosts {
  if (hosts === undefined)
    throw conflict('this gateway shares with no other host: its settings have no sharing');
  return hosts;
}

function viewOf({ id, isSelf, state, heardMs }: SharedHost): HostView {
  return {
    id,
    self: isSelf,
    state,
    last_heard: heardMs === undefined ? null : Math.floor(heardMs / 1_000),
  };
}
