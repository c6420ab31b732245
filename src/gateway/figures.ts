/**
 * What a gateway tells of what it does: to operators, who want the figures of all gateways of its supervisor, and to the
 * supervisor, which wants those of this one. Main thread.
 */
import type { AccountTally, AccountTelling } from '../telemetry/account-tally.js';
import type { MetricsFormat, MetricsPage } from '../telemetry/exposition.js';
import type { StatusDocument } from '../telemetry/status-document.js';
import type { GatewayMetrics, MetricsSubjects } from './gateway-metrics.js';
import { statusDocument } from './group-status.js';
import { GroupView } from './group-view.js';
import type { GroupPlace } from './messages.js';
import type { Reading, ReadingKind } from './readings.js';
import { statusOf, type StatusFacts } from './status.js';
import type { SupervisorLink } from './supervisor-link.js';

export interface FiguresOptions {
  readonly metrics: GatewayMetrics;
  readonly subjects: Omit<MetricsSubjects, 'readGroup'>;
  readonly tally: AccountTally;
  readonly facts: () => Omit<StatusFacts, 'slot'>;
  /** Absent where this gateway is alone. */
  readonly group: GroupPlace | undefined;
  readonly supervisor: SupervisorLink;
}

export class Figures {
  readonly #options: FiguresOptions;
  readonly #group: GroupView | undefined;

  constructor(options: FiguresOptions) {
    this.#options = options;
    const { metrics, subjects, group, supervisor } = options;
    const view =
      group &&
      new GroupView({
        slot: group.slot,
        read: (what) => this.read(what),
        readAll: (what) => supervisor.readings(what),
      });
    this.#group = view;
    metrics.attach({ ...subjects, readGroup: view && (() => view.metrics()) });
  }

  /** Of this gateway alone. */
  async read(what: ReadingKind): Promise<Reading> {
    const { metrics, facts, group, tally } = this.#options;
    if (what === 'metrics') return { metrics: await metrics.read() };
    if (what === 'accounts') return { accounts: [tally.read()] };
    return { status: statusOf({ ...facts(), slot: group?.slot ?? 0 }, metrics) };
  }

  /** The document of the status route. */
  async status(): Promise<StatusDocument> {
    if (this.#group !== undefined) return this.#group.status();
    const { status } = await this.read('status');
    return statusDocument(status!, [status!], undefined);
  }

  /** For the course of the busiest accounts. */
  async accounts(): Promise<readonly AccountTelling[]> {
    return this.#group === undefined ? [this.#options.tally.read()] : this.#group.accounts();
  }

  /** The page of `/metrics`. */
  page(format: MetricsFormat): Promise<MetricsPage> {
    return this.#options.metrics.render(format);
  }

  /** What the other gateways show from now on, when this one has ended. */
  async tellLast(): Promise<void> {
    if (this.#group === undefined) return;
    const accounts = [this.#options.tally.readLast()];
    this.#options.supervisor.tellLast({
      ...(await this.read('metrics')),
      ...(await this.read('status')),
      accounts,
    });
  }
}
