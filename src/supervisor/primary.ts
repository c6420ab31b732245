/**
 * Decides which candidate, a member of the process group, has the admin interface, and passes the interface
 * on. The candidates' processes share the port, and the next opens its socket before the former closes its
 * own. So the interface stays reachable, unless the process that had it was killed. ProcessGroup
 * (process-group.ts) owns the one Primary, in the supervisor process, and hands over to one candidate at a
 * time.
 *
 * Must hold: the former closes its interface when the next has opened its own, not before
 * (test/unit/supervisor/primary.test.ts).
 */

/** GroupMember (group-member.ts) is one. */
export interface PrimaryCandidate {
  /** Whether it can have the admin interface: its process serves and is not about to end. */
  readonly isFit: boolean;
  /** Asks the process to open the interface. The owner calls `Primary.onLeads` when it is open. */
  lead(): void;
  /** Tells the process that another candidate has the interface. */
  follow(): void;
}

export class Primary<Candidate extends PrimaryCandidate> {
  /** Who has the interface or is to open it; undefined if no candidate is fit. */
  #current: Candidate | undefined;
  /** Who keeps the interface until `#current` has opened its own; undefined if no candidate has to. */
  #former: Candidate | undefined;
  /** Resolves the promise of `handOver`. */
  #endHandOver: () => void = () => undefined;

  get current(): Candidate | undefined {
    return this.#current;
  }

  /** Records that the process of `candidate` opens the interface at its start, without `lead`. */
  begin(candidate: Candidate): void {
    this.#current = candidate;
  }

  /** Passes the interface on. Resolves when `candidate` has opened it or has ended, or with `takeBack`. */
  handOver(candidate: Candidate): Promise<void> {
    this.#former = this.#current;
    this.#current = candidate;
    const handedOver = new Promise<void>((resolve) => (this.#endHandOver = resolve));
    candidate.lead();
    return handedOver;
  }

  /** Call it if `candidate` is too slow. The former keeps the interface; without one `candidate` tries on. */
  takeBack(candidate: Candidate): void {
    if (candidate !== this.#current) return;
    if (this.#former !== undefined) {
      candidate.follow();
      this.#current = this.#former;
      this.#former = undefined;
    }
    this.#endHandOver();
  }

  /** Call it when `candidate` has opened the interface. */
  onLeads(candidate: Candidate): void {
    // The message may come late, after `takeBack`: `candidate` has then been told to follow.
    if (candidate !== this.#current) return;
    this.#former?.follow();
    this.#former = undefined;
    this.#endHandOver();
  }

  /**
   * Call it when the process of `candidate` has ended. The interface then stays with the former if that has
   * it still, or goes to a fit one of `members`, or to the next candidate of `onFit`.
   */
  onEnd(candidate: Candidate, members: readonly Candidate[]): void {
    if (candidate === this.#former) this.#former = undefined;
    if (candidate !== this.#current) return;
    this.#current = this.#former;
    this.#former = undefined;
    this.#endHandOver();
    const next = members.find((member) => member !== candidate && member.isFit);
    if (this.#current === undefined && next !== undefined) void this.handOver(next);
  }

  /** Call it when `candidate` serves: it gets the interface if it is fit and no other candidate has it. */
  onFit(candidate: Candidate): void {
    if (this.#current === undefined && candidate.isFit) void this.handOver(candidate);
  }
}
