/**
 * Decides which gateway of a group has the admin interface, and passes it on. ProcessGroup calls it, in the
 * supervisor process. Gateways of a group share the port, and the next one opens its socket before the former
 * closes its own: the interface stays reachable, unless the process that had it was killed.
 *
 * Must hold: the former gateway closes its interface when the next one has opened its own, not before
 * (test/unit/supervisor/primary.test.ts).
 */
export interface PrimaryCandidate {
  /** Whether the gateway can have the admin interface: it serves and is not about to end. */
  readonly isFit: boolean;
  /** Asks the gateway to open the interface. Its owner calls `onLeads` when the interface is open. */
  lead(): void;
  /** Tells the gateway that another one has the interface. */
  follow(): void;
}

export class Primary<Candidate extends PrimaryCandidate> {
  #current: Candidate | undefined;
  /** The gateway that keeps the interface until `#current` has opened its own. */
  #former: Candidate | undefined;
  #onSettled: () => void = () => undefined;

  get current(): Candidate | undefined {
    return this.#current;
  }

  /** Records that `candidate` opens the interface by itself, at its start. */
  begin(candidate: Candidate): void {
    this.#current = candidate;
  }

  /** Passes the interface on. Resolves when `candidate` has opened it or has ended. */
  handOver(candidate: Candidate): Promise<void> {
    this.#former = this.#current;
    this.#current = candidate;
    const settled = new Promise<void>((resolve) => (this.#onSettled = resolve));
    candidate.lead();
    return settled;
  }

  onLeads(candidate: Candidate): void {
    if (candidate !== this.#current) return;
    this.#former?.follow();
    this.#former = undefined;
    this.#onSettled();
  }

  /**
   * To be called when `candidate` has ended. The interface then stays with the former gateway if that still
   * has it, or goes to a fit one of `others`, or to the next candidate that `onFit` names.
   */
  onEnd(candidate: Candidate, others: readonly Candidate[]): void {
    if (candidate === this.#former) this.#former = undefined;
    if (candidate !== this.#current) return;
    this.#current = this.#former;
    this.#former = undefined;
    this.#onSettled();
    const next = others.find((other) => other !== candidate && other.isFit);
    if (this.#current === undefined && next !== undefined) void this.handOver(next);
  }

  onFit(candidate: Candidate): void {
    if (this.#current === undefined) void this.handOver(candidate);
  }
}
