/**
 * Replaces the gateways of a process group one by one. ProcessGroup.replace (process-group.ts) calls it, in
 * the supervisor process.
 *
 * Must hold (test/unit/supervisor/process-group.test.ts):
 * - The new gateway serves, and has the admin interface if the former had it, before the former stops
 *   accepting. The former has ended before another new one is started, so one more than usual runs at most.
 * - If the new one does not serve, or cannot open the admin interface, those that serve stay.
 * - A drain of the group ends the replacement: `isStopping` is asked after each wait.
 * - When `start`, `handOver` or `retire` has resolved, the group has carried out the exit of the process: an
 *   ended trial is no member any more. ProcessGroup does that in the same turn, before promises go on.
 */
import type { Log } from '../telemetry/log.js';
import type { GroupMember } from './group-member.js';
import { callLater } from './late-timer.js';
import type { Primary } from './primary.js';

/** What a replacement needs of its group. */
export interface ReplacedGroup {
  /** A copy. A trial that ends is removed, unless the group is stopping. */
  members(): readonly GroupMember[];
  isStopping(): boolean;
  readonly primary: Primary<GroupMember>;
  /** Adds a member that is a trial and has no process yet. */
  addTrial(): GroupMember;
  /** Ends the member's process, if it has one, and removes the member. */
  retire(member: GroupMember): Promise<void>;
}

interface ReplacementOptions {
  /** The time that the new gateway has to open the admin interface. */
  readonly readyMsMax: number;
  readonly log: Log;
}

/** Why a replacement has ended before all were replaced. */
const STOPPING = 'the gateways are stopping';

/** Resolves with undefined when all are replaced, or with the reason why the others stay. Never rejects. */
export async function replaceOneByOne(
  group: ReplacedGroup,
  options: ReplacementOptions,
): Promise<string | undefined> {
  for (const former of group.members()) {
    if (group.isStopping()) return STOPPING;
    const next = group.addTrial();
    const failure = await next.start();
    if (failure !== undefined) return `the new gateway did not serve: ${failure}`;
    if (group.primary.current === former) await handOver(next, group, options);
    if (group.isStopping()) return STOPPING;
    // The former serves on, with the admin interface if it led.
    if (!group.members().includes(next)) return 'the new gateway ended before it had taken over';
    next.endTrial();
    await group.retire(former);
  }
  return undefined;
}

/**
 * Passes the admin interface on to the trial `next`. If `next` cannot open it in time, the former keeps it,
 * and `next` is retired, because each later replacement would wait for this one.
 */
async function handOver(
  next: GroupMember,
  group: ReplacedGroup,
  { readyMsMax, log }: ReplacementOptions,
): Promise<void> {
  const cancelTakeBack = callLater(readyMsMax, () => group.primary.takeBack(next));
  await group.primary.handOver(next);
  cancelTakeBack();
  if (group.primary.current === next || next.process === undefined) return;
  log.error('a gateway could not open the admin interface; the former keeps it', { waited_ms: readyMsMax });
  await group.retire(next);
}
