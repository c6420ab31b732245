/**
 * A gateway while it serves: snapshots, changes by operators, reloads, and the order of shutdown.
 * gateway-start.ts has the creation of its parts and the start. main.ts creates a gateway, on the main thread
 * of a gateway process.
 *
 *     drain   not ready → listeners drain → listeners end → flush → workers end → other parts end
 *             → last flush → store closed
 *
 * Must hold: a flush comes after the listeners have ended, because they leave their last calls in the
 * journals. A charge that is left there after the last flush is lost (test/e2e/shutdown.test.ts). And that
 * flush comes before the waits for other parts: together these may take longer than EXIT_GRACE_MS, after
 * which the supervisor kills the process (test/unit/gateway/gateway.test.ts).
 */
import type { Settings } from '../config/schema.js';
import type { SettingInForce } from '../config/settings-in-force.js';
import { noteOfReload } from '../admin/routes.js';
import { SIGNAL, WATCH } from '../registry/operator-change.js';
import { credentialsOf } from '../providers/credentials/credential-spec.js';
import type { GatewayOptions } from './gateway-options.js';
import { createParts, type GatewayParts, startGateway } from './gateway-start.js';
import type { Broadcast, GatewayReady, RecordReload, Snapshot, SnapshotKind } from './messages.js';
import { GATEWAY_STOPS, type ReloadContext } from './reload.js';

/** How long a reload waits for missing credentials. Calls without their credential get 502. */
const CREDENTIALS_RELOAD_WAIT_MS = 5_000;

export class Gateway {
  readonly #options: GatewayOptions;
  readonly #parts: GatewayParts;
  /** Ends the waits of `drain`, which sets the function. Does nothing before. */
  #endDrain: () => void = () => undefined;
  /** Once it is not 'serving', a start opens nothing. */
  #stage: 'serving' | 'draining' | 'closing' = 'serving';

  /** Recovers the accounting; throws what `openAccounting` throws. `start` starts the threads. */
  constructor(options: GatewayOptions) {
    this.#options = options;
    this.#parts = createParts(options, (message) => this.carryOut(message));
  }

