/**
 * The settings that a gateway runs with, and how a reload replaces them while it serves. gateway-start.ts
 * makes a LiveSettings, and gateway.ts calls it at each reload. listeners.ts and upstream-workers.ts use
 * `stuckOf`. Main thread of a gateway process.
 *
 *     check → no account may be put on removed plans → workers get the new routes → listeners get the new
 *           catalogue → accounts may be put on new plans
 *
 * In this order no listener sends a call that a worker does not know, and no account is on a plan that a
 * listener does not know. Calls in flight keep the plan, the model and the price of their admission.
 *
 * Must hold: the order above, and one reload after the other. A reload stops if the gateway closes. A stuck
 * worker stops the reload before accounts are put on plans whose models it does not know (further test:
 * test/e2e/reload-load.test.ts).
 */
import { PendingReplies } from '../core/ask-port.js';
import { CATALOG_ENTRIES_MAX, SETTINGS_WAIT_MS_MAX } from '../core/limits.js';
import type { Settings } from '../config/schema.js';
import type { Ledger } from '../ledger/ledger.js';
import type { ListenerSettings } from '../request/messages.js';
import {
  type Catalog,
  isListed,
  mergeById,
  mergeCatalogs,
  NO_PLAN_INDEX,
  retireMissingPlans,
} from '../registry/catalog.js';
import type { GroupNames } from '../registry/group-names.js';
import { reopenPlanless } from '../registry/live-buffers.js';
import type { RecordStore } from '../registry/record-store.js';
import type { Registry } from '../registry/registry.js';
import type { Log } from '../telemetry/log.js';
import type { UpstreamNames } from '../telemetry/upstream-names.js';
import type { ModelRoute } from '../upstream/target.js';
import { CredentialPositions } from '../providers/credentials/credential-spec.js';
import { UpstreamScopes } from '../upstream/upstream-scopes.js';
import { catalogOf } from './catalog-records.js';
import { listenerSettingsOf, routesOf } from './settings-records.js';

/** What a reload changes in the gateway. Each call brings it, because LiveSettings is made before. */
export interface ReloadContext {
  readonly ledger: Ledger;
  readonly groupNames: GroupNames;
  readonly registry: Registry;
  readonly store: RecordStore;
  /** Both never reject. They resolve with the indices of the threads that did not reply in time. */
  readonly replaceRoutes: (routes: readonly ModelRoute[]) => Promise<number[]>;
  readonly replaceListenerSettings: (settings: ListenerSettings) => Promise<number[]>;
  /** Whether the gateway closes. Then threads do not take settings, and the store may be closed. */
  readonly isClosing: () => boolean;
  readonly log: Log;
}

/** What a reload reports as its problem once the gateway closes. */
export const GATEWAY_STOPS = 'the gateway is stopping';

/** The settings in force, and what follows from them: catalogue, routes, scopes, credentials. */
export class LiveSettings {
  /** Gives each upstream its slot in the metrics. */
  readonly #upstreamNames: UpstreamNames;
  /** The scopes of upstreams with limits. */
  readonly upstreamScopes = new UpstreamScopes();
  /** The credentials that are renewed. */
  readonly credentials = new CredentialPositions();
  #settings: Settings;
  #catalog: Catalog;
  #routes: readonly ModelRoute[];
  /** Resolves when the newest reload is done. */
  #replacing: Promise<unknown> = Promise.resolve();

  constructor(settings: Settings, upstreamNames: UpstreamNames) {
    this.#settings = settings;
    this.#upstreamNames = upstreamNames;
    this.#catalog = catalogOf(settings);
    this.#routes = this.#routesOf(settings);
  }

  /** Gives new upstreams their slots, scopes and credentials, which they keep even if the reload fails. */
  #routesOf(settings: Settings): ModelRoute[] {
    return routesOf(settings, this.#upstreamNames, this.upstreamScopes, this.credentials);
  }

  get settings(): Settings {
    return this.#settings;
  }

  /** Includes models and plans that were removed since the start. */
  get catalog(): Catalog {
    return this.#catalog;
  }

  readonly modelIdOf = (index: number): string => this.#catalog.models[index]!.id;

  get routes(): readonly ModelRoute[] {
    return this.#routes;
  }

