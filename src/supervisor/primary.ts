/**
 * Which gateway has the admin interface. Supervisor process.
 *
 * Ports are shared within a group, so the next one opens its own socket before the former lets go of its: an
 * operator finds the interface open at every moment, unless the process that had it was killed.
 */
export interface PrimaryCandidate {
  /** Whether it can have the admin interface: it serves, and is not about to end. */
  readonly isFit: boolean;
  /** Shall have it; `onLeads` follows. */
  lead(): void;
  /** Another has it. */
  follow(): void;
}

export class Primary<Candidate extends PrimaryCandidate> {
  #current: Candidate | undefined;
  /** Has the interface until the current one does. */
  #former: Candidate | undefined;
  #onSettled: () => void = () => undefined;

  get current(): Candidate | undefined {
    return this.#current;
  }

  /** It has the interface from its start on. */
  begin(candidate: Candidate): void {
    this.#current = candidate;
  }

  /** Passes the interface on; resolves when `candidate` has it, or has ended. */
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

  /** `candidate` has ended; one of `others` has the interface next, or the first that `onFit` names. */
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
