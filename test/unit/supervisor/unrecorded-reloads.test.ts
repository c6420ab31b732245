/** Reloads that wait to be recorded: each is asked of one process at a time; the last hundred are kept. */
import t from 'tap';
import { UnrecordedReloads } from '#src/supervisor/unrecorded-reloads.js';

/** Stands in for a process: what it was asked to record. */
class Recorder {
  readonly asked: (readonly [id: number, replacing: number])[] = [];

  send({ id, replacing }: { readonly id: number; readonly replacing: number }): void {
    this.asked.push([id, replacing]);
  }
}

const reload = (replacing: number) => ({ by: 'watch', changes: [], replacing }) as const;

void t.test('a reload is asked of the next process only if the former has ended without a reply', (t) => {
  const reloads = new UnrecordedReloads();
  const [first, second, third] = [new Recorder(), new Recorder(), new Recorder()];
  reloads.add(reload(1));
  reloads.add(reload(2));
  reloads.sendTo(first);
  reloads.sendTo(first);
  reloads.sendTo(second);
  t.same(
    [first.asked, second.asked],
    [
      [
        [1, 1],
        [2, 2],
      ],
      [],
    ],
    'the first runs still',
  );
  reloads.remove(1);
  reloads.remove(1);
  reloads.remove(undefined);
  reloads.onEnd(third);
  reloads.onEnd(first);
  reloads.sendTo(second);
  t.same(second.asked, [[2, 2]]);
  reloads.remove(2);
  reloads.onEnd(second);
  reloads.sendTo(third);
  t.same(third.asked, []);
  t.end();
});

void t.test('the oldest is dropped for one too many, asked or not', (t) => {
  const reloads = new UnrecordedReloads();
  const [first, second] = [new Recorder(), new Recorder()];
  for (let at = 0; at < 99; at++) t.equal(reloads.add(reload(at)), undefined);
  reloads.sendTo(first);
  t.equal(reloads.add(reload(99)), undefined);
  t.match(reloads.add(reload(100)), { replacing: 0 });
  t.match(reloads.add(reload(101)), { replacing: 1 });
  reloads.onEnd(first);
  reloads.sendTo(second);
  t.same(
    second.asked.map(([, replacing]) => replacing),
    Array.from({ length: 100 }, (_, at) => at + 2),
  );
  t.end();
});
