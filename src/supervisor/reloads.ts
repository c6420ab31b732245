/**
 * Reloads the settings, one reload after the other. supervisor.ts calls it for a signal, an operator or a
 * changed file, in the supervisor process.
 *
 * A reload reads and checks the whole file, then sends the gateways the settings that apply at a reload. If
 * there is any problem, the reload changes nothing and returns the problems. With `restart` the gateways are
 * then replaced one by one.
 *
 * Must hold: a file with a mistake changes nothing at all, and reloads never overlap
 * (test/unit/supervisor/reloads.test.ts). That `apply` is all or nothing is held by `reload` of
 * process-group.ts (test/unit/supervisor/process-group.test.ts).
 */
import { ConfigError, namesUnsetVariable } from '../config/config-error.js';
import type { Settings } from '../config/schema.js';
import { adoptLive, adoptReplaced, declarationOnDisk, isReplaceable } from '../config/settings-adoption.js';
import { changesOf, differenceOf, type SettingsDifference } from '../config/settings-in-force.js';
import type { ReloadOutcome, ReloadRequest } from '../gateway/messages.js';
import type { Log } from '../telemetry/log.js';
import type { Replacement } from './group-member.js';

interface ReloadsOptions {
  /** The settings read from the file at the start, with the file's ports. */
  readonly settings: Settings;
  /**
   * Reads the file, the environment, and the files that these two name. Rejects with ConfigError. Ends in a
   * bounded time, as `apply` does: later reloads wait for both.
   */
  readonly load: (request: ReloadRequest) => Promise<Settings>;
  /**
   * Sends settings to the gateways, to all or to none: with problems all have the former ones (ProcessGroup
   * undoes what some applied). With `dryRun` it only asks whether they can apply them. Resolves with the
   * problems, empty if there are none; never rejects.
   */
  readonly apply: (next: Settings, request: ReloadRequest) => Promise<readonly string[]>;
  /** Why the gateways cannot be replaced now; undefined if they can. */
  readonly replaceProblem: () => string | undefined;
  /** Begins to replace the gateways by new ones with these settings. */
  readonly replace: (next: Settings) => Replacement;
  readonly log: Log;
}

const ENVIRONMENT_HINT =
  'A reload has the environment variables that the gateway was started with. For others start it again.';

/**
 * Returns the same text for requests that may share a reload: those with the same value of every field. A new
 * field of ReloadRequest does not compile until it is named here.
 */
function kindOf({ dryRun, restart, ...others }: ReloadRequest): string {
  others satisfies Record<string, never>;
  return JSON.stringify([dryRun, restart]);
}

/** A reload that has not read the file yet. */
interface WaitingReload {
  /** The `origin` of each request that shares the reload. */
  readonly origins: Set<string>;
  readonly outcome: Promise<ReloadOutcome>;
}

export class Reloads {
  readonly #options: ReloadsOptions;
  /**
   * The settings in force, as the file gave them. A setting that needs a restart keeps its value from the
   * start, so every reload reports it again.
   */
  #settings: Settings;
  /** Resolves when the last reload of the queue has ended. Never rejects, so that the next one is run. */
  #last: Promise<unknown> = Promise.resolve();
  /**
   * The waiting reload of each kind, which a further request of that kind shares. The kinds are those of
   * `dryRun` and `restart`: four, which bounds the queue.
   */
  readonly #waiting = new Map<string, WaitingReload>();

  constructor(options: ReloadsOptions) {
    this.#options = options;
    this.#settings = options.settings;
  }

  get settings(): Settings {
    return this.#settings;
  }

