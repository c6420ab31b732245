/**
 * Questions over a channel that may lose them: each has a number, and an answer at the latest when its time is over. Main
 * thread, and supervisor process.
 */
export interface PendingAnswersOptions<Answer> {
  readonly waitMsMax: number;
  /** Taken for the answer where none came in time. */
  readonly onTimeout: () => Answer;
}

export class PendingAnswers<Answer> {
  readonly #options: PendingAnswersOptions<Answer>;
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  #count = 0;

  constructor(options: PendingAnswersOptions<Answer>) {
    this.#options = options;
  }

  /** How many questions wait. */
  get size(): number {
    return this.#waiting.size;
  }

  /** `send` gets the number that the answer will name. Never rejects. */
  ask(send: (id: number) => void): Promise<Answer> {
    const id = (this.#count += 1);
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.answer(id, this.#options.onTimeout()), this.#options.waitMsMax);
      // A process that ends waits for nobody.
      timer.unref();
      this.#waiting.set(id, (answer) => {
        clearTimeout(timer);
        resolve(answer);
      });
      send(id);
    });
  }

  /** An answer that comes after its time is dropped. */
  answer(id: number, answer: Answer): void {
    this.#waiting.get(id)?.(answer);
    this.#waiting.delete(id);
  }

  /** Whoever was asked is gone. */
  answerAll(answer: Answer): void {
    for (const id of [...this.#waiting.keys()]) this.answer(id, answer);
  }
}
