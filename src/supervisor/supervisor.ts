/**
 * The supervisor: never serves, watches the gateways and hears the signals. Imports nothing that serves, so that it stays
 * small while it waits. Supervisor process.
 */
import { SystemClock } from '../core/clock.js';
import type { GatewayReady, StartGateway } from '../gateway/messages.js';
import type { Log } from '../telemetry/log.js';
import { ProcessGroup, type GroupEnd, type GroupOptions } from './process-group.js';
import { RESTART_PAUSES } from './restart-policy.js';

const GATEWAY_ENTRY = new URL('../gateway/main.js', import.meta.url);
/** Two million keys are read in seconds; a start that takes two minutes has hung. */
const READY_MS_MAX = 120_000;
/** The last flush takes milliseconds; a slow disk gets this long. */
const EXIT_GRACE_MS = 5_000;

/** Where signals come from: the process, or a test's emitter. */
export interface SignalSource {
  on(signal: NodeJS.Signals, listener: () => void): unknown;
  off(signal: NodeJS.Signals, listener: () => void): unknown;
}

/** What the product runs with; tests put their own gateway and shorter times in. */
export function supervisorOptions(start: StartGateway, log: Log): GroupOptions {
  return {
    entry: GATEWAY_ENTRY,
    start,
    pauses: RESTART_PAUSES,
    readyMsMax: READY_MS_MAX,
    exitGraceMs: EXIT_GRACE_MS,
    clock: new SystemClock(),
    log,
  };
}

/**
 * Runs until the gateways have ended: by SIGTERM or SIGINT, which drain, by a second SIGINT, which kills, or because a
 * gateway cannot run. Never rejects. `onReady` is called once.
 */
export async function supervise(
  options: GroupOptions,
  signals: SignalSource,
  onReady: (ready: GatewayReady) => void,
): Promise<GroupEnd> {
  const group = new ProcessGroup(options, onReady);
  let stopping = false;
  let interrupted = false;
  const onTerminate = (): void => {
    if (stopping) return;
    stopping = true;
    options.log.info('stopping: no new calls, those in flight may finish', {
      drain_timeout_ms: options.start.settings.drain_timeout_ms,
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
  const onHangUp = (): void =>
    options.log.info(
      'SIGHUP is ignored: this version reads its settings at the start alone, restart to change them',
    );

  signals.on('SIGTERM', onTerminate);
  signals.on('SIGINT', onInterrupt);
  signals.on('SIGHUP', onHangUp);
  try {
    return await group.ended;
  } finally {
    signals.off('SIGTERM', onTerminate);
    signals.off('SIGINT', onInterrupt);
    signals.off('SIGHUP', onHangUp);
  }
}
