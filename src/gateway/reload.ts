/**
 * The settings that a gateway runs with, and how a reload replaces them while it serves. gateway.ts calls it,
 * on the main thread of a gateway process.
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
import { CATALOG_ENTRIES_MAX } from '../core/limits.js';
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
import type { UpstreamNames } from '../telemetry/metrics-source.js';
import type { ModelRoute } from '../upstream/target.js';
import { CredentialPositions } from '../providers/credentials/credential-spec.js';
import { UpstreamScopes } from '../upstream/upstream-scopes.js';
import { catalogOf, listenerSettingsOf, routesOf } from './settings-records.js';

/** What a reload changes in the gateway. Each call brings it, because LiveSettings is made before. */
export interface ReloadContext {
  readonly ledger: Ledger;
  readonly groupNames: GroupNames;
  readonly registry: Registry;
  readonly store: RecordStore;
  /** This and the next never reject; they resolve with the indices of threads that gave no reply in time. */
  readonly replaceRoutes: (routes: readonly ModelRoute[]) => Promise<number[]>;
  readonly replaceListenerSettings: (settings: ListenerSettings) => Promise<number[]>;
  /** Whether the gateway closes. Then threads do not take settings, and the store may be closed. */
  readonly isClosing: () => boolean;
  readonly log: Log;
}

/** The problem of any settings once the gateway closes. */
export const GATEWAY_STOPS = 'the gateway is stopping';

/** The settings in force, and what follows from them: catalogue, routes, scopes, credentials. */
export class LiveSettings {
  /** Gives each upstream its slot in the metrics. */
  readonly #names: UpstreamNames;
  /** The scopes of upstreams with limits. */
  readonly scopes = new UpstreamScopes();
  /** The credentials that are renewed. */
  readonly credentials = new CredentialPositions();
  #settings: Settings;
  #catalog: Catalog;
  #routes: readonly ModelRoute[];
  /** Resolves when the newest reload is done. */
  #replacing: Promise<unknown> = Promise.resolve();

  constructor(settings: Settings, names: UpstreamNames) {
    this.#settings = settings;
    this.#names = names;
    this.#catalog = catalogOf(settings);
    this.#routes = routesOf(settings, names, this.scopes, this.credentials);
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
      ...this.scopes.problemsOf(next),
      ...timeoutProblemsOf(next),
    ];
  }

  /**
   * Applies `next`. Resolves with the problems of the settings, or with one that names stuck workers. With
   * any, the former settings stay in force; if workers were stuck, the others have the new routes all the
   * same. Waits for earlier reloads: the supervisor takes back a reload that fails, or that gives no reply in
   * time, by a reload of the former settings, which has to run last.
   */
  replace(next: Settings, context: ReloadContext): Promise<string[]> {
    const problems = this.#replacing.then(() => this.#replace(next, context));
    // A reload that fails does not keep the next one from running. The caller gets the failure.
    this.#replacing = problems.catch(() => undefined);
    return problems;
  }

  async #replace(next: Settings, context: ReloadContext): Promise<string[]> {
    const { registry, log, isClosing } = context;
    // Looked at after each wait: an end of the gateway is no failure of the reload, and no error is logged.
    if (isClosing()) return [GATEWAY_STOPS];
    const problems = this.problemsOf(next, context);
    if (problems.length > 0) return problems;
    const formerCatalog = this.#catalog;
    const catalog = mergeCatalogs(formerCatalog, catalogOf(next));
    // Gives new upstreams their slots, scopes and credentials. They keep these if the reload fails.
    const routes = mergeById(this.#routes, routesOf(next, this.#names, this.scopes, this.credentials));
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
    await this.#reopenPlanless(context);
    return [];
  }

  /** Enables the accounts whose plan was missing and is in the settings again. */
  async #reopenPlanless({ ledger, groupNames, registry, store, log }: ReloadContext): Promise<void> {
    // The index of the next account is the number of accounts.
    if (!ledger.countPlans(store.freeAccountIndex()).has(NO_PLAN_INDEX)) return;
    const accounts = await reopenPlanless(store, { ledger, groupNames }, () => registry.catalog);
    if (accounts > 0) log.info('accounts are enabled again: their plan is in the settings', { accounts });
  }
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
