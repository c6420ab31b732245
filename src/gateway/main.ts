/**
 * Entry of a gateway process: follows the supervisor's orders. Main thread of a gateway process.
 */
import { findGateway } from '../admin/gateway-file.js';
import { createLog } from '../telemetry/log.js';
import { Gateway } from './gateway.js';
import {
  GATEWAY_REFUSED_EXIT_CODE,
  type FromGateway,
  type StartGateway,
  type ToGateway,
} from './messages.js';

const log = createLog('gateway');
let gateway: Gateway | undefined;
let draining = false;

/** Sends and waits until it has left: a process that exits at once would lose it. */
function say(message: FromGateway): Promise<void> {
  return new Promise((resolve) => {
    if (process.send === undefined || !process.connected) resolve();
    else process.send(message, () => resolve());
  });
}

/** Two gateways on one store would each admit the whole of every limit. */
async function assertDataUnused(dataPath: string): Promise<void> {
  const other = await findGateway(dataPath);
  if (other === undefined) return;
  throw new Error(
    `Another gateway (process ${other.pid}) serves from ${dataPath}. Stop it, or give this one a folder of its own (data, TOLLGATE_DATA).`,
  );
}

async function start(message: StartGateway): Promise<void> {
  try {
    await assertDataUnused(message.settings.data);
    gateway = new Gateway({
      settings: message.settings,
      demo: message.demo,
      log,
      onHopeless: (reason) => {
        log.error('gateway gives up', { reason });
        void end(1);
      },
    });
    await say(await gateway.start());
  } catch (error) {
    await say({ kind: 'refused', message: error instanceof Error ? error.message : String(error) });
    await end(GATEWAY_REFUSED_EXIT_CODE);
  }
}

async function drain(): Promise<void> {
  if (draining) return;
  draining = true;
  try {
    await gateway?.drain();
    process.exit(0);
  } catch (error) {
    log.error('gateway failed while it drained', { error: String(error) });
    process.exit(1);
  }
}

/** Closes what can be closed and exits. */
async function end(exitCode: number): Promise<void> {
  if (draining) return;
  draining = true;
  try {
    await gateway?.close();
  } catch (error) {
    log.error('gateway failed while it closed', { error: String(error) });
  }
  process.exit(exitCode);
}

process.on('message', (message: ToGateway) => {
  if (message.kind === 'start') void start(message);
  else void drain();
});
// The supervisor has died: nobody would stop this process any more.
process.on('disconnect', () => void drain());
// A terminal sends these to the whole group; the supervisor decides and says `drain`.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
process.on('uncaughtException', (error) => {
  log.error('gateway failed', { error: error.stack });
  void end(1);
});
