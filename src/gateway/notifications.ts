/**
 * Connects the notices of quotas with the other parts of the gateway: quota-notices.ts finds the notices,
 * webhook-outbox.ts sends their webhooks, and both work on the registry and the store. Notifications also
 * owns what the metrics show of groups' quotas and shared balances, because only the primary shows these.
 * gateway.ts owns one Notifications, on the main thread of each gateway process.
 *
 * Must hold: every gateway process records notices, but of the processes of a host only the primary, the one
 * with the admin interface, sends webhooks; so each webhook has one sender (test/e2e/notify.test.ts). A
 * damaged row keeps back no notice of another account or key.
 */
import { SystemClock } from '../core/clock.js';
import { ProxyError } from '../core/errors.js';
import type { QuotaLimits } from '../core/quotas.js';
import { asPicoUnits, type AccountIndex, type KeyIndex } from '../core/units.js';
import type { AccountStatement } from '../registry/account-statement.js';
import type { GroupStatement } from '../registry/groups.js';
import type { Registry } from '../registry/registry.js';
import { unlessDamaged } from '../store/record-codec.js';
import type { Log } from '../telemetry/log.js';
import type { WebhookCounts } from '../telemetry/metrics-source.js';
import type { Accounting } from './accounting.js';
import { type GroupQuotas, groupQuotasOf, type SharedBalances, sharedBalancesOf } from './primary-metrics.js';
import { QuotaNotices, type ScopeUse } from './quota-notices.js';
import type { LiveSettings } from './reload.js';
import { WebhookOutbox } from './webhook-outbox.js';

interface NotificationsOptions {
  readonly live: LiveSettings;
  readonly accounting: Accounting;
  readonly log: Log;
}

export class Notifications {
  readonly #options: NotificationsOptions;
  readonly #notices: QuotaNotices;
  readonly #outbox: WebhookOutbox;
  /** The message of the damaged row that was logged last. */
  #loggedDamage: string | undefined;
  /** For the metrics (stats.ts). This and `sharedBalances` are empty, except between `lead` and `follow`. */
  readonly groupQuotas: GroupQuotas;
  /** Undefined if nobody shares the accounts, or the metrics name none. */
  readonly sharedBalances: SharedBalances | undefined;

