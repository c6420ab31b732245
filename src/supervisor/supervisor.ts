/**
 * The supervisor: starts the gateways, turns signals and file changes into reloads, replacements and
 * shutdown, and waits until all gateways have ended. The command `serve` (cli/serve.ts) calls it, in the
 * supervisor process. This file imports no code that serves calls, so that the process stays small while it
 * waits.
 *
 * Must hold: after a signal to stop, the supervisor process ends, whatever its gateways do. A gateway that
 * ignores the drain or hangs at its start is killed (test/unit/supervisor/supervisor.test.ts). `Reloads` runs
 * one reload at a time, from `#load` to `#apply` and `#replace`, which use what `#load` has left in `#latest`
 * (test/unit/supervisor/reloads.test.ts). So a `load` that hangs must keep no later reload waiting.
 */
import { randomUUID } from 'node:crypto';
import { ConfigError } from '../config/config-error.js';
import type { LoadedSettings } from '../config/load.js';
import type { Settings } from '../config/schema.js';
import { adoptInForce } from '../config/settings-in-force.js';
import { SystemClock } from '../core/clock.js';
import { EXIT_GRACE_MS, SETTINGS_WAIT_MS_MAX } from '../core/limits.js';
import {
  ALIVE_PERIOD_MS,
  type GatewayReady,
  type RecordReload,
  type ReloadRequest,
} from '../gateway/messages.js';
import type { Log } from '../telemetry/log.js';
import { filesOf, FileWatch } from './file-watch.js';
import { type GroupEnd, type GroupOptions, type Replacement, RESTART_PAUSES } from './group-member.js';
import { callLater } from './late-timer.js';
import { ProcessGroup } from './process-group.js';
import { Reloads } from './reloads.js';

const GATEWAY_ENTRY = new URL('../gateway/main.js', import.meta.url);
/** A start with two million keys takes seconds, so a start that takes two minutes hangs. */
const READY_MS_MAX = 120_000;
/**
 * No known cause blocks a main thread for more than some seconds: LMDB grows its map, the disk is busy. The
 * limit is far above that, because a kill loses the charges that are not flushed yet.
 */
const SILENT_MS_MAX = 12 * ALIVE_PERIOD_MS;
/** A read takes half a second, and more on a busy machine. A file that never ends, such as a pipe, hangs. */
const LOAD_MS_MAX = 60_000;
const HANGS = 'see whether a file of the settings is a pipe, or its disk hangs';
/** A gateway may still start, and then waits twice for its threads, each time up to SETTINGS_WAIT_MS_MAX. */
const RELOAD_MS_MAX = 6 * SETTINGS_WAIT_MS_MAX;
/** The time between two polls of FileWatch. A change is reported at the second poll that finds it. */
const WATCH_PERIOD_MS = 1_000;

const RELOAD: ReloadRequest = { dryRun: false, restart: false };

/** The source of signals: the process, or an emitter in tests. */
interface SignalSource {
  on(signal: NodeJS.Signals, listener: () => void): unknown;
  off(signal: NodeJS.Signals, listener: () => void): unknown;
}

export interface SupervisorOptions extends GroupOptions {
  /**
   * Reads the settings again in the same way as for the start. Rejects with ConfigError. Called once at a
   * time. `stop` is aborted if nobody waits for the settings any more.
   */
  readonly load: (stop: AbortSignal) => Promise<LoadedSettings>;
  /** How long a reload waits for `load`. */
  readonly loadMsMax: number;
  /** The configuration file; undefined if there is none. */
  readonly source: string | undefined;
  readonly watchPeriodMs: number;
  /** Called with the settings in force: at the start, and after each successful reload. */
  readonly onSettings: (settings: Settings) => void;
}

