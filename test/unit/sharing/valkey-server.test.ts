/** Work at the server counts as done only if its script has said so. */
import t from 'tap';
import type { ValkeyClient } from '#src/sharing/valkey-client.js';
import { packed } from '#src/sharing/valkey-codec.js';
import { LEAVE_SCRIPT } from '#src/sharing/valkey-life-scripts.js';
import { ValkeyServer } from '#src/sharing/valkey-server.js';

/** A server whose scripts get these replies, one after the other. `pages` are the rows of each. */
function serverOf(...replies: unknown[]) {
  const pages: unknown[] = [];
  const client = {
    run: (_script: unknown, _keys: unknown, argv: readonly unknown[]) => {
      pages.push(argv[3]);
      return Promise.resolve(packed(replies.shift()));
    },
  } as unknown as ValkeyClient;
  const server = new ValkeyServer({ client, namespace: 'n', partition: 0, host: 'h', place: 'h:0' });
  return { server, pages };
}

const LEAVE = { incarnation: 'life', staysIfAwaited: true };
const ODD = [null, 0, 1, '', 'OK', {}, 1.5];

void t.test('an odd reply is no end of the work', async (t) => {
  for (const odd of [...ODD, true, [7]]) {
    const { server } = serverOf(['a'], odd);
    await t.rejects(
      server.free('life', [], () => false),
      { code: 'authority_lost', reason: 'failing' },
      `to free: ${JSON.stringify(odd)}`,
    );
  }
  for (const odd of [...ODD, []]) {
    const { server } = serverOf(odd);
    await t.rejects(
      server.carryOut(LEAVE_SCRIPT, LEAVE),
      { code: 'authority_lost', reason: 'failing' },
      `to leave: ${JSON.stringify(odd)}`,
    );
  }
});

void t.test('scopes are freed page by page, until none is held', async (t) => {
  const { server, pages } = serverOf(['b', 'c'], []);
  t.equal(await server.free('life', ['a'], (scope) => scope === 'c'), true);
  t.same(pages, [
    packed([{ scope: 'a', spent: false }]),
    packed([
      { scope: 'b', spent: false },
      { scope: 'c', spent: true },
    ]),
  ]);
  const other = serverOf(['b'], false);
  t.equal(await other.server.free('life', [], () => false), false, 'another life has come');
  t.equal(await serverOf(true).server.carryOut(LEAVE_SCRIPT, LEAVE), true);
  t.equal(await serverOf(false).server.carryOut(LEAVE_SCRIPT, LEAVE), false);
});