  /** Starts the threads and opens the ports. If it rejects, as for a port that is taken, call `close`. */
  start(): Promise<GatewayReady> {
    return startGateway(this.#options, this.#parts, () => this.#stage !== 'serving');
  }

  /** Opens the admin interface, then sends webhooks. Resolves with false after `follow` or `close`. */
  async lead(): Promise<boolean> {
    const { admin, notifications } = this.#parts;
    const leads = await admin.lead();
    if (leads && this.#stage !== 'closing') notifications.lead();
    return leads;
  }

  /** To be called when another gateway has the admin interface. Stops what `lead` began. */
  follow(): void {
    this.#parts.admin.follow();
    this.#parts.notifications.follow();
  }

  /**
   * Resolves with this gateway's snapshot of that kind. For `changes` it first applies the registry's
   * changes, for `books` it flushes (GROUP_REQUESTS in messages.ts). `accounts` are ids, for `calls` alone.
   */
  async read(kind: SnapshotKind, accounts: readonly string[] = []): Promise<Snapshot> {
    const { accounting, stats } = this.#parts;
    switch (kind) {
      case 'changes':
        return { changes: accounting.sharing.followChanges() };
      case 'books':
        return { books: accounting.flush.run() };
      case 'calls':
        return { calls: accounting.sharing.callsUses(accounts) };
      case 'metrics':
      case 'accounts':
      case 'status':
        return stats.read(kind);
    }
    // A supervisor of a newer version may ask for other kinds.
    kind satisfies never;
    return {};
  }

  /** The settings in force now. */
  get settings(): Settings {
    return this.#parts.live.settings;
  }

  /** Does here what an operator wants of all gateways: of this one's admin interface or of another one's. */
  async carryOut(message: Broadcast): Promise<void> {
    const { logs, workers, listeners, accounting } = this.#parts;
    switch (message.kind) {
      case 'log':
        logs.changeSwitch(message.change);
        return;
      case 'reset_upstreams':
        workers.resetUpstreams(message.model);
        return;
      case 'clear_cache':
        // Both calls are made in one event-loop turn, so the main thread answers no question of a listener in
        // between. A response that it sent before is served, but the listener does not keep it
        // (ResponseCache).
        listeners.clearCache(message.model);
        await accounting.cache.clear(message.model);
        return;
    }
    // A supervisor of a newer version may send other kinds, which main.ts ignores.
    message satisfies never;
  }

  /** Records, as a change, a reload by a signal or by a changed file. Never rejects. */
  async recordReload({ by, ...outcome }: RecordReload): Promise<void> {
    const cause = { actor: by === 'signal' ? SIGNAL : WATCH, action: 'settings.reload' };
    try {
      await this.#parts.accounting.service.change(cause, (registry) =>
        registry.record(noteOfReload(outcome)),
      );
    } catch (error) {
      this.#options.log.error('a reload could not be recorded', { by, error: String(error) });
    }
  }

  /** Replaces the settings that operators are shown, after a reload. */
  showInForce(inForce: readonly SettingInForce[]): void {
    this.#parts.state.inForce = inForce;
  }

  /**
   * Applies `next` without dropping a call, or with `check` only checks it. Resolves with the problems of
   * `next`; with any, the former settings stay. The supervisor has made sure that no setting which needs a
   * restart differs. Reloads are applied one after the other.
   */
  async reload(next: Settings, { check }: { readonly check: boolean }): Promise<string[]> {
    const isClosing = (): boolean => this.#stage === 'closing';
    if (isClosing()) return [GATEWAY_STOPS];
    const { state, live, accounting, notifications, logs, credentials, workers, listeners } = this.#parts;
    const { base, registry } = accounting;
    const context: ReloadContext = {
      ledger: base.ledger,
      groupNames: base.groupNames,
      store: base.store,
      registry,
      replaceRoutes: async (routes) => {
        await credentials.ensure(credentialsOf(routes), CREDENTIALS_RELOAD_WAIT_MS);
        return isClosing() ? [] : workers.replaceRoutes(routes);
      },
      replaceListenerSettings: (settings) => listeners.replaceSettings(settings),
      isClosing,
      log: this.#options.log,
    };
    if (check) return live.problemsOf(next, context);
    let problems: string[];
    try {
      problems = await live.replace(next, context);
    } catch (error) {
      // `close` may have closed the store during the reload.
      if (isClosing()) return [GATEWAY_STOPS];
      throw error;
    }
    if (isClosing()) return [GATEWAY_STOPS];
    credentials.retain(credentialsOf(live.routes));
    accounting.cache.applySettings(live.catalog, live.settings.cache.bytes);
    if (state.ready)
      accounting.flushEvery(live.settings.flush_interval_ms, () => notifications.checkAndSend());
    if (problems.length === 0) logs.applySettings(live.settings);
    return problems;
  }

  /**
   * Lets calls in flight finish, for `drain_timeout_ms` at most, then closes. With `replaced` (another
   * gateway serves) idle connections have that time for a last request, whose call then has the same time
   * again. `shortenDrain` ends both waits. Returns what `close` does.
   */
  async drain({ replaced }: { readonly replaced: boolean }): Promise<boolean> {
    const { state, listeners, metrics } = this.#parts;
    const { log } = this.#options;
    this.#stage = 'draining';
    state.ready = false;
    log.info('gateway drains', { callsInFlight: metrics.reader.callsInFlight() });
    const timeoutMs = this.settings.drain_timeout_ms;
    const drainEnd = new Promise<boolean>((resolve) => (this.#endDrain = () => resolve(false)));
    const drained = await Promise.race([listeners.drain(timeoutMs, { keepsIdle: replaced }), drainEnd]);
    if (!drained && replaced) await Promise.race([listeners.drainLate(timeoutMs), drainEnd]);
    const callsInFlight = metrics.reader.callsInFlight();
    // With `replaced`, idle connections alone may have made `drained` false.
    if (!drained && (callsInFlight > 0 || !replaced))
      log.error(
        'calls were cut: they did not end within drain_timeout_ms; what was sent of them is billed, unless a later line counts them as not billed',
        {
          callsInFlight,
        },
      );
    return await this.close();
  }

  /**
   * To be called if the supervisor stops while `drain` waits: it kills this process after the
   * `drain_timeout_ms` of the last reload and a grace. So `drain` waits no longer than that timeout from now;
   * it cuts the calls that are left then, and bills what they had.
   */
  shortenDrain(): void {
    setTimeout(() => this.#endDrain(), this.settings.drain_timeout_ms);
  }

  /**
   * Cuts the remaining calls, flushes and closes the store. Called once, by `drain` or by main.ts. Returns
   * false if the last flush failed, or a listener did not end, so that charges were lost.
   */
  async close(): Promise<boolean> {
    this.#stage = 'closing';
    this.#parts.state.ready = false;
    const { listeners, accounting } = this.#parts;
    let haveListenersEnded = false;
    try {
      haveListenersEnded = await listeners.close();
      accounting.flush.run();
      await this.#closeParts();
    } catch (error) {
      // A part that fails must not cost the last flush.
      this.#options.log.error('a part of the gateway failed while it closed', { error: String(error) });
    }
    const flushed = await accounting.close();
    this.#options.log.info('gateway ended', { flushed });
    return flushed && haveListenersEnded;
  }

  /** Closes all parts but the listeners and the accounting, in the header's order. */
  async #closeParts(): Promise<void> {
    const { state, metrics, notifications, logs, counter } = this.#parts;
    const { credentials, workers, stats, admin } = this.#parts;
    credentials.close();
    await workers.close();
    await counter.close();
    // The logs are closed before the traces: calls that the logs drain at their end are exported too.
    logs.close();
    await state.traces?.close();
    // No webhook is sent from now on, and the last report does not read groups' quotas and shared balances.
    notifications.follow();
    await stats.reportLast();
    metrics.close();
    admin.close();
  }
}
