/**
 * The supervisor: starts the gateways, turns signals and file changes into reloads, replacements and
 * shutdown, and waits until all gateways have ended. The command `serve` (cli/serve.ts) calls it, in the
 * supervisor process. This file imports no code that serves calls, so that the process stays small while it
 * waits.
 *
 * Must hold: after a signal to stop, the supervisor process ends, whatever its gateways do. A gateway that
 * ignores the drain or hangs at its start is killed (test/unit/supervisor/supervisor.test.ts). `Reloads` runs
 * one reload at a time, from `#load` to `#apply` and `#replace`, which use what `#load` has left in `#latest`
 * (test/unit/supervisor/reloads.test.ts).
 */
import { randomUUID } from 'node:crypto';
import { statSync } from 'node:fs';
import { ConfigError } from '../config/config-error.js';
import type { LoadedSettings } from '../config/load.js';
import type { Settings } from '../config/schema.js';
import { adoptInForce } from '../config/settings-in-force.js';
import { SystemClock } from '../core/clock.js';
import { EXIT_GRACE_MS } from '../core/limits.js';
import {
  ALIVE_PERIOD_MS,
  type GatewayReady,
  type RecordReload,
  type ReloadRequest,
} from '../gateway/messages.js';
import type { Log } from '../telemetry/log.js';
import { type GroupEnd, type GroupOptions, type Replacement, RESTART_PAUSES } from './group-member.js';
import { ProcessGroup } from './process-group.js';
import { Reloads } from './reloads.js';

const GATEWAY_ENTRY = new URL('../gateway/main.js', import.meta.url);
/** A start with two million keys takes seconds, so a start that takes two minutes hangs. */
const READY_MS_MAX = 120_000;
/**
 * A main thread stands still for some seconds at most, as far as is known: while the map of LMDB grows or the
 * disk is busy. The limit is far above that, because a kill loses the charges that are not flushed yet.
 */
const SILENT_MS_MAX = 12 * ALIVE_PERIOD_MS;
/**
 * A reload waits first for a gateway that restarts, then twice for threads: SETTINGS_WAIT_MS_MAX
 * (core/limits.ts), which must stay well below half of this time (no test).
 */
const RELOAD_MS_MAX = 60_000;
/** The time from one poll of FileWatch to the next. A change is reported at the second poll that finds it. */
const WATCH_PERIOD_MS = 1_000;

const RELOAD: ReloadRequest = { dryRun: false, restart: false };

/** The source of signals: the process, or an emitter in tests. */
interface SignalSource {
  on(signal: NodeJS.Signals, listener: () => void): unknown;
  off(signal: NodeJS.Signals, listener: () => void): unknown;
}

export interface SupervisorOptions extends GroupOptions {
  /** Reads the settings again in the same way as for the start. Rejects with ConfigError. */
  readonly load: () => Promise<LoadedSettings>;
  /** The configuration file; undefined if there is none. */
  readonly source: string | undefined;
  readonly watchPeriodMs: number;
  /** Called with the settings in force: at the start, and after each successful reload. */
  readonly onSettings: (settings: Settings) => void;
}

/** Returns the options for `serve`. Tests use their own entry and shorter times. */
export function supervisorOptions(
  loaded: LoadedSettings,
  load: () => Promise<LoadedSettings>,
  log: Log,
  onSettings: (settings: Settings) => void,
): SupervisorOptions {
  const { settings, source, demo, inForce } = loaded;
  return {
    load,
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
      load: (dryRun) => this.#load(dryRun),
      apply: (next, dryRun) => this.#apply(next, dryRun),
      replaceProblem: () => this.#group.replaceProblem,
      replace: (next) => this.#replace(next),
      log,
    });
    this.#watch = new FileWatch({
      files: () => filesOf(this.#source, this.#reloads.settings),
      onChange: () => void this.reload('file', 'watch', RELOAD),
      periodMs: watchPeriodMs,
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
    return this.#group.ended.finally(() => this.#watch.setOn(false));
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

  async #load(dryRun: boolean): Promise<Settings> {
    try {
      return await this.#read();
    } catch (error) {
      // The cause may be the disk, or a file that is not yet watched. Then no watched file changes when the
      // cause is gone, so the watch reports the files again.
      if (!dryRun) this.#watch.setApplied(false);
      throw error;
    }
  }

  async #read(): Promise<Settings> {
    const loaded = await this.#options.load();
    // Without a file `load` returns the built-in settings. They must not replace the settings of a file that
    // is missing for a moment.
    if (this.#source !== undefined && loaded.source === undefined)
      throw new ConfigError([`${this.#source} is not there any more: put it back, and reload`]);
    this.#latest = loaded;
    this.#watch.recordRead(filesOf(loaded.source, loaded.settings));
    return loaded.settings;
  }

  /** Returns why the gateways do not apply `next`, which `#load` has just read; empty if they do. */
  async #apply(next: Settings, dryRun: boolean): Promise<readonly string[]> {
    const reasons = await this.#group.reload(next, dryRun);
    if (dryRun) return reasons;
    this.#watch.setApplied(reasons.length === 0);
    if (reasons.length > 0) return reasons;
    this.#watch.setOn(next.watch && !this.#isStopping);
    this.#options.onSettings(next);
    this.#source = this.#latest.source;
    this.#inForce = adoptInForce(this.#inForce, this.#latest.inForce, 'reload');
    this.#group.showInForce(this.#inForce);
    return reasons;
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

