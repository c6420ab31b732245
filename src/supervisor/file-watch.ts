/**
 * Notices that files have changed. Supervisor process.
 *
 * It looks at the files once a period rather than waiting for the system to tell: that also works where a file is replaced
 * (editors), where a link to its folder is turned (config maps of Kubernetes), and on mounts that tell nothing (NFS, bind
 * mounts of containers). A look costs some 3 µs a file.
 */
import { statSync } from 'node:fs';

/** Files that are looked at: the configuration, and a key or certificate for each of some hundred upstreams. */
const FILES_MAX = 1_000;

export interface FileWatchOptions {
  /** Paths that matter now; the first are the most important. */
  readonly files: () => readonly string[];
  readonly onChange: () => void;
  readonly periodMs: number;
}

export class FileWatch {
  readonly #options: FileWatchOptions;
  #timer: NodeJS.Timeout | undefined;
  /** How the files were when their content was last taken, and at the last look. */
  #taken = '';
  #seen = '';

  constructor(options: FileWatchOptions) {
    this.#options = options;
  }

  /** Begins to look, or with false ends; idempotent. */
  set isOn(on: boolean) {
    if (on === (this.#timer !== undefined)) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    if (!on) return;
    this.#taken = this.#seen = this.#fingerprint();
    this.#timer = setInterval(() => this.#look(), this.#options.periodMs);
    this.#timer.unref();
  }

  /** A change counts when two looks in a row find the same: whoever writes has finished. */
  #look(): void {
    const now = this.#fingerprint();
    const isSettled = now === this.#seen;
    this.#seen = now;
    if (!isSettled || now === this.#taken) return;
    this.#taken = now;
    this.#options.onChange();
  }

  /** Links are followed. A file that is not there is a state too: it may be being replaced. */
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
