/**
 * A gateway's side of the IPC channel to its supervisor. By it the gateway asks for a reload or for the
 * snapshots of all gateways, and sends operators' changes to the other gateways. Only the supervisor reads
 * the settings file and reaches the other gateways. main.ts creates the link, on the main thread of a gateway
 * process; admin-service.ts, stats.ts and gateway.ts call it. The messages (messages.ts) call a snapshot a
 * `reading`.
 *
 * Must hold: each wait for the supervisor has a bound, because it may hang or have ended, and the last flush
 * would wait too. Further tests: test/e2e/reload.test.ts, test/e2e/upstream-reset.test.ts.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { PendingReplies } from '../core/ask-port.js';
import {
  type AskSnapshots,
  type AskReload,
  type GatewaySnapshot,
  LAST_SNAPSHOT_ID,
  type SnapshotsReply,
  type ReloadReply,
  type ReloadOutcome,
  type ReloadRequest,
  type Broadcast,
  type GroupSnapshot,
  type Snapshot,
  type SnapshotKind,
} from './messages.js';

/**
 * As long as the supervisor takes to check the settings and to apply them, each within its RELOAD_MS_MAX
 * (supervisor.ts). To read them may take longer, and so may earlier reloads: hence "may still be applied".
 */
const RELOAD_WAIT_MS_MAX = 120_000;
/** How many reloads may wait for the supervisor. Snapshots wait for seconds only, so they need no bound. */
const WAITING_RELOADS_MAX = 100;
/** Usually the last snapshot leaves in milliseconds. Bounded, because the last flush waits for that. */
const LAST_SNAPSHOT_WAIT_MS_MAX = 2_000;
/** Longer than the supervisor waits for the slowest gateway: READ_MS_MAX of supervisor/gateway-process.ts. */
const SNAPSHOTS_WAIT_MS_MAX = 3_000;

const NOTHING_DONE: Omit<ReloadOutcome, 'problems'> = { applied: [], restartNeeded: [], replacing: 0 };

type ToSupervisor = AskReload | AskSnapshots | GatewaySnapshot | Broadcast;

export class SupervisorLink {
  readonly #send: (message: ToSupervisor) => Promise<void>;
  readonly #reloads = new PendingReplies<ReloadOutcome>({
    waitMsMax: RELOAD_WAIT_MS_MAX,
    onTimeout: () => ({
      ...NOTHING_DONE,
      problems: [
        `the reload has not ended within ${RELOAD_WAIT_MS_MAX} ms, and may still be applied: the log tells, and so do the settings in force`,
      ],
    }),
  });
  readonly #snapshots = new PendingReplies<GroupSnapshot | undefined>({
    waitMsMax: SNAPSHOTS_WAIT_MS_MAX,
    onTimeout: () => undefined,
  });

  /**
   * `send` sends the message to the supervisor, or drops it if the supervisor has ended. It resolves when the
   * message has left this process, and never rejects.
   */
  constructor(send: (message: ToSupervisor) => Promise<void>) {
    this.#send = send;
  }

  /** Resolves with the result of the reload, or with `dryRun` with what would change. Never rejects. */
  reload(request: ReloadRequest): Promise<ReloadOutcome> {
    if (this.#reloads.size >= WAITING_RELOADS_MAX) {
      return Promise.resolve({
        ...NOTHING_DONE,
        problems: [`${WAITING_RELOADS_MAX} reloads are waiting already; try later`],
      });
    }
    return this.#reloads.ask((id) => void this.#send({ kind: 'ask_reload', id, request }));
  }

  /**
   * Resolves with the snapshots of that kind of all gateways; with undefined if the supervisor does not reply
   * in time. `accounts` are ids, for the kind `calls`. Never rejects.
   */
  readAll(kind: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot | undefined> {
    return this.#snapshots.ask((id) => void this.#send({ kind: 'ask_readings', id, what: kind, accounts }));
  }

  /**
   * Sends the last snapshot of this gateway, whose counts stay in all sums. Resolves when the snapshot has
   * left this process, or after LAST_SNAPSHOT_WAIT_MS_MAX: an exit before would cut a long snapshot, which
   * takes several writes.
   */
  async reportLast(snapshot: Snapshot): Promise<void> {
    const sent = this.#send({ kind: 'reading', id: LAST_SNAPSHOT_ID, reading: snapshot });
    await Promise.race([sent, delay(LAST_SNAPSHOT_WAIT_MS_MAX, undefined, { ref: false })]);
  }

  /**
   * Sends what an operator changes to all gateways, including this one. Resolves when each has carried it
   * out, or after SNAPSHOTS_WAIT_MS_MAX. Messages arrive in order, so a gateway that replies to a later
   * `read` has carried it out; the snapshot that is read, `changes`, is the smallest. Never rejects.
   */
  async broadcast(message: Broadcast): Promise<void> {
    void this.#send(message);
    await this.readAll('changes');
  }

  /** To be called with each reply of the supervisor. A reply that comes too late is dropped. */
  onReply(reply: ReloadReply | SnapshotsReply): void {
    if (reply.kind === 'outcome') this.#reloads.reply(reply.id, reply.outcome);
    else this.#snapshots.reply(reply.id, reply.readings);
  }
}
