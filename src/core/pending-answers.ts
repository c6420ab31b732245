/**
 * Questions over a channel that may lose them: each has a number, and a response at the latest when its time is over. Main
 * thread, and supervisor process.
 */
export interface PendingRepliesOptions<Reply> {
  readonly waitMsMax: number;
  /** Taken for the response where none came in time. */
  readonly onTimeout: () => Reply;
}

export class PendingReplies<Reply> {
  readonly #options: PendingRepliesOptions<Reply>;
  readonly #waiting = new Map<number, (reply: Reply) => void>();
  #count = 0;

  constructor(options: PendingRepliesOptions<Reply>) {
    this.#options = options;
  }

  /** How many questions wait. */
  get size(): number {
    return this.#waiting.size;
  }

  /** `send` gets the number that the response will name. Never rejects. */
  ask(send: (id: number) => void): Promise<Reply> {
    const id = (this.#count += 1);
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.answer(id, this.#options.onTimeout()), this.#options.waitMsMax);
      // A process that ends waits for nobody.
      timer.unref();
      this.#waiting.set(id, (reply) => {
        clearTimeout(timer);
        resolve(reply);
      });
      send(id);
    });
  }

  /** A response that comes after its time is dropped. */
  answer(id: number, reply: Reply): void {
    this.#waiting.get(id)?.(reply);
    this.#waiting.delete(id);
  }

  /** Whoever was asked is gone. */
  answerAll(reply: Reply): void {
    for (const id of [...this.#waiting.keys()]) this.answer(id, reply);
  }
}
