/**
 * What an operator is told of all gateways of the supervisor: this one's figures where it is alone, the sum of all where there
 * are several. Main thread.
 */
import type { AccountTelling } from '../telemetry/account-tally.js';
import type { FamilySamples } from '../telemetry/exposition.js';
import { mergeFamily } from '../telemetry/metrics-reading.js';
import type { StatusDocument } from '../telemetry/status-document.js';
import { statusDocument } from './group-status.js';
import type { GroupReading, Reading, ReadingKind } from './readings.js';

export interface GroupViewOptions {
  /** Of this gateway. */
  readonly slot: number;
  readonly read: (what: ReadingKind) => Promise<Reading>;
  /** Asks the supervisor. */
  readonly readAll: (what: ReadingKind) => Promise<GroupReading>;
}

export class GroupView {
  readonly #options: GroupViewOptions;

  constructor(options: GroupViewOptions) {
    this.#options = options;
  }

  /** For one page of `/metrics`. */
  async metrics(): Promise<FamilySamples> {
    const { slot } = this.#options;
    const { members, ended } = await this.#readAll('metrics');
    const readings = members.flatMap(({ slot: member, reading: { metrics } }) =>
      metrics === undefined ? [] : [{ slot: member, own: member === slot, families: metrics }],
    );
    return (family) => mergeFamily(family, readings, ended.metrics ?? []);
  }

  async status(): Promise<StatusDocument> {
    const { slot } = this.#options;
    const { members, ended } = await this.#readAll('status');
    const statuses = members.flatMap(({ reading: { status } }) => (status === undefined ? [] : [status]));
    const own = statuses.find((status) => status.process === slot);
    return statusDocument(own ?? statuses[0]!, statuses, ended.status);
  }

  /** What each process says, those too that have just ended. */
  async accounts(): Promise<readonly AccountTelling[]> {
    const { members, ended } = await this.#readAll('accounts');
    return [...members.map(({ reading }) => reading), ended].flatMap(({ accounts = [] }) => accounts);
  }

  /** Where the supervisor has not answered, or knows nothing of this gateway yet: this gateway alone. */
  async #readAll(what: ReadingKind): Promise<GroupReading> {
    const { slot, read, readAll } = this.#options;
    const all = await readAll(what);
    if (all.members.some((member) => member.slot === slot && member.reading[what] !== undefined)) return all;
    const others = all.members.filter((member) => member.slot !== slot);
    return { ...all, members: [...others, { slot, reading: await read(what) }] };
  }
}
