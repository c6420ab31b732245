/**
 * Reloads the settings, one reload after the other: reads the file, checks all of it, and gives what can
 * change live to the gateways; or changes nothing and says why. With a restart the gateways are then replaced
 * one by one. Also watches the files, for `watch`. Supervisor process.
 */
import { ConfigError } from '../config/config-error.js';
import { type Settings, settingsDeclaration } from '../config/schema.js';
import {
  adoptLive,
  adoptReplaced,
  changesOf,
  differenceOf,
  isReplaceable,
  type SettingsDifference,
} from '../config/settings-in-force.js';
import type { ReloadOutcome, ReloadRequest } from '../gateway/messages.js';
import type { Log } from '../telemetry/log.js';
import type { Replacement } from './group-member.js';
import { statSync } from 'node:fs';

export interface ReloadsOptions {
  /** As the file has them that was read at the start; ports are those of the file. */
  readonly settings: Settings;
  /** Reads the file, the environment and the files that they name; throws ConfigError. */
  readonly load: () => Settings;
  /** Gives settings to the gateways; resolves with the reasons why not. Never rejects. */
  readonly apply: (next: Settings, dryRun: boolean) => Promise<readonly string[]>;
  /** Why the gateways cannot be replaced now. */
  readonly replaceRefusal: () => string | undefined;
  /** Begins to replace the gateways by ones with these settings. */
  readonly replace: (next: Settings) => Replacement;
  readonly log: Log;
}

const NOTHING_DONE: Omit<ReloadOutcome, 'problems'> = { applied: [], restartNeeded: [], replacing: 0 };

export class Reloads {
  readonly #options: ReloadsOptions;
  /**
   * What runs, as the file said it. What needs a restart stays as at the start, and so is told by every
   * reload.
   */
  #settings: Settings;
  /** The last in the queue. */
  #last: Promise<unknown> = Promise.resolve();
  /** Those that wait for their turn, and with it for reading the file: a further one of the kind joins it. */
  readonly #waiting = new Map<string, Promise<ReloadOutcome>>();

  constructor(options: ReloadsOptions) {
    this.#options = options;
    this.#settings = options.settings;
  }

  /** What runs. */
  get settings(): Settings {
    return this.#settings;
  }

  /**
   * Reads the file after every reload that was asked for before, so that the last content wins, and a few
   * wait at most. With `dryRun` only tells what would change. `origin` names who asks, for the log. Never
   * rejects.
   */
  reload(origin: string, request: ReloadRequest): Promise<ReloadOutcome> {
    const kind = JSON.stringify([request.dryRun, request.restart]);
    const waiting = this.#waiting.get(kind);
    if (waiting !== undefined) return waiting;
    const outcome = this.#last.then(() => {
      this.#waiting.delete(kind);
      return this.#reload(origin, request);
    });
    this.#waiting.set(kind, outcome);
    this.#last = outcome;
    return outcome;
  }

  async #reload(origin: string, request: ReloadRequest): Promise<ReloadOutcome> {
    const { load, apply, log } = this.#options;
    const { dryRun, restart } = request;
    const refusal = restart ? this.#options.replaceRefusal() : undefined;
    if (refusal !== undefined) return this.#refuse(origin, request, [refusal]);
    let next: Settings;
    try {
      next = load();
    } catch (error) {
      return this.#refuse(origin, request, errorsOf(error));
    }
    const difference = differenceOf(this.#settings, next, restart ? isReplaceable : undefined);
    // Also if nothing differs: a thread may have missed an earlier reload.
    const errors = await apply(next, dryRun);
    if (errors.length > 0) return this.#refuse(origin, request, errors);
    if (dryRun) {
      const paths = [...difference.applied, ...difference.restartNeeded];
      const changes = changesOf(settingsDeclaration, this.#settings, next, paths);
      return { ...difference, changes, problems: errors, replacing: 0 };
    }
    this.#settings = adoptLive(this.#settings, next);
    if (restart) return this.#replace(origin, next, difference);
    log.info('settings reloaded', { origin, ...textsOf(difference) });
    return { ...difference, problems: errors, replacing: 0 };
  }

  #replace(origin: string, next: Settings, difference: SettingsDifference): ReloadOutcome {
    const { replace, log } = this.#options;
    const { count, done } = replace(next);
    log.info('gateways are being replaced', { origin, count, ...textsOf(difference) });
    void done.then((failure) => {
      if (failure !== undefined) {
        log.error('gateways are not all replaced; the others serve on as they are', { error: failure });
        return;
      }
      // What was reloaded meanwhile they have too.
      this.#settings = adoptLive(adoptReplaced(this.#settings, next), this.#settings);
      log.info('gateways are replaced', { origin, count });
    });
    return { ...difference, problems: [], replacing: count };
  }

  #refuse(origin: string, { dryRun, restart }: ReloadRequest, errors: readonly string[]): ReloadOutcome {
    const what = restart ? 'gateways not replaced' : 'settings not reloaded';
    if (!dryRun)
      this.#options.log.warn(`${what}, the old ones stay in force`, {
        origin,
        problems: errors.join('\n'),
      });
    return { ...NOTHING_DONE, problems: errors };
  }
}

function textsOf({ applied, restartNeeded }: SettingsDifference): Record<string, string> {
  return { applied: applied.join(', '), restartNeeded: restartNeeded.join(', ') };
}

function errorsOf(error: unknown): readonly string[] {
  if (error instanceof ConfigError) return error.problems;
  return [error instanceof Error ? (error.stack ?? error.message) : String(error)];
}

/**
 * Files that are looked at: the configuration, and a key or certificate for each of some hundred upstreams.
 */
const FILES_MAX = 1_000;

export interface FileWatchOptions {
  /** Paths that matter now; the first are the most important. */
  readonly files: () => readonly string[];
  readonly onChange: () => void;
  readonly periodMs: number;
}

/**
 * Notices that files have changed. It looks at them once a period and does not wait for the system to tell:
 * that also works if a file is replaced (editors), if a link to its folder is turned (config maps of
 * Kubernetes), and on mounts that tell nothing (NFS, bind mounts of containers). A look costs some 3 µs a
 * file.
 */
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
