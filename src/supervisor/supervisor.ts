/**
 * The supervisor: starts the gateways, turns signals and file changes into reloads, replacements and
 * shutdown, and waits for the end. The command `serve` calls it, in the supervisor process. It imports no
 * code that serves calls, so that it stays small while it waits.
 *
 * Must hold: after a signal to stop, the supervisor ends whatever its gateways do: it kills a gateway that
 * ignores the drain or hangs at its start (test/unit/supervisor/supervisor.test.ts).
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
import { type GroupEnd, type GroupOptions, RESTART_PAUSES } from './group-member.js';
import { ProcessGroup } from './process-group.js';
import { Reloads } from './reloads.js';

const GATEWAY_ENTRY = new URL('../gateway/main.js', import.meta.url);
/** Reading two million keys takes seconds. A start that takes two minutes hangs. */
const READY_MS_MAX = 120_000;
/**
 * No main thread is known to stand still for more than some seconds: as the map of LMDB grows, or for a disk
 * that is busy. It is long because a kill loses the charges that are not flushed yet.
 */
const SILENT_MS_MAX = 12 * ALIVE_PERIOD_MS;
/** A reload waits twice for threads (SETTINGS_WAIT_MS_MAX), and first for a gateway that restarts. */
const RELOAD_MS_MAX = 60_000;
/** The period of FileWatch. A change takes effect after two polls. */
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

/** Returns the options of the product. Tests use their own entry and shorter times. */
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
 * Runs until all gateways have ended: SIGTERM and SIGINT drain them, a second SIGINT kills them, or one
 * cannot run. SIGHUP reloads the settings, SIGUSR2 also replaces the gateways. Calls `onReady` at most once.
 * Never rejects.
 */
export async function supervise(
  options: SupervisorOptions,
  signals: SignalSource,
  onReady: (ready: GatewayReady) => void,
): Promise<GroupEnd> {
  const { settings, load, watchPeriodMs, onSettings, log } = options;
  onSettings(settings);
  let { inForce, source } = options;
  let latest: Pick<LoadedSettings, 'inForce' | 'source'> = options;
  // `read`, `reloads` and `watch` use what is made below them, but not before this function first awaits.
  const read = async (): Promise<Settings> => {
    const loaded = await load();
    // The built-in settings are for a start without a file, and not for a file that is away for a moment.
    if (source !== undefined && loaded.source === undefined)
      throw new ConfigError([`${source} is not there any more: put it back, and reload`]);
    latest = loaded;
    const { source: found } = loaded;
    watch.haveRead([...(found === undefined ? [] : [found]), ...namedFiles(loaded.settings)]);
    return loaded.settings;
  };
  const reloads: Reloads = new Reloads({
    settings,
    load: async (dryRun) => {
      try {
        return await read();
      } catch (error) {
        // What was wrong may be none of the watched files: a new file that they name, or the disk.
        if (!dryRun) watch.isTaken = false;
        throw error;
      }
    },
    apply: async (next, dryRun) => {
      const errors = await group.reload(next, dryRun);
      if (!dryRun) watch.isTaken = errors.length === 0;
      if (!dryRun && errors.length === 0) {
        watch.isOn = next.watch && !stopping;
        onSettings(next);
        source = latest.source;
        inForce = adoptInForce(inForce, latest.inForce, 'reload');
        group.showInForce(inForce);
      }
      return errors;
    },
    replaceProblem: () => group.replaceProblem,
    replace: (next) => {
      const replacement = group.replace(next);
      const replaced = latest.inForce;
      void replacement.done.then((failure) => {
        if (failure !== undefined) return;
        inForce = adoptInForce(inForce, replaced, 'replacement');
        group.showInForce(inForce);
      });
      return replacement;
    },
    log,
  });
  /** Also records the reload. If an operator asks for one, the operator's gateway records it. */
  const reload = async (origin: string, by: RecordReload['by'], request: ReloadRequest): Promise<void> => {
    const { problems, changes, replacing } = await reloads.reload(origin, request);
    if (problems.length === 0) group.recordReload({ by, changes, replacing });
  };
  const watch: FileWatch = new FileWatch({
    files: () => [...(source === undefined ? [] : [source]), ...namedFiles(reloads.settings)],
    onChange: () => void reload('file', 'watch', RELOAD),
    periodMs: watchPeriodMs,
  });
  const group: ProcessGroup = new ProcessGroup(options, {
    onReady: (ready) => {
      watch.isOn = settings.watch;
      onReady(ready);
    },
    onReloadRequested: (request) => reloads.reload('admin', request),
  });
  let stopping = false;
  let interrupted = false;
  const onTerminate = (): void => {
    if (stopping) return;
    stopping = true;
    watch.isOn = false;
    log.info('stopping: no new calls, those in flight may finish', {
      drain_timeout_ms: group.settings.drain_timeout_ms,
    });
    group.drain();
  };
  const onInterrupt = (): void => {
    if (interrupted) {
      group.kill();
      return;
    }
    interrupted = true;
    onTerminate();
  };
  const onHangUp = (): void => void reload('SIGHUP', 'signal', RELOAD);
  const onReplace = (): void => void reload('SIGUSR2', 'signal', { dryRun: false, restart: true });

  signals.on('SIGTERM', onTerminate);
  signals.on('SIGINT', onInterrupt);
  signals.on('SIGHUP', onHangUp);
  signals.on('SIGUSR2', onReplace);
  try {
    return await group.ended;
  } finally {
    watch.isOn = false;
    signals.off('SIGTERM', onTerminate);
    signals.off('SIGINT', onInterrupt);
    signals.off('SIGHUP', onHangUp);
    signals.off('SIGUSR2', onReplace);
  }
}