/** Returns the options for `serve`. Tests use their own entry and shorter times. */
export function supervisorOptions(
  loaded: LoadedSettings,
  load: SupervisorOptions['load'],
  log: Log,
  onSettings: (settings: Settings) => void,
): SupervisorOptions {
  const { settings, source, demo, inForce } = loaded;
  return {
    load,
    loadMsMax: LOAD_MS_MAX,
    source,
    onSettings,
    watchPeriodMs: WATCH_PERIOD_MS,
    entry: GATEWAY_ENTRY,
    settings,
    demo,
    inForce,
    groupId: randomUUID(),
    pauses: RESTART_PAUSES,
    readyMsMax: READY_MS_MAX,
    silentMsMax: SILENT_MS_MAX,
    exitGraceMs: EXIT_GRACE_MS,
    reloadMsMax: RELOAD_MS_MAX,
    clock: new SystemClock(),
    log,
  };
}

/**
 * Runs until all gateways have ended, or until none can be started. SIGTERM and SIGINT drain the gateways,
 * and a second SIGINT kills them. SIGHUP reloads the settings, and SIGUSR2 also replaces the gateways.
 * `onReady` is called at most once, when the first gateway serves. Never rejects.
 */
export async function supervise(
  options: SupervisorOptions,
  signals: SignalSource,
  onReady: (ready: GatewayReady) => void,
): Promise<GroupEnd> {
  options.onSettings(options.settings);
  const supervisor = new Supervisor(options, onReady);
  const handlers: readonly (readonly [NodeJS.Signals, () => void])[] = [
    ['SIGTERM', () => supervisor.stop()],
    ['SIGINT', () => supervisor.interrupt()],
    ['SIGHUP', () => void supervisor.reload('SIGHUP', 'signal', RELOAD)],
    ['SIGUSR2', () => void supervisor.reload('SIGUSR2', 'signal', { dryRun: false, restart: true })],
  ];
  for (const [signal, handler] of handlers) signals.on(signal, handler);
  try {
    return await supervisor.ended;
  } finally {
    for (const [signal, handler] of handlers) signals.off(signal, handler);
  }
}

