/**
 * Replaces the gateways one by one: the next serves before the former takes no more calls, and that has ended before the one
 * after it is started, so that at most one more than usual is there. Supervisor process.
 */
export interface ReplaceSteps<Member> {
  /** Those that are there. */
  members(): readonly Member[];
  /** A further one, which is not started yet. */
  add(): Member;
  /** Resolves when it serves, or with how it ended before it did; then it is gone. */
  start(member: Member): Promise<string | undefined>;
  /** What `from` alone does for the group, `to` does from now on. */
  handOver(from: Member, to: Member): Promise<void>;
  /** Resolves when its calls have ended and it is gone. */
  retire(member: Member): Promise<void>;
  isStopping(): boolean;
}

/** Resolves when all that were there are gone, or with why the rest of them stay. */
export async function replaceOneByOne<Member>(steps: ReplaceSteps<Member>): Promise<string | undefined> {
  for (const former of [...steps.members()]) {
    if (steps.isStopping()) return 'the gateways are stopping';
    const next = steps.add();
    const failure = await steps.start(next);
    if (failure !== undefined) return `the new gateway did not serve: ${failure}`;
    await steps.handOver(former, next);
    await steps.retire(former);
  }
  return undefined;
}