  /**
   * Returns the problems of the settings, a line each. Changes nothing. If a plan was removed, the check
   * takes 2 ms per 100,000 accounts.
   */
  problemsOf(next: Settings, { ledger, store }: ReloadContext): string[] {
    const merged = mergeCatalogs(this.#catalog, catalogOf(next));
    return [
      ...planProblemsOf(this.#catalog, merged, () => ledger.countPlans(store.freeAccountIndex())),
      ...(['models', 'plans'] as const).flatMap((list) =>
        merged[list].length <= CATALOG_ENTRIES_MAX
          ? []
          : [
              `${list}: ${merged[list].length} since the start, removed ones counted, and ${CATALOG_ENTRIES_MAX} are possible: restart`,
            ],
      ),
      ...this.upstreamScopes.problemsOf(next),
      ...timeoutProblemsOf(next),
    ];
  }

  /**
   * Applies `next`. Resolves with the problems of the settings, or with one that names stuck workers. With
   * any problem the former settings stay in force; but if workers were stuck, the other workers keep the new
   * routes. Waits for earlier reloads. So if a reload fails or gives no reply in time, and the supervisor
   * undoes it by a reload of the former settings, this second reload runs last.
   */
  replace(next: Settings, context: ReloadContext): Promise<string[]> {
    const problems = this.#replacing.then(() => this.#replace(next, context));
    // A reload that fails does not keep the next one from running. The caller gets the failure.
    this.#replacing = problems.catch(() => undefined);
    return problems;
  }

  async #replace(next: Settings, context: ReloadContext): Promise<string[]> {
    const { registry, log, isClosing } = context;
    // Checked after each wait: if the gateway ends meanwhile, the reload logs no error.
    if (isClosing()) return [GATEWAY_STOPS];
    const problems = this.problemsOf(next, context);
    if (problems.length > 0) return problems;
    const formerCatalog = this.#catalog;
    const catalog = mergeCatalogs(formerCatalog, catalogOf(next));
    const routes = mergeById(this.#routes, this.#routesOf(next));
    // From here on no account may be put on a removed plan.
    registry.catalog = retireMissingPlans(formerCatalog, catalog);
    const stuckWorkers = await context.replaceRoutes(routes);
    if (isClosing()) return [GATEWAY_STOPS];
    if (stuckWorkers.length > 0) {
      registry.catalog = formerCatalog;
      return [
        `upstream workers ${stuckWorkers.join(', ')} are stuck and did not take the settings; try again`,
      ];
    }
    // Workers know the new models by now. From here on, records of calls may name new models and plans.
    this.#settings = next;
    this.#catalog = catalog;
    this.#routes = routes;
    const stuckListeners = await context.replaceListenerSettings(listenerSettingsOf(next, catalog));
    if (isClosing()) return [GATEWAY_STOPS];
    if (stuckListeners.length > 0)
      log.error('listeners are stuck; they take the new settings before they serve again', {
        listeners: stuckListeners.join(', '),
      });
    // Listeners know the new plans by now, so accounts may be put on them.
    registry.catalog = catalog;
    this.#upstreamNames.logShared(log);
    await this.#reopenPlanless(context);
    return [];
  }

  /** Enables the accounts whose plan was missing and is in the settings again. */
  async #reopenPlanless({ ledger, groupNames, registry, store, log }: ReloadContext): Promise<void> {
    // The index of the next account is the number of accounts, of which this ledger may lack the last.
    if (!ledger.countPlans(store.freeAccountIndex()).has(NO_PLAN_INDEX)) return;
    const accounts = await reopenPlanless(store, { ledger, groupNames }, () => registry.catalog);
    if (accounts > 0) log.info('accounts are enabled again: their plan is in the settings', { accounts });
  }
}

/** The replies of one thread to new settings: `late` after SETTINGS_WAIT_MS_MAX. */
export type SettingsReplies = PendingReplies<'applied' | 'late'>;

export function newSettingsReplies(): SettingsReplies {
  const bound = { waitMsMax: SETTINGS_WAIT_MS_MAX, onTimeout: () => 'late' as const };
  return new PendingReplies<'applied' | 'late'>(bound);
}

/**
 * Calls `send` for each thread. Resolves with the indices of those that do not apply the settings in time.
 */
export async function stuckOf<Thread extends { readonly replies: SettingsReplies }>(
  threads: ReadonlyMap<number, Thread>,
  send: (thread: Thread, id: number) => void,
): Promise<number[]> {
  const stuck: number[] = [];
  const sendTo = async ([index, thread]: [number, Thread]): Promise<void> => {
    if ((await thread.replies.ask((id) => send(thread, id))) === 'late') stuck.push(index);
  };
  await Promise.all([...threads].map(sendTo));
  return stuck;
}

/**
 * Returns the problem of timeouts that are too long for `node_expiry_seconds`. That setting needs a restart,
 * so the supervisor (process-group.ts) has put its value in force into the settings that it sends here. The
 * file was checked with the value of the file, which may be longer.
 */
function timeoutProblemsOf({ sharing, models }: Settings): string[] {
  if (sharing === undefined) return [];
  const timeoutsMs = models.flatMap(({ upstreams }) =>
    upstreams.map((upstream) => upstream.total_timeout_ms),
  );
  const longestMs = Math.max(...timeoutsMs);
  const expirySeconds = sharing.node_expiry_seconds;
  if (longestMs <= expirySeconds * 1_000) return [];
  return [
    `models: total_timeout_ms of ${longestMs} is longer than the sharing.node_expiry_seconds in force, ${expirySeconds}: restart`,
  ];
}

/** Returns a problem for each removed plan that accounts are on. */
function planProblemsOf(
  current: Catalog,
  next: Catalog,
  countPlans: () => ReadonlyMap<number, number>,
): string[] {
  const removedPlans = current.plans.flatMap((plan, index) =>
    isListed(plan) && !isListed(next.plans[index]!) ? [{ id: plan.id, index }] : [],
  );
  if (removedPlans.length === 0) return [];
  const counts = countPlans();
  return removedPlans.flatMap(({ id, index }) => {
    const accounts = counts.get(index);
    if (accounts === undefined) return [];
    return [
      `plans: ${id} is not there any more, and accounts are on it (${accounts}): move them first (accounts set-plan), or keep the plan`,
    ];
  });
}
