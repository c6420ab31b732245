/** How long a node waits before it tries a coordinator again that did not reply. */
import t from 'tap';
import { CoordinatorContact } from '#src/sharing/coordinator-contact.js';
import { CoordinatorLost } from '#src/sharing/coordinator.js';

/** The longest pauses that the header promises. */
const LONGEST_MS = 750;
const LONGEST_QUARANTINE_MS = 3_000;

/** The pauses after `failures` failures in a row, with the least and the largest random factor. */
function pausesMs(error: () => unknown, failures: number): { least: number[]; most: number[] } {
  const [least, most] = [0, 0.999_999].map((random) => {
    const contact = new CoordinatorContact(() => random);
    let nowMs = 1_000;
    return Array.from({ length: failures }, () => {
      contact.recordFailure(error(), nowMs);
      const pauseMs = contact.pauseMs(nowMs);
      if (contact.mayTry(nowMs) || !contact.mayTry(nowMs + pauseMs)) throw new Error('`mayTry` is wrong');
      nowMs += pauseMs;
      return Math.round(pauseMs);
    });
  });
  return { least: least!, most: most! };
}

void t.test('pauses double from 100 ms to 500, half as long or half as long again', (t) => {
  const { least, most } = pausesMs(() => new Error('no reply'), 40);
  t.same(least.slice(0, 5), [50, 100, 200, 250, 250]);
  t.same(most.slice(0, 5), [150, 300, 600, 750, 750]);
  t.ok(
    most.every((pauseMs) => pauseMs <= LONGEST_MS),
    'none is longer, after forty failures too',
  );
  t.end();
});

void t.test('in a quarantine they double to two seconds', (t) => {
  const { most } = pausesMs(
    () => new CoordinatorLost('quarantine', 'it has lost its data', { waitMs: 60_000 }),
    40,
  );
  t.same(most.slice(0, 6), [150, 300, 600, 1_200, 2_400, 3_000]);
  t.ok(
    most.every((pauseMs) => pauseMs <= LONGEST_QUARANTINE_MS),
    'none is longer',
  );
  t.end();
});

void t.test('while lost data is looked for they stay the shortest', (t) => {
  const { most } = pausesMs(() => new CoordinatorLost('checking', 'not all have asked yet'), 10);
  t.same(new Set(most), new Set([150]));
  t.end();
});

void t.test('a reply, or the end of a pause, makes the next one the shortest', (t) => {
  const contact = new CoordinatorContact(() => 0.5);
  for (let failure = 0; failure < 5; failure++) contact.recordFailure(new Error('no reply'), 1_000);
  t.equal(contact.pauseMs(1_000), 500);
  contact.recordReply(1_000, 1_010);
  t.equal(contact.pauseMs(1_000), 500, 'the pause itself goes on');
  contact.recordFailure(new Error('no reply'), 2_000);
  t.equal(contact.pauseMs(2_000), 100);
  contact.recordFailure(new Error('no reply'), 2_000);
  contact.endPause();
  t.equal(contact.mayTry(2_000), true);
  contact.recordFailure(new Error('no reply'), 2_000);
  t.equal(contact.pauseMs(2_000), 100);
  t.end();
});