class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #reloads: Reloads;
  readonly #watch: FileWatch;
  readonly #group: ProcessGroup;
  /**
   * What operators see: the settings that the gateways run with, as texts. A setting that a reload cannot
   * change keeps its text until the gateways are replaced, or until a restart (`adoptInForce`).
   */
  #inForce: LoadedSettings['inForce'];
  /** The path of the file that the last applied settings were read from; undefined if there is none. */
  #source: string | undefined;
  /** What `#load` read last, whether the gateways have applied it or not; also of a dry run. */
  #latest: Pick<LoadedSettings, 'inForce' | 'source'>;
  /** Aborts the `load` that has not ended; undefined if none runs. */
  #loading: AbortController | undefined;
  #isStopping = false;
  #isInterrupted = false;

  /** Starts the first gateway. The watch is switched on when it serves. */
  constructor(options: SupervisorOptions, onReady: (ready: GatewayReady) => void) {
    const { settings, watchPeriodMs, log } = options;
    this.#options = options;
    this.#inForce = options.inForce;
    this.#source = options.source;
    this.#latest = options;
    this.#reloads = new Reloads({
      settings,
      load: (request) => this.#load(request),
      apply: (next, request) => this.#apply(next, request),
      replaceProblem: () => this.#group.replaceProblem,
      replace: (next) => this.#replace(next),
      log,
    });
    this.#watch = new FileWatch({
      files: () => filesOf(this.#source, this.#reloads.settings),
      onChange: () => void this.reload('file', 'watch', RELOAD),
      periodMs: watchPeriodMs,
      log,
    });
    this.#group = new ProcessGroup(options, {
      onReady: (ready) => {
        this.#watch.setOn(settings.watch && !this.#isStopping);
        onReady(ready);
      },
      onReloadRequested: (request) => this.#reloads.reload('admin', request),
    });
  }

  /** Resolves when all gateways have ended. */
  get ended(): Promise<GroupEnd> {
    return this.#group.ended.finally(() => {
      this.#watch.setOn(false);
      this.#loading?.abort(new ConfigError(['the gateway is stopping']));
    });
  }

  /**
   * Reloads for a signal or a changed file, and has the reload recorded. Operators reload by
   * `onReloadRequested` instead: the gateway that an operator asks records that reload itself.
   */
  async reload(origin: string, by: RecordReload['by'], request: ReloadRequest): Promise<void> {
    const { problems, changes, replacing } = await this.#reloads.reload(origin, request);
    if (problems.length === 0) this.#group.recordReload({ by, changes, replacing });
  }

  /** Drains the gateways. Idempotent. */
  stop(): void {
    if (this.#isStopping) return;
    this.#isStopping = true;
    this.#watch.setOn(false);
    this.#options.log.info('stopping: no new calls, those in flight may finish', {
      drain_timeout_ms: this.#group.drainTimeoutMs,
    });
    this.#group.drain();
  }

  /** Drains the gateways, and kills them the second time. */
  interrupt(): void {
    if (this.#isInterrupted) this.#group.kill();
    this.#isInterrupted = true;
    this.stop();
  }

  async #load({ dryRun }: ReloadRequest): Promise<Settings> {
    try {
      const loaded = await this.#loadWithin();
      // Without a file `load` returns the built-in settings. They must not replace the settings of a file
      // that is missing for a moment.
      if (this.#source !== undefined && loaded.source === undefined)
        throw new ConfigError([`${this.#source} is not there any more: put it back, and reload`]);
      this.#latest = loaded;
      this.#watch.recordRead(filesOf(loaded.source, loaded.settings));
      return loaded.settings;
    } catch (error) {
      // The cause may be the disk, or a file that is not yet watched. Then no watched file changes when the
      // cause has passed, so the watch reports the files again.
      if (!dryRun) this.#watch.setApplied(false);
      throw error;
    }
  }

  /**
   * As `load` of the options. Rejects also after `loadMsMax`, and when all gateways have ended: what `load`
   * resolves with after that is dropped.
   */
  async #loadWithin(): Promise<LoadedSettings> {
    const { load, loadMsMax } = this.#options;
    // What its abort has not ended waits for a disk, for which another `load` would wait too.
    if (this.#loading !== undefined) throw new ConfigError([`an earlier reload still reads: ${HANGS}`]);
    const loading = new AbortController();
    const { signal } = loading;
    const loaded = load(signal).finally(() => (this.#loading = undefined));
    this.#loading = loading;
    const aborted = new Promise<never>((_, reject) =>
      signal.addEventListener('abort', () => reject(signal.reason as ConfigError)),
    );
    const cancelAbort = callLater(loadMsMax, () =>
      loading.abort(new ConfigError([`the settings were not read within ${loadMsMax} ms: ${HANGS}`])),
    );
    try {
      return await Promise.race([loaded, aborted]);
    } finally {
      cancelAbort();
    }
  }

  /** Has the gateways apply `next`, which `#load` has just read. Returns the problems, empty if they do. */
  async #apply(next: Settings, request: ReloadRequest): Promise<readonly string[]> {
    const problems = await this.#group.reload(next, request);
    if (request.dryRun) return problems;
    this.#watch.setApplied(problems.length === 0);
    if (problems.length > 0) return problems;
    this.#watch.setOn(next.watch && !this.#isStopping);
    this.#options.onSettings(next);
    this.#source = this.#latest.source;
    this.#inForce = adoptInForce(this.#inForce, this.#latest.inForce, 'reload');
    this.#group.showInForce(this.#inForce);
    return problems;
  }

  #replace(next: Settings): Replacement {
    const replacement = this.#group.replace(next);
    // `#latest` is read now, because reloads during the replacement change it.
    const { inForce: replacingInForce } = this.#latest;
    void replacement.done.then((failure) => {
      if (failure !== undefined) return;
      this.#inForce = adoptInForce(this.#inForce, replacingInForce, 'replacement');
      this.#group.showInForce(this.#inForce);
    });
    return replacement;
  }
}
