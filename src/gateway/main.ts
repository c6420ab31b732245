/**
 * The entry of a gateway process: carries out the supervisor's messages (messages.ts).
 * supervisor/gateway-process.ts forks this file. Main thread of the process.
 *
 * Must hold: the process ends by itself when its supervisor has died (test/e2e/shutdown.test.ts), and two
 * gateways that do not share limits never use one data directory (test/e2e/refused-start.test.ts). There is
 * no unit test.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { onEachTick } from '../core/clock.js';
import { type Settings, settingsDeclaration } from '../config/schema.js';
import { withDefaults } from '../config/settings-adoption.js';
import { EXIT_GRACE_MS } from '../core/limits.js';
import { startErrorText } from '../store/store-file.js';
import { StoreHeld } from '../store/store-hold.js';
import type { Store } from '../store/store.js';
import { createLogSwitch, LogSwitch } from '../telemetry/log-switch.js';
import { openLog } from '../telemetry/log.js';
import { openStore } from './accounting-base.js';
import { Gateway } from './gateway.js';
import {
  ALIVE_PERIOD_MS,
  START_REJECTED_EXIT_CODE,
  type FromGateway,
  type ReadGateway,
  type ReloadGateway,
  type Snapshot,
  type StartGateway,
  type ToGateway,
} from './messages.js';
import { withOwnLogs } from './gateway-logs.js';
import { GATEWAY_STOPS } from './reload.js';
import { SupervisorLink } from './supervisor-link.js';

const logSwitch = createLogSwitch();
const log = openLog('gateway', new LogSwitch(logSwitch));
/** Undefined until `start` has made the gateway, which may have to wait for the store. */
let gateway: Gateway | undefined;
/** Resolves when the start has succeeded or failed. Messages that need a started gateway wait for it. */
let started: Promise<void> = Promise.resolve();
/** Whether `drain` or `end` was called. */
let isEnding = false;
/**
 * Whether this is the first start of the process group, and not over: then its operator sees why it fails.
 */
let isFirstStart = false;

/** Sends a message and waits until it has left this process, because an immediate exit would lose it. */
function send(message: FromGateway): Promise<void> {
  return new Promise((resolve) => {
    if (process.send === undefined || !process.connected) resolve();
    else process.send(message, () => resolve());
  });
}

const supervisor = new SupervisorLink(send);
/** The number of this gateway in its process group, from 0. */
let slot = 0;

/**
 * How long the first start waits for a command that holds the store. A command that makes a change holds the
 * store until the change is on disk, for seconds on a busy disk. A command that reads holds it as it prints.
 */
const COMMAND_WAIT_MS_MAX = 10_000;
const COMMAND_POLL_MS = 20;

/**
 * Opens the store. Waits if a command holds the store. The first start waits for COMMAND_WAIT_MS_MAX at most,
 * because its operator can end the command. A restart waits until the store is free, because the command may
 * have come while no gateway ran, and `refused` could end the group. Throws if another gateway holds the
 * store, because each of the two would admit the whole of every limit.
 */
async function openWhenFree({ settings, group, isRestart }: StartGateway): Promise<Store> {
  const endMs = performance.now() + COMMAND_WAIT_MS_MAX;
  let isLogged = false;
  for (;;) {
    try {
      return openStore(settings, group);
    } catch (error) {
      if (!(error instanceof StoreHeld)) throw error;
      const isLate = performance.now() > endMs;
      if (error.kind === 'gateway' || (isLate && !isRestart)) throw storeHeldError(error);
      if (isLate && !isLogged) log.error('a command keeps the gateway from serving', { held: error.message });
      isLogged = isLate;
    }
    await sleep(COMMAND_POLL_MS);
  }
}

function storeHeldError(held: StoreHeld): Error {
  const article = held.kind === 'gateway' ? 'Another' : 'A';
  return new Error(
    `${article} ${held.who} works on ${held.path}. Stop it, or give this one a folder of its own (data, TOLLGATE_DATA).`,
    { cause: held },
  );
}

/**
 * Returns the settings of this gateway, with its own log files. A supervisor of another version may not send
 * all settings, so defaults are added.
 */
function ownSettings(sent: Settings): Settings {
  return withOwnLogs(withDefaults(settingsDeclaration, sent) as Settings, slot);
}

/** Never rejects: a start that fails sends `refused` and ends the process. */
async function start(message: StartGateway): Promise<void> {
  isFirstStart = !message.isRestart;
  try {
    slot = message.group?.slot ?? 0;
    const settings = ownSettings(message.settings);
    // Without `sharing` the code for sharing is not loaded.
    const openHosts =
      settings.sharing === undefined ? undefined : (await import('../sharing/open-hosts.js')).openHosts;
    const ownMessage = { ...message, settings };
    gateway = new Gateway({
      ...ownMessage,
      store: await openWhenFree(ownMessage),
      openHosts,
      supervisor,
      log,
      logSwitch,
      onFatal: (reason) => {
        log.error('gateway gives up', { reason });
        giveUp(reason);
      },
    });
    const ready = await gateway.start();
    isFirstStart = false;
    await send(ready);
    onEachTick(ALIVE_PERIOD_MS, () => void send({ kind: 'alive' }));
  } catch (error) {
    // A start that `drain` or `end` has ended was not refused.
    if (isEnding) return;
    await end(START_REJECTED_EXIT_CODE, startErrorText(message.settings.data, error));
  }
}

