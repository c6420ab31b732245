/**
 * Reloads of the settings, one after the other: the file is read, all of it is checked, and what is live of it is given to
 * the gateways; or nothing is changed and the reasons are told. With a restart the gateways are then replaced one by one.
 * Supervisor process.
 */
import { ConfigError } from '../config/config-error.js';
import { settingsDeclaration, type Settings } from '../config/schema.js';
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
import type { Replacement } from './group-options.js';

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
  /** What runs, as the file said it. What needs a restart stays as at the start, and so is told by every reload. */
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
   * Reads the file after every reload that was asked for before, so that the last content wins, and a few wait at most. With
   * `dryRun` only tells what would change. `origin` names who asks, for the log. Never rejects.
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
    // Also where nothing differs: a thread may have missed an earlier reload.
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
