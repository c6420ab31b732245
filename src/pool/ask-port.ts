/**
 * Questions and answers over a port: a listener asks the main thread to have a large body parsed, a worker asks it to
 * have tokens counted. The asking side; listener or upstream worker.
 */
import type { MessagePort, Transferable } from 'node:worker_threads';
import type { ErrorRecord } from '../core/errors.js';
import { Roster } from '../core/roster.js';

export interface Question {
  readonly id: number;
  readonly ask: unknown;
}

/** Exactly one of `answer` and `refusal` is meant, by `ok`. */
export type Answer =
  | { readonly id: number; readonly ok: true; readonly answer: unknown }
  | { readonly id: number; readonly ok: false; readonly refusal: ErrorRecord };

/** A port's far end refused the question (the pool is full, or the task failed). */
export class AskRefused extends Error {
  readonly refusal: ErrorRecord;

  constructor(refusal: ErrorRecord) {
    super(refusal.message);
    this.name = 'AskRefused';
    this.refusal = refusal;
  }
}

interface Waiting {
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: AskRefused) => void;
}

/** Bounded by the calls in flight: each asks one question at a time, and the far end refuses what it can't queue. */
export class AskPort<Ask, Reply> {
  readonly #port: MessagePort;
  /** A question's identifier is its place, since each has one answer. */
  readonly #waiting = new Roster<Waiting>();

  constructor(port: MessagePort) {
    this.#port = port;
    port.on('message', (answer: Answer) => {
      const waiting = this.#waiting.at(answer.id);
      if (waiting === undefined) return;
      this.#waiting.remove(answer.id);
      if (answer.ok) waiting.resolve(answer.answer);
      else waiting.reject(new AskRefused(answer.refusal));
    });
  }

  /** The reply, or an AskRefused. Objects of `transfer` change their owner. */
  ask(ask: Ask, transfer: readonly Transferable[] = []): Promise<Reply> {
    return new Promise<Reply>((resolve, reject) => {
      const id = this.#waiting.add({ resolve: resolve as (answer: unknown) => void, reject });
      this.#port.postMessage({ id, ask } satisfies Question, [...transfer]);
    });
  }

  close(): void {
    this.#port.close();
  }
}

/** The answering side: calls `serve` for each question that comes over `port`, hands over `transferOf` of its answer. Main thread. */
export function answerQuestions(
  port: MessagePort,
  serve: (ask: unknown) => Promise<unknown>,
  refusalOf: (error: unknown) => ErrorRecord,
  transferOf: (answer: unknown) => readonly Transferable[] = () => [],
): void {
  port.on('message', (question: Question) => {
    serve(question.ask).then(
      (answer) =>
        port.postMessage({ id: question.id, ok: true, answer } satisfies Answer, [...transferOf(answer)]),
      (error: unknown) =>
        port.postMessage({ id: question.id, ok: false, refusal: refusalOf(error) } satisfies Answer),
    );
  });
}