/** Returns the files whose content is part of the settings. */
function namedFiles({ models, notify, admin: { oidc }, listen: { tls } }: Settings): string[] {
  const upstreams = models.flatMap((model) => model.upstreams);
  const files = upstreams.flatMap(({ key_file: key, ca_file: ca }) => [key, ca]);
  return [
    ...new Set([...files, notify?.secret_file, oidc?.client_secret_file, tls?.cert_file, tls?.key_file]),
  ].filter((path) => path !== undefined);
}

/**
 * How many files are watched: the configuration, and a key or certificate for each of some hundred upstreams.
 */
const FILES_MAX = 1_000;

/**
 * After how many polls files are reported again that could not be read, or that the gateways did not take.
 * The number doubles, from the first value to the second: seconds for a gateway that had ended, minutes for a
 * plan in use.
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
 * files (editors), switched links to the folder (config maps of Kubernetes), and mounts without events (NFS,
 * bind mounts of containers). A poll costs some 3 µs a file.
 *
 * Must hold: a change is reported once, when its writer has finished, also one during the gateway's start,
 * and again while it cannot be read or the gateways do not take it; a file that is named from now on is no
 * change
 * (test/unit/supervisor/supervisor.file-watch.test.ts).
 */
export class FileWatch {
  readonly #options: FileWatchOptions;
  #timer: NodeJS.Timeout | undefined;
  /** The state of each file when it was last read or reported. */
  readonly #reported = new Map<string, string>();
  /** The states at the last poll. */
  #polled: ReadonlyMap<string, string> = new Map();
  /** The polls from a failure to the report after it, and how many of them are left; 0 if there was none. */
  #retryPolls = 0;
  #pollsLeft = 0;

  /** To be called when the files have just been read: the first start reports what changed since. */
  constructor(options: FileWatchOptions) {
    this.#options = options;
    this.haveRead(this.#files());
  }

  /** Starts or stops polling. Idempotent. */
  set isOn(on: boolean) {
    // What changed while it was off is no news when it is switched on.
    if (!on) {
      this.#reported.clear();
      this.isTaken = true;
    }
    if (on === (this.#timer !== undefined)) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    if (!on) return;
    this.#polled = this.#states();
    this.#isNews(this.#polled);
    this.#timer = setInterval(() => this.#poll(), this.#options.periodMs);
    this.#timer.unref();
  }

  /** Whether the gateways run with the files as they were last read. */
  set isTaken(taken: boolean) {
    this.#retryPolls = taken ? 0 : Math.min(Math.max(2 * this.#retryPolls, RETRY_POLLS_MIN), RETRY_POLLS_MAX);
    this.#pollsLeft = this.#retryPolls;
  }

  /** To be called when files have just been read that are perhaps watched from now on. */
  haveRead(paths: readonly string[]): void {
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
    const isRetried = this.#pollsLeft > 0 && --this.#pollsLeft === 0;
    if (!this.#isNews(states) && !isRetried) return;
    for (const [path, state] of states) this.#reported.set(path, state);
    this.#options.onChange();
  }

  /** Whether a file has changed. One that was not known before has not: its state is noted. */
  #isNews(states: ReadonlyMap<string, string>): boolean {
    let isNews = false;
    for (const [path, state] of states) {
      const known = this.#reported.get(path);
      if (known === undefined) this.#reported.set(path, state);
      else if (known !== state) isNews = true;
    }
    return isNews;
  }

  #files(): readonly string[] {
    return this.#options.files().slice(0, FILES_MAX);
  }

  /**
   * Follows links. A missing file counts as a state too, because it may be in the middle of a replacement.
   */
  #states(): Map<string, string> {
    return new Map(this.#files().map((path) => [path, stateOf(path)]));
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
