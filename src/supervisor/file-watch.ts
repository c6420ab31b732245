/**
 * Watches the settings' files and reports changes, for a reload (`watch`). supervisor.ts creates it, in the
 * supervisor process.
 *
 * Must hold: a change is reported once, when its writer has finished
 * (test/unit/supervisor/file-watch.test.ts).
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
  #reported = '';
  #polled = '';

  constructor(options: FileWatchOptions) {
    this.#options = options;
  }

  /** Starts or stops polling. Idempotent. */
  set isOn(on: boolean) {
    if (on === (this.#timer !== undefined)) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    if (!on) return;
    this.#reported = this.#polled = this.#fingerprint();
    this.#timer = setInterval(() => this.#poll(), this.#options.periodMs);
    this.#timer.unref();
  }

  /** Reports a change when two polls in a row find the same state: the writer has then finished. */
  #poll(): void {
    const state = this.#fingerprint();
    const isSettled = state === this.#polled;
    this.#polled = state;
    if (!isSettled || state === this.#reported) return;
    this.#reported = state;
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
