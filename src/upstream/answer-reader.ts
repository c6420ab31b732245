/**
 * Reads a whole (not streamed) answer: collected, checked, and handed on unchanged. Nothing of it goes down before it is
 * known to be complete and valid, so another upstream may still be asked. Upstream worker.
 */
import { UPSTREAM_ANSWER_BYTES_MAX } from '../core/limits.js';
import type { AnswerBodyReader, AnswerSink } from './answer-sink.js';
import { garbageFailure } from './error-mapping.js';
import { isRecord, parsedJson } from './json-value.js';
import type { UsageMeter } from './usage-meter.js';

export class AnswerReader implements AnswerBodyReader {
  readonly #sink: AnswerSink;
  readonly #meter: UsageMeter;
  #chunks: Uint8Array[] = [];
  #bytes = 0;
  #over = false;

  constructor(sink: AnswerSink, meter: UsageMeter) {
    this.#sink = sink;
    this.#meter = meter;
  }

  onData(chunk: Uint8Array): void {
    if (this.#over) return;
    this.#bytes += chunk.length;
    if (this.#bytes > UPSTREAM_ANSWER_BYTES_MAX) this.#reject(`above ${UPSTREAM_ANSWER_BYTES_MAX} bytes`);
    else this.#chunks.push(chunk);
  }

  onEnd(): void {
    if (this.#over) return;
    const answer = Buffer.concat(this.#chunks, this.#bytes);
    const value = parsedJson(answer.toString('utf8'));
    if (!isRecord(value)) {
      this.#reject('no JSON object');
      return;
    }
    if (!Array.isArray(value.choices)) {
      this.#reject('no choices');
      return;
    }
    this.#over = true;
    this.#meter.report(value.usage);
    this.#meter.relayed(answer);
    this.#sink.complete(answer);
  }

  #reject(what: string): void {
    this.#over = true;
    this.#chunks = [];
    this.#sink.reject(garbageFailure(what));
  }
}
