/**
 * A gateway's side of the channel to its supervisor: asks for a reload or for the figures of all gateways
 * when an operator does, and sends what other gateways must know. Only the supervisor reads the settings'
 * file and reaches the other gateways. Main thread.
 */
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
  PublishLog,
  PublishUpstreamReset,
  GroupSnapshot,
  Snapshot,
  SnapshotKind,
} from './messages.js';

/** The supervisor checks and applies, each within its own bound, after reloads that were asked for before. */
const RELOAD_MS_MAX = 120_000;
/** Operators that may wait at a time. The supervisor answers those of one kind together. */
const ASKS_MAX = 100;
/** The supervisor waits for the slowest gateway, within its own bound. */
const SNAPSHOTS_MS_MAX = 3_000;

const REFUSED: Omit<ReloadOutcome, 'problems'> = { applied: [], restartNeeded: [], replacing: 0 };

type ToSupervisor = AskReload | AskSnapshots | GatewaySnapshot | PublishLog | PublishUpstreamReset;

export class SupervisorLink {
  readonly #send: (message: ToSupervisor) => void;
  readonly #reloads = new PendingReplies<ReloadOutcome>({
    waitMsMax: RELOAD_MS_MAX,
    onTimeout: () => ({
      ...REFUSED,
      problems: [`the supervisor did not answer within ${RELOAD_MS_MAX} ms`],
    }),
  });
  readonly #snapshots = new PendingReplies<GroupSnapshot>({
    waitMsMax: SNAPSHOTS_MS_MAX,
    onTimeout: () => ({ members: [], ended: {} }),
  });

  /** `send` brings the message to the supervisor, or drops it where there is none any more. */
  constructor(send: (message: ToSupervisor) => void) {
    this.#send = send;
  }

  /** What became of the reload, or with `dryRun` what would. Never rejects. */
  reload(request: ReloadRequest): Promise<ReloadOutcome> {
    if (this.#reloads.size >= ASKS_MAX) {
      return Promise.resolve({
        ...REFUSED,
        problems: [`${ASKS_MAX} reloads are waiting already; try later`],
      });
    }
    return this.#reloads.ask((id) => this.#send({ kind: 'ask_reload', id, request }));
  }

  /**
   * Figures of all gateways, `calls` of these accounts; of none if the supervisor does not answer in time.
   * Never rejects.
   */
  readings(what: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot> {
    return this.#snapshots.ask((id) => this.#send({ kind: 'ask_readings', id, what, accounts }));
  }

  /** The last figures of this gateway, which the others show from now on. */
  tellLast(snapshot: Snapshot): void {
    this.#send({ kind: 'reading', id: 0, reading: snapshot });
  }

  /** All gateways log so from now on, this one among them. */
  tellLog(change: LogChange): void {
    this.#send({ kind: 'log', change });
  }

  /**
   * Upstreams of that model, or of all, are called again at once by all gateways, this one among them.
   * Resolves when each has heard of it: messages arrive in their order, so whoever answers the errand has had
   * the order before. Never rejects.
   */
  async resetUpstreams(model: string | undefined): Promise<void> {
    this.#send({ kind: 'reset_upstreams', model });
    await this.readings('changes');
  }

  onResponse(answer: ReloadReply | SnapshotsReply): void {
    if (answer.kind === 'outcome') this.#reloads.reply(answer.id, answer.outcome);
    else this.#snapshots.reply(answer.id, answer.readings);
  }
}
