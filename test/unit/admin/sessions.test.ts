/** Which console session ends once there are as many as may be. */
import t from 'tap';
import { SESSION_SECONDS, Sessions } from '#src/admin/sessions.js';
import { asMonotonicMs, asWallMs } from '#src/core/units.js';

const SESSIONS_MAX = 200;

/** Sessions by a clock that the test sets. */
function sessionsAt(clock: { ms: number }) {
  const sessions = new Sessions({ monotonicMs: () => asMonotonicMs(clock.ms), wallMs: () => asWallMs(0) });
  const open = (who: string): string => {
    const operator = { who, role: 'viewer' } as const;
    return sessions.open({ who, identify: () => operator });
  };
  return { sessions, open };
}

void t.test('the oldest session of whoever has the most ends, and no other', (t) => {
  const { sessions, open } = sessionsAt({ ms: 0 });
  const ann = open('ann');
  const bob = Array.from({ length: SESSIONS_MAX - 1 }, () => open('bob'));
  const cid = open('cid');
  const isOpen = (secret: string): boolean => sessions.find(secret) !== undefined;
  t.ok(isOpen(ann) && isOpen(cid));
  t.same(
    bob.map(isOpen),
    bob.map((_, index) => index > 0),
  );
  t.end();
});

void t.test('of two with the most it is the one who opens another', (t) => {
  const { sessions, open } = sessionsAt({ ms: 0 });
  const bob = Array.from({ length: SESSIONS_MAX / 2 }, () => open('bob'));
  const ann = Array.from({ length: SESSIONS_MAX / 2 + 1 }, () => open('ann'));
  t.ok(bob.every((secret) => sessions.find(secret) !== undefined));
  t.equal(sessions.find(ann[0]!), undefined);
  t.end();
});

void t.test('no session ends for a new one while others have expired', (t) => {
  const clock = { ms: 0 };
  const { sessions, open } = sessionsAt(clock);
  // Of several operators, none of whom has as many as bob.
  for (let count = 0; count < SESSIONS_MAX / 2; count++) open(`operator-${count % 10}`);
  clock.ms = SESSION_SECONDS * 1_000;
  const bob = Array.from({ length: SESSIONS_MAX / 2 + 1 }, () => open('bob'));
  t.ok(bob.every((secret) => sessions.find(secret) !== undefined));
  t.end();
});
