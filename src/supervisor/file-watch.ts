/**
 * Sees that the settings' files have changed, for a reload (`watch`). supervisor.ts has one, in its process.
 *
 * Must hold: a change is reported once, when its writer has finished. Test: unit/supervisor/file-watch.
 */
import { statSync } from 'node:fs';

/**
 * How many files are watched: the configuration, and a key or certificate for each of some hundred upstreams.
 */
const FILES_MAX = 1_000;

export interface FileWatchOptions {
  /** Returns the paths to watch now, the most important first. */
  readonly files: () => readonly string[];
  readonly onChange: () => void;
  readonly periodMs: number;
}

/**
 * Calls `onChange` if files have changed. Polls them every `periodMs`, because file events miss replaced
 * files (editors), switched links to the folder (config maps of Kubernetes), and mounts without events (NFS,
 * bind mounts of containers). A poll costs some 3 µs a file.
 */
export class FileWatch {
  readonly #options: FileWatchOptions;
  #timer: NodeJS.Timeout | undefined;
  /** The state of the files at the last reported change, and at the last poll. */
  #taken = '';
  #seen = '';

  constructor(options: FileWatchOptions) {
    this.#options = options;
  }

  /** Starts or stops polling. Idempotent. */
  set isOn(on: boolean) {
    if (on === (this.#timer !== undefined)) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    if (!on) return;
    this.#taken = this.#seen = this.#fingerprint();
    this.#timer = setInterval(() => this.#look(), this.#options.periodMs);
    this.#timer.unref();
  }

  /** Reports a change when two polls in a row see the same state: the writer has then finished. */
  #look(): void {
    const now = this.#fingerprint();
    const isSettled = now === this.#seen;
    this.#seen = now;
    if (!isSettled || now === this.#taken) return;
    this.#taken = now;
    this.#options.onChange();
  }

  /**
   * Follows links. A missing file counts as a state too, because it may be in the middle of a replacement.
   */
  #fingerprint(): string {
    const files = this.#options.files().slice(0, FILES_MAX);
    return files.map((path) => `${path}\n${stateOf(path)}\n`).join('');
  }
}

function stateOf(path: string): string {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = statSync(path, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join(' ');
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code);
  }
}