  constructor(options: NotificationsOptions) {
    const { live, accounting, log } = options;
    const { changed, idNames, ledger, store } = accounting.base;
    const settings = () => live.settings.notify;
    const clock = new SystemClock();
    this.#options = options;
    this.#notices = new QuotaNotices({
      settings,
      // store/flush.ts adds scopes; QuotaNotices alone takes them out.
      changed,
      read: async (accounts, keys) => {
        const accountIds = idsOf(accounts, (index) => idNames.accountIdOf(index));
        // A key without quotas has nothing to report, because balances belong to accounts.
        const keysWithQuotas = keys.filter((index) => hasQuotas(ledger.keys.limitsOf(index)));
        const keyIds = idsOf(keysWithQuotas, (index) => idNames.keyIdOf(index));
        return accounting.service.read((registry) =>
          usesOf(registry, accountIds, keyIds, (message) => this.#logDamage(message)),
        );
      },
      rows: store.notices,
      claim: accounting.sharing.claim,
      clock,
      log,
    });
    const { service } = accounting;
    // Read once, because a change of this setting applies only when the process is replaced.
    const showsNames = live.settings.metrics.account_labels;
    const monotonicMs = (): number => clock.monotonicMs();
    const common = { service, monotonicMs, log };
    this.groupQuotas = groupQuotasOf({ ...common, records: () => store.groups.all(), showsNames });
    const isShared = accounting.sharing.snapshot !== undefined;
    this.sharedBalances = isShared && showsNames ? sharedBalancesOf(common) : undefined;
    this.#outbox = new WebhookOutbox({ settings, rows: store.notices, random: Math.random, clock, log });
  }

  /**
   * To be called after each flush of the timer (Accounting.flushEvery). Returns at once. A `check` does
   * nothing while an earlier `check` runs. Neither `check` rejects: both log their errors.
   */
  checkAndSend(): void {
    void this.#notices.check().then(() => this.#outbox.sendWaiting());
  }

  /**
   * To be called when this process becomes the primary of its process group, as it may again after `follow`.
   * From now on it sends the host's webhooks and gives samples of groups.
   */
  lead(): void {
    this.groupQuotas.turnOn();
    this.sharedBalances?.turnOn();
    this.#outbox.open();
  }

  /**
   * To be called when another process of the group has become the primary, and when this process ends. The
   * webhooks that wait stay in the store, for the next primary.
   */
  follow(): void {
    this.groupQuotas.turnOff();
    this.sharedBalances?.turnOff();
    this.#outbox.close();
  }

  /** Logs a damaged row when its scope is read for the first time, not again at each flush. */
  #logDamage(message: string): void {
    if (message === this.#loggedDamage) return;
    this.#loggedDamage = message;
    this.#options.log.error('a row is damaged: quotas of its scope are not looked at', { error: message });
  }

  /** Counts of webhooks for the metrics; undefined if the settings name no receiver. */
  get webhookCounts(): WebhookCounts | undefined {
    if (this.#options.live.settings.notify?.url === undefined) return undefined;
    return { ...this.#outbox.counts, dropped: this.#notices.dropped };
  }
}

const hasQuotas = (limits: QuotaLimits): boolean =>
  Object.values(limits).some((limit) => limit !== undefined);

/** Returns the ids. Leaves out indices whose id cannot be read: a notice is not worth an exception. */
function idsOf<Index extends AccountIndex | KeyIndex>(
  indices: readonly Index[],
  idOf: (index: Index) => string | null,
): string[] {
  return indices.map(idOf).filter((id) => id !== null);
}

/**
 * Reads the accounts, the keys, and all groups that the accounts are in, from one state of the registry. A
 * scope whose row is damaged is left out and reported to `onDamage`: the scopes that are read with it must
 * have their notices. Besides, only a key can be missing: the registry deletes no account, and no group that
 * has members or that another group is in (registry/groups.ts).
 */
function usesOf(
  registry: Registry,
  accountIds: readonly string[],
  keyIds: readonly string[],
  onDamage: (message: string) => void,
): ScopeUse[] {
  const sound = <Found>(find: () => Found | undefined): Found[] => {
    const found = unlessDamaged(find, onDamage);
    return found === undefined ? [] : [found];
  };
  const accounts = accountIds.flatMap((id) => sound(() => registry.accounts.find(id)));
  const groupIds = new Set(accounts.flatMap(({ group }) => (group === undefined ? [] : [group.id])));
  const groups: GroupStatement[] = [];
  for (const id of groupIds) {
    for (const group of sound(() => registry.groups.find(id))) {
      groups.push(group);
      // The outer loop also visits the parents that are added to the set.
      if (group.record.parentId !== undefined) groupIds.add(group.record.parentId);
    }
  }
  return [
    ...accounts.map(accountUseOf),
    ...keyIds.flatMap((id) => sound(() => keyUseOf(registry, id))),
    ...groups.map(({ record: { id, name }, quotas }) => ({ kind: 'group' as const, id, name, quotas })),
  ];
}

function accountUseOf({ record, available, held, quotas }: AccountStatement): ScopeUse {
  const { id, name, credited } = record;
  // `held` is included, because it is not spent yet, and `left` must only fall until the next credit.
  const balance = { left: asPicoUnits(available + held), credited };
  return { kind: 'account', id, name, quotas, balance };
}

/** Returns undefined if the key was deleted after its last call. */
function keyUseOf(registry: Registry, keyId: string): ScopeUse | undefined {
  try {
    const { record, accountName, quotas } = registry.keys.find(keyId);
    const { id, name, accountId } = record;
    return { kind: 'key', id, name, account: { id: accountId, name: accountName }, quotas };
  } catch (error) {
    if (error instanceof ProxyError && error.code === 'not_found') return undefined;
    throw error;
  }
}
