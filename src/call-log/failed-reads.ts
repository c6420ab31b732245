/**
 * The segments that one search could not read: files of another owner, or on a bad sector. call-reader.ts and
 * contents-writer.ts make a FailedReads for each search; page-search.ts and newer-calls.ts get it. The search
 * goes on with the other segments, and its result names the files that it lacks. Main threads, and commands.
 *
 * Must hold: a search does not end at a segment that it cannot read, and never hides one: a page names it,
 * and a call that is not found is an error then (test/unit/call-log/failed-reads.test.ts).
 */
import { basename } from 'node:path';

/** A Segment of segment.ts. */
interface ReadSegment {
  readonly path: string;
}

export class FailedReads {
  /** By the path of a segment: why its first read has failed. */
  readonly #errors = new Map<string, Error>();

  /** Resolves as `read` does. If it rejects, records the segment, and resolves with `resultIfFailed`. */
  async orElse<Result>(
    segment: ReadSegment,
    resultIfFailed: Result,
    read: () => Promise<Result>,
  ): Promise<Result> {
    try {
      return await read();
    } catch (error) {
      this.add(segment, error);
      return resultIfFailed;
    }
  }

  /** Records that the segment, or a part of it, could not be read. Of several errors the first counts. */
  add({ path }: ReadSegment, error: unknown): void {
    if (!this.#errors.has(path)) this.#errors.set(path, error as Error);
  }

  has({ path }: ReadSegment): boolean {
    return this.#errors.has(path);
  }

  /** Returns the name of each file with the code of its error, such as `0000000042.calls: EACCES`. */
  get texts(): string[] {
    return [...this.#errors].map(
      ([path, error]) => `${basename(path)}: ${(error as NodeJS.ErrnoException).code ?? error.message}`,
    );
  }

  /** Throws the error of the first segment that could not be read; returns if there is none. */
  throwFirst(): void {
    for (const error of this.#errors.values()) throw error;
  }
}
