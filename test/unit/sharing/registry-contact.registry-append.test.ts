/** A change that is sent over a connection that breaks is made once. */
import t from 'tap';
import { appendOnce } from '#src/sharing/registry-contact.js';
import type { ServerRegistry } from '#src/sharing/registry-server.js';
import { ValkeyError } from '#src/sharing/valkey-client.js';

const position = { epoch: 'e', version: 7, lastId: 'last', history: [] };

/** A server with a log of one place, of which each response may be lost. */
function placeOf(
  taken: string | undefined,
  losses: readonly ('request' | 'reply' | 'no' | undefined)[],
  lost?: 'other' | 'behind',
) {
  const state = { id: taken, sends: 0 };
  return {
    state,
    append: (_from: unknown, id: string): Promise<'done' | 'behind' | 'other'> => {
      const loss = losses[state.sends++];
      // The server has lost what it had: it is back with another registry, or with an older one.
      if (lost !== undefined && state.sends > losses.length) return Promise.resolve(lost);
      if (loss === 'request') return Promise.reject(new ValkeyError('unreachable', 'broken'));
      if (loss === 'no') return Promise.reject(new ValkeyError('refused', 'OOM'));
      const isFree = state.id === undefined;
      state.id ??= id;
      if (loss === 'reply') return Promise.reject(new ValkeyError('late', 'late'));
      return Promise.resolve(isFree ? 'done' : 'behind');
    },
    pull: (): Promise<ServerRegistry | undefined> => {
      if (lost === 'other') return Promise.resolve(undefined);
      if (lost === 'behind') return Promise.resolve({ position: { ...position, version: 6 }, changes: [] });
      const changes = [{ version: 8, id: state.id ?? '', after: 'last', rows: [] }];
      return Promise.resolve({ position, changes });
    },
  };
}

void t.test('what becomes of a change', async (t) => {
  const cases: [string, ReturnType<typeof placeOf>, boolean | string, number][] = [
    ['made', placeOf(undefined, []), true, 1],
    ['another one was there', placeOf('other', []), false, 1],
    ['made though its reply was lost', placeOf(undefined, ['reply']), true, 2],
    ['sent again as it had not come', placeOf(undefined, ['request']), true, 2],
    ['another one was there, and a reply was lost', placeOf('other', ['reply']), false, 2],
    ['refused', placeOf(undefined, ['no']), 'refused', 1],
    ['not known, as it was refused only later', placeOf(undefined, ['reply', 'no', 'no']), 'late', 3],
    ['not known, as the server lost all', placeOf(undefined, ['reply'], 'other'), 'late', 3],
    ['not known, as an older server took over', placeOf(undefined, ['reply'], 'behind'), 'late', 3],
    ['not made, as the server has another registry', placeOf(undefined, [], 'other'), false, 1],
    ['not known', placeOf(undefined, ['request', 'request', 'request']), 'unreachable', 3],
  ];
  await Promise.all(
    cases.map(async ([name, server, expected, sends]) => {
      const made = appendOnce(server, position, 'mine', []);
      if (typeof expected === 'string') await t.rejects(made, { code: expected }, name);
      else t.equal(await made, expected, name);
      t.equal(server.state.sends, sends, name);
      if (expected === true) t.equal(server.state.id, 'mine', name);
    }),
  );
});
