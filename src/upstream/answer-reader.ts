/**
 * Reads a whole (not streamed) answer: collected, checked, and handed on unchanged. Nothing of it goes down before it is known to be
 * complete and an answer, so another upstream may still be asked. Upstream worker.
 */
import { UPSTREAM_ANSWER_BYTES_MAX } from '../core/limits.js';
import { membersOfAnswer } from './answer-json.js';
import type { AnswerBodyReader, AnswerSink } from './answer-sink.js';
import type { AnswerRoom } from './answer-room.js';
import { garbageFailure, noRoomFailure, type AttemptFailure } from './error-mapping.js';
import { reportIn } from './usage-shapes.js';
import type { UsageMeter } from './usage-meter.js';

export class AnswerReader implements AnswerBodyReader {
  /** The client has nothing of it before `onEnd`. */
  readonly isWhole = false;
  readonly #sink: AnswerSink;
  readonly #meter: UsageMeter;
  readonly #room: AnswerRoom;
  #chunks: Uint8Array[] = [];
  #bytes = 0;
  #over = false;

  constructor(sink: AnswerSink, meter: UsageMeter, room: AnswerRoom) {
    this.#sink = sink;
    this.#meter = meter;
    this.#room = room;
  }

  onData(chunk: Uint8Array): void {
    if (this.#over) return;
    this.#bytes += chunk.length;
    if (this.#bytes > UPSTREAM_ANSWER_BYTES_MAX)
      this.#reject(garbageFailure(`above ${UPSTREAM_ANSWER_BYTES_MAX} bytes`));
    else if (!this.#room.grow(chunk.length)) this.#reject(noRoomFailure());
    else this.#chunks.push(chunk);
  }

  onEnd(): void {
    if (this.#over) return;
    const answer = joinedOf(this.#chunks, this.#bytes);
    this.#chunks = [];
    const members = membersOfAnswer(answer);
    if (members === undefined) this.#reject(garbageFailure('no JSON object'));
    else if (!Array.isArray(members.choices)) this.#reject(garbageFailure('no choices'));
    else this.#complete(answer, members);
  }

  #complete(answer: Buffer, members: Record<string, unknown>): void {
    this.#over = true;
    this.#meter.report(reportIn(members), members.model);
    this.#meter.answered(answer);
    this.#sink.complete(answer);
  }

  #reject(failure: AttemptFailure): void {
    this.#over = true;
    this.#chunks = [];
    this.#sink.reject(failure);
  }
}

/** Most answers come in one chunk, which is not copied. */
function joinedOf(chunks: readonly Uint8Array[], bytes: number): Buffer {
  const [first] = chunks;
  if (first === undefined || chunks.length > 1) return Buffer.concat(chunks, bytes);
  return Buffer.isBuffer(first) ? first : Buffer.from(first.buffer, first.byteOffset, first.length);
}