  /**
   * Reads and applies the file after all earlier reloads, so the last content wins. Equal requests share a
   * reload. With `dryRun` the outcome only reports what would change. `origin` is logged: where the request
   * comes from. Never rejects.
   */
  reload(origin: string, request: ReloadRequest): Promise<ReloadOutcome> {
    const kind = kindOf(request);
    const waiting = this.#waiting.get(kind);
    if (waiting !== undefined) {
      waiting.origins.add(origin);
      return waiting.outcome;
    }
    // Origins may be added while the reload waits, so their text is made when the reload begins.
    const origins = new Set([origin]);
    const outcome = this.#last
      .then(() => {
        this.#waiting.delete(kind);
        return this.#reload([...origins].join(', '), request);
      })
      .catch((error: unknown) => this.#reject([...origins].join(', '), request, problemsOf(error)));
    this.#waiting.set(kind, { origins, outcome });
    this.#last = outcome;
    return outcome;
  }

  async #reload(origin: string, request: ReloadRequest): Promise<ReloadOutcome> {
    const { load, apply, log } = this.#options;
    const { dryRun, restart } = request;
    const problem = restart ? this.#options.replaceProblem() : undefined;
    if (problem !== undefined) return this.#reject(origin, request, [problem]);
    let next: Settings;
    try {
      next = await load(request);
    } catch (error) {
      const problems = problemsOf(error);
      // In the shell of an operator, where `config check` found nothing wrong, the variable may be set.
      const hint = problems.some(namesUnsetVariable) ? [ENVIRONMENT_HINT] : [];
      return this.#reject(origin, request, [...problems, ...hint]);
    }
    const difference = differenceOf(this.#settings, next, restart ? isReplaceable : undefined);
    const { applied, restartNeeded } = difference;
    const paths = dryRun ? [...applied, ...restartNeeded] : applied;
    // The old and new values as operators may see them: the declarations tell which are secret.
    const changes = changesOf(declarationOnDisk(), this.#settings, next, paths);
    // Settings without a difference are sent too, because a thread may have missed an earlier reload.
    const problems = await apply(next, request);
    if (problems.length > 0) return this.#reject(origin, request, problems);
    if (dryRun) return { ...difference, changes, problems, replacing: 0 };
    this.#settings = adoptLive(this.#settings, next);
    // `replaceProblem` was asked before two waits. Only a stop can have come since, which ends a replacement.
    if (restart) return { ...this.#replace(origin, next, difference), changes };
    log.info('settings reloaded', { origin, ...textsOf(difference) });
    return { ...difference, changes, problems, replacing: 0 };
  }

  #replace(origin: string, next: Settings, difference: SettingsDifference): ReloadOutcome {
    const { replace, log } = this.#options;
    const { count, done } = replace(next);
    log.info('gateways are being replaced', { origin, count, ...textsOf(difference) });
    // `done` never rejects.
    void done.then((failure) => {
      if (failure !== undefined) {
        log.error('gateways are not all replaced; the others serve on as they are', { error: failure });
        return;
      }
      // The new gateways also have the settings of reloads during the replacement.
      this.#settings = adoptLive(adoptReplaced(this.#settings, next), this.#settings);
      log.info('gateways are replaced', { origin, count });
    });
    return { ...difference, problems: [], replacing: count };
  }

  #reject(origin: string, { dryRun, restart }: ReloadRequest, problems: readonly string[]): ReloadOutcome {
    const failure = restart ? 'gateways not replaced' : 'settings not reloaded';
    if (!dryRun)
      this.#options.log.warn(`${failure}, the old ones stay in force`, {
        origin,
        problems: problems.join('\n'),
      });
    return { applied: [], restartNeeded: [], problems, replacing: 0 };
  }
}

/** Returns the difference as fields of a log entry. */
function textsOf({ applied, restartNeeded }: SettingsDifference): Record<string, string> {
  return { applied: applied.join(', '), restartNeeded: restartNeeded.join(', ') };
}

/** A ConfigError has texts for operators. Any other error is a bug or the disk, so its stack is shown. */
function problemsOf(error: unknown): readonly string[] {
  if (error instanceof ConfigError) return error.problems;
  return [error instanceof Error ? (error.stack ?? error.message) : String(error)];
}
