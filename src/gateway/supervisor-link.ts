/**
 * A gateway's side of the IPC channel to its supervisor, by which it asks for a reload or for the snapshots
 * of all gateways, and sends operators' changes to the other gateways. Only the supervisor reads the settings
 * file and reaches the other gateways. main.ts creates it, on the main thread; AdminService, Stats and
 * gateway.ts call it.
 *
 * Must hold: nothing here waits without a bound for a supervisor that stands still or has gone, or the last
 * flush would wait with it (test/unit/gateway/supervisor-link.test.ts; what is asked and sent:
 * test/e2e/reload.test.ts, test/e2e/upstream-reset.test.ts).
 */
import { setTimeout as delay } from 'node:timers/promises';
import { PendingReplies } from '../core/ask-port.js';
import type { LogChange } from '../telemetry/log.js';
import type {
  AskSnapshots,
  AskReload,
  GatewaySnapshot,
  SnapshotsReply,
  ReloadReply,
  ReloadOutcome,
  ReloadRequest,
  Broadcast,
  GroupSnapshot,
  Snapshot,
  SnapshotKind,
} from './messages.js';

/**
 * The supervisor checks and applies the settings, each within its own time limit, after all earlier reloads.
 */
const RELOAD_MS_MAX = 120_000;
/** How many reloads may wait. The supervisor joins those of one kind. */
const ASKS_MAX = 100;
/**
 * The last snapshot leaves in milliseconds. A supervisor that stands still must not keep the last flush
 * waiting.
 */
const LAST_REPORT_MS_MAX = 2_000;
/** The supervisor waits for the slowest gateway, within its own time limit. */
const SNAPSHOTS_MS_MAX = 3_000;

const NOTHING_DONE: Omit<ReloadOutcome, 'problems'> = { applied: [], restartNeeded: [], replacing: 0 };

type ToSupervisor = AskReload | AskSnapshots | GatewaySnapshot | Broadcast;

export class SupervisorLink {
  readonly #send: (message: ToSupervisor) => Promise<void>;
  readonly #reloads = new PendingReplies<ReloadOutcome>({
    waitMsMax: RELOAD_MS_MAX,
    onTimeout: () => ({
      ...NOTHING_DONE,
      problems: [`the supervisor did not answer within ${RELOAD_MS_MAX} ms`],
    }),
  });
  readonly #snapshots = new PendingReplies<GroupSnapshot | undefined>({
    waitMsMax: SNAPSHOTS_MS_MAX,
    onTimeout: () => undefined,
  });

  /**
   * `send` sends the message to the supervisor, or drops it if the supervisor has gone. It resolves when the
   * message has left this process, and never rejects.
   */
  constructor(send: (message: ToSupervisor) => Promise<void>) {
    this.#send = send;
  }

  /** Resolves with the result of the reload, or with `dryRun` with what would change. Never rejects. */
  reload(request: ReloadRequest): Promise<ReloadOutcome> {
    if (this.#reloads.size >= ASKS_MAX) {
      return Promise.resolve({
        ...NOTHING_DONE,
        problems: [`${ASKS_MAX} reloads are waiting already; try later`],
      });
    }
    return this.#reloads.ask((id) => void this.#send({ kind: 'ask_reload', id, request }));
  }

  /**
   * Resolves with the snapshots of all gateways of that kind, for `calls` of these accounts; with undefined
   * if the supervisor does not reply in time. Never rejects.
   */
  readAll(kind: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot | undefined> {
    return this.#snapshots.ask((id) => void this.#send({ kind: 'ask_readings', id, what: kind, accounts }));
  }

  /**
   * Sends the last snapshot of this gateway. Other gateways count it from then on. Resolves when it has left,
   * or after LAST_REPORT_MS_MAX: that of some hundred models takes several writes, which an exit would cut.
   */
  async reportLast(snapshot: Snapshot): Promise<void> {
    const left = this.#send({ kind: 'reading', id: 0, reading: snapshot });
    await Promise.race([left, delay(LAST_REPORT_MS_MAX, undefined, { ref: false })]);
  }

  /** Changes what all gateways log, including this one. */
  sendLog(change: LogChange): void {
    void this.#send({ kind: 'log', change });
  }

  /**
   * Resets the breakers of that model's upstreams, or of all, at all gateways including this one. Resolves
   * when each has done so: messages arrive in order, so a gateway that replies to `changes` has had the
   * reset before. Never rejects.
   */
  async resetUpstreams(model: string | undefined): Promise<void> {
    void this.#send({ kind: 'reset_upstreams', model });
    await this.readAll('changes');
  }

  /** Clears the response cache of that model, or all, at all gateways. As `resetUpstreams`. */
  async clearCache(model: string | undefined): Promise<void> {
    void this.#send({ kind: 'clear_cache', model });
    await this.readAll('changes');
  }

  /** To be called with each reply of the supervisor. */
  onResponse(reply: ReloadReply | SnapshotsReply): void {
    if (reply.kind === 'outcome') this.#reloads.reply(reply.id, reply.outcome);
    else this.#snapshots.reply(reply.id, reply.readings);
  }
}