/**
 * Returns the files whose content is part of the settings: first `source`, then each file that a setting
 * names. A new setting that names a file must be added here, or a change of its file is not seen.
 */
function filesOf(source: string | undefined, settings: Settings): string[] {
  const { models, notify, admin, listen } = settings;
  const upstreams = models.flatMap((model) => model.upstreams);
  const namedPaths = upstreams.flatMap(({ key_file: key, ca_file: ca }) => [key, ca]);
  namedPaths.push(notify?.secret_file, admin.oidc?.client_secret_file);
  namedPaths.push(listen.tls?.cert_file, listen.tls?.key_file);
  return [source, ...new Set(namedPaths)].filter((path) => path !== undefined);
}

/**
 * How many files are watched at most. The configuration, and a key and a certificate for each of some hundred
 * upstreams, are fewer. A poll of so many takes 3 ms. A change of any other file takes effect at a reload.
 */
const FILES_MAX = 1_000;

/**
 * After so many polls, files are reported again that could not be read or that the gateways did not apply.
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
}

/**
 * Calls `onChange` if files have changed. Polls them every `periodMs`, because file events miss replaced
 * files (editors), switched links to the folder (config maps of Kubernetes), and changes in mounts without
 * events (NFS, bind mounts of containers). A poll takes some 3 µs a file.
 *
 * Must hold: a change is reported once, when its writer has finished, also one during the gateway's start.
 * The change is reported again while the files cannot be read or the gateways do not apply them. A file that
 * the settings begin to name is no change (test/unit/supervisor/supervisor.file-watch.test.ts).
 */
export class FileWatch {
  readonly #options: FileWatchOptions;
  #timer: NodeJS.Timeout | undefined;
  /** The state of each file when it was last read or reported. */
  readonly #reported = new Map<string, string>();
  /** The state of each file at the last poll. */
  #polled: ReadonlyMap<string, string> = new Map();
  /** After how many polls the files are reported again; 0 if the gateways have applied them. */
  #retryPolls = 0;
  /** How many polls remain until the files are reported again; 0 if they will not be. */
  #retryPollsLeft = 0;

  /**
   * To be called when the files have just been read: what has changed since then is reported when the watch
   * is switched on.
   */
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
    if (!isOn) return;
    this.#polled = this.#states();
    this.#recordNew(this.#polled);
    this.#timer = setInterval(() => this.#poll(), this.#options.periodMs);
    this.#timer.unref();
  }

  /**
   * To be called after each reload. `isApplied`: the gateways run with the files as last read. Otherwise the
   * files are reported again, after a growing number of polls (RETRY_POLLS_MIN).
   */
  setApplied(isApplied: boolean): void {
    const doubled = Math.min(Math.max(2 * this.#retryPolls, RETRY_POLLS_MIN), RETRY_POLLS_MAX);
    this.#retryPolls = isApplied ? 0 : doubled;
    this.#retryPollsLeft = this.#retryPolls;
  }

  /**
   * To be called when files have just been read that are perhaps watched from now on. Leaves watched files
   * alone: one may have changed after it was read, which the next poll must report.
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

  /** Records each file that is watched from now on as it is now, so that it counts as unchanged. */
  #recordNew(states: ReadonlyMap<string, string>): void {
    for (const [path, state] of states) if (!this.#reported.has(path)) this.#reported.set(path, state);
  }

  #files(): readonly string[] {
    return this.#options.files().slice(0, FILES_MAX);
  }

  #states(): Map<string, string> {
    return new Map(this.#files().map((path) => [path, stateOf(path)]));
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