/** Replies in any case, by `reloaded`. Never rejects. */
async function reload({ id, settings, check }: ReloadGateway): Promise<void> {
  await started;
  let problems: readonly string[] = [GATEWAY_STOPS];
  try {
    // A draining gateway is reloaded too, because it still takes the last call of each connection.
    if (gateway !== undefined) problems = await gateway.reload(ownSettings(settings), { check });
  } catch (error) {
    // Logged and not thrown, or all gateways of a group would end at the same moment. The supervisor then
    // reloads the former settings.
    log.error('the gateway failed while it took new settings', { error: (error as Error).stack });
    problems = [`the gateway failed while it took the settings: ${String(error)}`];
  }
  await send({ kind: 'reloaded', id, problems });
}

async function lead(): Promise<void> {
  await started;
  if ((await gateway?.lead()) === true) await send({ kind: 'leads' });
}

/** Kinds of snapshots that cannot be read now. Each is asked for again and again, and was logged once. */
const unreadableSnapshots = new Set<ReadGateway['what']>();

async function read({ id, what: kind, accounts }: ReadGateway): Promise<void> {
  // Empty if the gateway is still starting or fails: the supervisor must not wait for a snapshot.
  let snapshot: Snapshot = {};
  try {
    snapshot = (await gateway?.read(kind, accounts)) ?? {};
    unreadableSnapshots.delete(kind);
  } catch (error) {
    if (!unreadableSnapshots.has(kind))
      log.error('a snapshot cannot be read', { what: kind, error: String(error) });
    unreadableSnapshots.add(kind);
  }
  await send({ kind: 'reading', id, reading: snapshot });
}

/** Ends the process after the drain. A second call begins no other drain, but may shorten the wait. */
async function drain({ replaced }: { readonly replaced: boolean }): Promise<void> {
  if (isEnding) {
    if (!replaced) gateway?.shortenDrain();
    return;
  }
  isEnding = true;
  try {
    const isFlushed = (await gateway?.drain({ replaced })) ?? true;
    // With 1, a process manager that waits for the end learns that charges were lost.
    process.exit(isFlushed ? 0 : 1);
  } catch (error) {
    log.error('gateway failed while it drained', { error: String(error) });
    process.exit(1);
  }
}

/** Called if the supervisor has not asked for the end: if `close` hangs, nothing else ends the process. */
function exitWithin(waitMsMax: number, exitCode: number): void {
  setTimeout(() => {
    log.error('gateway did not end in time', { waited_ms: waitMsMax });
    process.exit(exitCode);
  }, waitMsMax).unref();
}

/**
 * Closes the gateway without waiting for calls in flight, and exits. `rejection` is why the gateway refuses
 * to start. It is sent first, because `close` may hang.
 */
async function end(exitCode: number, rejection?: string): Promise<void> {
  if (isEnding) return;
  isEnding = true;
  exitWithin(EXIT_GRACE_MS, exitCode);
  if (rejection !== undefined) await send({ kind: 'refused', message: rejection });
  try {
    await gateway?.close();
  } catch (error) {
    log.error('gateway failed while it closed', { error: String(error) });
  }
  process.exit(exitCode);
}

/**
 * Ends a gateway that cannot go on. A first start is refused, so that its operator sees the reason. Any other
 * process exits with 1, because the supervisor starts it again, which `refused` might prevent.
 */
function giveUp(reason: string): void {
  if (isFirstStart) void end(START_REJECTED_EXIT_CODE, `the gateway gave up while it started: ${reason}`);
  else void end(1);
}

process.on('message', (message: ToGateway) => {
  switch (message.kind) {
    case 'start':
      started = start(message);
      return;
    case 'reload':
      void reload(message);
      return;
    case 'lead':
      void lead();
      return;
    case 'follow':
      gateway?.follow();
      return;
    case 'read':
      void read(message);
      return;
    case 'outcome':
    case 'readings':
      supervisor.onReply(message);
      return;
    case 'in_force':
      gateway?.showInForce(message.inForce);
      return;
    case 'log':
    case 'reset_upstreams':
    case 'clear_cache':
      void gateway?.carryOut(message);
      return;
    case 'record_reload':
      void gateway?.recordReload(message).then(() => send({ kind: 'recorded', id: message.id }));
      return;
    case 'drain':
      void drain(message);
      return;
    default:
      // A supervisor of a newer version may send other kinds, which are ignored.
      message satisfies never;
  }
});
// The supervisor has died, and nobody else would stop this process.
process.on('disconnect', () => {
  exitWithin((gateway?.settings.drain_timeout_ms ?? 0) + EXIT_GRACE_MS, 1);
  void drain({ replaced: false });
});
// A terminal or a service manager sends these to the whole process group. The supervisor acts on them.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGUSR2'] as const) process.on(signal, () => undefined);
process.on('uncaughtException', (error) => {
  log.error('gateway failed', { error: error.stack });
  giveUp(error.message);
});
