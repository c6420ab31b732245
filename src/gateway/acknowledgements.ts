/**
 * Waits until each of some threads has said that it took what it was sent, or has ended. Main thread.
 */

interface Turn {
  readonly number: number;
  readonly waiting: Set<number>;
  readonly finish: () => void;
}

export class Acknowledgements {
  readonly #waitMsMax: number;
  #count = 0;
  #turn: Turn | undefined;

  constructor(waitMsMax: number) {
    this.#waitMsMax = waitMsMax;
  }

  /**
   * Sends to each of `threads`; the thread names the turn when it has taken it. Resolves with those that did not in time.
   * One turn after the other.
   */
  async collect(threads: Iterable<number>, send: (thread: number, turn: number) => void): Promise<number[]> {
    const waiting = new Set(threads);
    const number = (this.#count += 1);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, this.#waitMsMax);
      const finish = (): void => {
        clearTimeout(timer);
        resolve();
      };
      this.#turn = { number, waiting, finish };
      for (const thread of [...waiting]) send(thread, number);
      if (waiting.size === 0) finish();
    });
    this.#turn = undefined;
    return [...waiting];
  }

  /** The thread took what it was sent in that turn. */
  note(thread: number, turn: number): void {
    if (turn === this.#turn?.number) this.#strike(this.#turn, thread);
  }

  /** The thread has ended: the one that follows starts with what is new. */
  noteEnd(thread: number): void {
    if (this.#turn !== undefined) this.#strike(this.#turn, thread);
  }

  #strike({ waiting, finish }: Turn, thread: number): void {
    waiting.delete(thread);
    if (waiting.size === 0) finish();
  }
}
