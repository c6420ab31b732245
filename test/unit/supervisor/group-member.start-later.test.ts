/** A member whose process cannot even be forked. */
import t from 'tap';
import type { Settings } from '#src/config/schema.js';
import { SystemClock } from '#src/core/clock.js';
import type { StartGateway } from '#src/gateway/messages.js';
import { GroupMember, type MemberOwner } from '#src/supervisor/group-member.js';
import { eventually } from '../../support/gateway.js';
import { ListLog } from '../store/support.js';

void t.test('a fork that throws is the exit of a process that never was, after `start`', async (t) => {
  let [starting, isDraining] = [false, false];
  const log = new ListLog();
  const owner: MemberOwner = {
    onStart: () => ({}) as StartGateway,
    onReady: () => undefined,
    onExit: (ended, _, { how }) => {
      t.notOk(starting, 'the owner does not expect it within `start`');
      log.warn(`no gateway process can be started: ${how}`);
      if (!isDraining) ended.startLater();
    },
    onLeads: () => undefined,
    onLastSnapshot: () => undefined,
    onRecorded: () => undefined,
    onReloadRequested: () => Promise.reject(new Error('nobody asks')),
    onSnapshotsRequested: () => Promise.reject(new Error('nobody asks')),
    onBroadcast: () => undefined,
  };
  const options = {
    // Stands in for a machine without memory: no process can be forked from such a path.
    entry: new URL('file:///gateway%00.js'),
    readyMsMax: 1_000,
    silentMsMax: 1_000,
    exitGraceMs: 1_000,
    reloadMsMax: 1_000,
    pauses: { firstMs: 1, longestMs: 2, healthyMs: 1_000 },
    clock: new SystemClock(),
    log,
  };
  const member = new GroupMember(options, owner, { slot: 0, settings: {} as Settings, isTrial: false });
  starting = true;
  const failure = member.start();
  starting = false;
  t.throws(() => void member.start(), /one process/, 'and not before the former has ended');
  t.match(await failure, /no process/);
  await eventually('two tries', () => (log.lines.length >= 2 ? true : undefined));
  isDraining = true;
  member.drain();
  t.match(log.lines[0], /no gateway process can be started/);
  // A fork that failed before `drain` is told after its turn.
  await eventually('no process', () => (member.process === undefined ? true : undefined));
});
