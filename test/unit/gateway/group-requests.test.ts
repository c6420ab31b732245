/** A flush that is asked for while another one runs begins after it, because calls settle meanwhile. */
import { setImmediate as turn } from 'node:timers/promises';
import t from 'tap';
import { FlushRequests, GroupCommit } from '#src/gateway/group-requests.js';

void t.test('a request during a flush gets the next one, and both that wait for it the same', async (t) => {
  const ends: ((ok: boolean) => void)[] = [];
  const requests = new FlushRequests(() => new Promise((resolve) => ends.push(resolve)));
  const first = requests.flushAll();
  while (ends.length < 1) await turn();
  const second = requests.flushAll();
  t.equal(requests.flushAll(), second);
  ends[0]!(true);
  t.equal(await first, true);
  while (ends.length < 2) await turn();
  ends[1]!(false);
  t.equal(await second, false);
  t.equal(ends.length, 2);
});

void t.test('listeners that ask in one turn get one commit, one that asks in it the next', async (t) => {
  const committed: number[][] = [[]];
  const commits = new GroupCommit(
    () => {
      if (committed.length === 1) commits.ask(2);
      committed.push([]);
      return true;
    },
    (listenerIndex) => committed.at(-1)!.push(listenerIndex),
  );
  commits.ask(0);
  commits.ask(1);
  commits.ask(0);
  while (committed.flat().length < 3) await turn();
  t.same(committed, [[], [0, 1], [2]]);
});
