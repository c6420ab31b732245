/**
 * The reloads by a signal or a changed file that no gateway has recorded yet among the changes of operators.
 * ProcessGroup (process-group.ts) owns the one object, in the supervisor process.
 *
 * Must hold: a reload is asked of one process at a time, and of another only after that one has ended without
 * a reply. So it is recorded once, or twice if the process has ended between its commit and its reply; it is
 * lost only with the supervisor, or if there are too many.
 */
import type { RecordReload } from '../gateway/messages.js';

/**
 * How many are kept, of some KB each; then the oldest is dropped. A file that changes each second gives so
 * many in two minutes, the longest time that a gateway has for its start (READY_MS_MAX of supervisor.ts).
 */
const RELOADS_MAX = 100;

/** GatewayProcess is one. */
interface Recorder {
  send(message: RecordReload & { readonly id: number }): void;
}

export class UnrecordedReloads {
  #lastId = 0;
  /** By id, oldest first, with the process that was asked to record it. */
  readonly #reloads = new Map<number, { readonly reload: RecordReload; asked: Recorder | undefined }>();

  /** Call `sendTo` then. Returns the reload that is dropped for it, if one is. */
  add(reload: Omit<RecordReload, 'kind' | 'id'>): RecordReload | undefined {
    const id = ++this.#lastId;
    this.#reloads.set(id, { reload: { kind: 'record_reload', ...reload }, asked: undefined });
    if (this.#reloads.size <= RELOADS_MAX) return undefined;
    const [oldest] = this.#reloads;
    const [oldestId, { reload: dropped }] = oldest!;
    this.#reloads.delete(oldestId);
    return dropped;
  }

  /** Asks `recorder`, which has the admin interface, for all that no running process was asked for. */
  sendTo(recorder: Recorder): void {
    for (const [id, entry] of this.#reloads) {
      if (entry.asked !== undefined) continue;
      entry.asked = recorder;
      recorder.send({ ...entry.reload, id });
    }
  }

  /** Call it with the id of each reply. Does nothing if it is unknown, or was removed before. */
  remove(id: number | undefined): void {
    if (id !== undefined) this.#reloads.delete(id);
  }

  /** Call it when a process has ended, after its last message, and then `sendTo`. */
  onEnd(recorder: Recorder): void {
    for (const entry of this.#reloads.values()) if (entry.asked === recorder) entry.asked = undefined;
  }
}
