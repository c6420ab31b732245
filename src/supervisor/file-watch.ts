/**
 * Polls files, and calls `onChange` if they have changed; `filesOf` tells which the settings are made of.
 * supervisor.ts reloads the settings by it if the setting `watch` is on, in the supervisor process.
 *
 * Polling, because file events miss replaced files (editors), switched links to the folder (config maps of
 * Kubernetes), and changes in mounts without events (NFS, bind mounts of containers). A poll takes some 3 µs
 * a file.
 *
 * Must hold (test/unit/supervisor/file-watch.test.ts):
 * - A change is reported once, when its writer has finished, also a change during the gateway's start.
 * - It is reported again while the files cannot be read or the gateways do not apply them.
 * - A file that the settings begin to name is no change.
 * - `filesOf` has each file whose content config/setting-files.ts reads into the settings
 *   (test/unit/supervisor/file-watch.files-of.test.ts, which knows all settings that are called `…_file`). It
 *   lacks what others read when they need it, and again by themselves: `credentials_file`.
 */
import { statSync } from 'node:fs';
import type { Settings } from '../config/schema.js';
import type { Log } from '../telemetry/log.js';

/**
 * How many files are watched at most, for which a poll takes 3 ms. The configuration, and a key and a
 * certificate for each of some hundred upstreams, are fewer. A change of a further file waits for a reload,
 * which the log says.
 */
const FILES_MAX = 1_000;

/**
 * After how many polls files are reported again that could not be read or that the gateways did not apply.
 * The number doubles with each failure, from the first value to the second. The first suits a gateway that
 * restarts, which takes seconds. The second suits what an operator must mend: a removed plan still in use.
 */
const RETRY_POLLS_MIN = 5;
const RETRY_POLLS_MAX = 300;

interface FileWatchOptions {
  /** Returns the paths to watch now, the most important first. */
  readonly files: () => readonly string[];
  readonly onChange: () => void;
  readonly periodMs: number;
  readonly log: Log;
}

export class FileWatch {
  readonly #options: FileWatchOptions;
  #timer: NodeJS.Timeout | undefined;
  /** The state of each file when it was last read or reported. */
  readonly #reported = new Map<string, string>();
  /** The state of each file at the last poll. */
  #polled: ReadonlyMap<string, string> = new Map();
  /** How many files were too many, at the last poll. */
  #unwatched = 0;
  /** After how many polls the files are reported again; 0 if the gateways have applied them. */
  #retryPolls = 0;
  /** How many polls remain until the files are reported again; 0 if they will not be. */
  #retryPollsLeft = 0;

  /** Call it when the files have just been read: later changes are reported once the watch is on. */
  constructor(options: FileWatchOptions) {
    this.#options = options;
    this.recordRead(this.#files());
  }

  /** Starts or stops polling. Stopping also ends what `setApplied(false)` began. Idempotent. */
  setOn(isOn: boolean): void {
    // What changes after the watch was switched off is not reported when it is switched on again.
    if (!isOn) {
      this.#reported.clear();
      this.setApplied(true);
    }
    if (isOn === (this.#timer !== undefined)) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#unwatched = 0;
    if (!isOn) return;
    this.#polled = this.#states();
    this.#recordNew(this.#polled);
    this.#timer = setInterval(() => this.#poll(), this.#options.periodMs);
    this.#timer.unref();
  }

  /**
   * Call it after each reload. `isApplied`: the gateways run with the files as last read. Otherwise the files
   * are reported again, after a growing number of polls (RETRY_POLLS_MIN).
   */
  setApplied(isApplied: boolean): void {
    const doubled = Math.min(Math.max(2 * this.#retryPolls, RETRY_POLLS_MIN), RETRY_POLLS_MAX);
    this.#retryPolls = isApplied ? 0 : doubled;
    this.#retryPollsLeft = this.#retryPolls;
  }

  /**
   * Call it when files have just been read that may be watched from now on. Records their states. Leaves out
   * watched files: one may have changed after it was read, which the next poll must report.
   */
  recordRead(paths: readonly string[]): void {
    const watched = new Set(this.#timer === undefined ? [] : this.#files());
    for (const path of paths) if (!watched.has(path)) this.#reported.set(path, stateOf(path));
  }

  /** Reports a change when two polls in a row find the same state: the writer has then finished. */
  #poll(): void {
    const states = this.#states();
    const isSettled =
      states.size === this.#polled.size &&
      [...states].every(([path, state]) => this.#polled.get(path) === state);
    this.#polled = states;
    if (!isSettled) return;
    const isRetried = this.#retryPollsLeft > 0 && --this.#retryPollsLeft === 0;
    this.#recordNew(states);
    const hasChanged = [...states].some(([path, state]) => this.#reported.get(path) !== state);
    if (!hasChanged && !isRetried) return;
    for (const [path, state] of states) this.#reported.set(path, state);
    this.#options.onChange();
  }

  /** Records the state of each file that has no recorded state, so that the file counts as unchanged. */
  #recordNew(states: ReadonlyMap<string, string>): void {
    for (const [path, state] of states) if (!this.#reported.has(path)) this.#reported.set(path, state);
  }

  #files(): readonly string[] {
    return this.#options.files().slice(0, FILES_MAX);
  }

  /** Also logs how many files are too many, if these have become more. */
  #states(): Map<string, string> {
    const files = this.#options.files();
    const unwatched = Math.max(0, files.length - FILES_MAX);
    if (unwatched > this.#unwatched)
      this.#options.log.warn(
        'not all files of the settings are watched; reload when one of the others changes',
        {
          watched: FILES_MAX,
          others: unwatched,
        },
      );
    this.#unwatched = unwatched;
    return new Map(files.slice(0, FILES_MAX).map((path) => [path, stateOf(path)]));
  }
}

/**
 * Returns a text that changes with the file. Follows links. For a file that cannot be read the text is the
 * error's code, such as ENOENT: while an editor replaces a file, the file may be missing for a moment.
 */
function stateOf(path: string): string {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = statSync(path, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join(' ');
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code);
  }
}

/** Returns `source`, the file of the settings, if there is one, and each file that a setting names, once. */
export function filesOf(source: string | undefined, settings: Settings): string[] {
  const { models, notify, admin, listen } = settings;
  const upstreams = models.flatMap((model) => model.upstreams);
  const paths = [source, ...upstreams.flatMap(({ key_file: key, ca_file: ca }) => [key, ca])];
  paths.push(notify?.secret_file, admin.oidc?.client_secret_file);
  paths.push(listen.tls?.cert_file, listen.tls?.key_file);
  return [...new Set(paths)].filter((path) => path !== undefined);
}
