/**
 * The hosts that share one server, for an operator: which hosts there are, which are awaited after the server
 * has lost data, and how to say that one will not come back. open-hosts.ts makes it, the admin interface
 * calls it. Main thread of a gateway process.
 *
 * To forget a host frees what it was granted. What the host charged and did not report then counts nowhere
 * until the host comes back after all.
 *
 * Must hold: a host that is alive, or may still come back after a loss of data, is not forgotten; otherwise
 * others would be granted what it still uses.
 */
import { randomUUID } from 'node:crypto';
import { ProxyError } from '../core/errors.js';
import { invalid, notFound } from '../registry/record-id.js';
import { CoordinatorLost } from './coordinator.js';
import { type LifeHead, nodeScript, SILENT_MS } from './valkey-lua.js';
import { MARKS_LUA } from './valkey-marks.js';
import { ValkeyServer, type ValkeyServerOptions } from './valkey-server.js';
import { LEAVE_SCRIPT } from './valkey-life-scripts.js';
import { PAGE_SCOPES } from './valkey-scripts.js';

// Both scripts work on one partition. valkey-lua.ts has the names that they begin with, and says what a place
// is.

const HOSTS_SCRIPT = nodeScript<
  object,
  never,
  {
    readonly nowMs: number;
    /** 0 in place of the time if the place was forgotten half-way. */
    readonly heard: readonly (readonly [place: string, heardMs: number])[];
    readonly awaited: readonly string[];
  }
>(`
local heard, all = {}, call('HGETALL', NODES)
for i = 1, #all, 2 do
  local node = node_in(all[i + 1])
  heard[#heard + 1] = {all[i], node and node[HEARD_AT] or 0}
end
return pack({nowMs = now_ms(), heard = heard, awaited = call('SMEMBERS', AWAITED)})
`);

/**
 * Takes over a silent place under a new incarnation, so that its leases can be freed, and records that its
 * host is gone. Status: `ok`; `alive` (heard `ms` ago); `early` (after a loss of data the host has `ms` left
 * to come back).
 */
const FORGET_SCRIPT = nodeScript<
  LifeHead,
  never,
  | { readonly status: 'ok'; readonly toFree: readonly string[] }
  | { readonly status: 'alive'; readonly ms: number }
  | { readonly status: 'early'; readonly ms: number }
>(
  MARKS_LUA,
  `
local now = now_ms()
local node = node_of(place)
if node and now - node[HEARD_AT] < SILENT then return pack({status = 'alive', ms = now - node[HEARD_AT]}) end
-- A damaged meta counts as lost in this script too: state_of has emptied it, and no place is awaited yet.
local s = state_of(now)
if s and now < s.till then return pack({status = 'early', ms = s.till - now}) end
-- Read again, because state_of may have removed it.
node = node_of(place)
if not node then call('HINCRBY', META, 'places', 1) end
local former, heard_at = node and node[INCARNATION] or '', node and node[HEARD_AT] or 0
-- All fields from INCARNATION to PAGES. UNFREED: the leases of the place are to be freed.
node = {}
node[INCARNATION], node[FORMER], node[SEQUENCE], node[HEARD_AT] = head.incarnation, former, 0, heard_at
node[EPOCH], node[BACK], node[UNFREED], node[EQUAL_SHARES] = '', 0, 1, 0
node[MARK], node[MARK_SERVER], node[MARK_VERSION] = 0, '', 0
node[JOIN_VERSION], node[JOINED], node[PAGES] = 0, 0, 0
call('HSET', NODES, place, pack(node))
call('HSET', META, 'gone:' .. host, now, 'ended:' .. place, now)
return pack({status = 'ok', toFree = call('SRANDMEMBER', HELD, ${PAGE_SCOPES})})
`,
);

const MS_PER_SECOND = 1_000;

/**
 * `silent`: the host is gone, or cut off. `awaited`: the server has lost data, and grants nothing before this
 * host has reported what it holds.
 */
type HostState = 'heard' | 'silent' | 'awaited';

interface HostStatement {
  readonly id: string;
  readonly isSelf: boolean;
  readonly state: HostState;
  /** When the server last heard the host, by the server's calendar; undefined: not since a loss of data. */
  readonly heardMs: number | undefined;
}

interface HostDirectoryOptions extends Pick<ValkeyServerOptions, 'client' | 'namespace' | 'timeInsteadMs'> {
  readonly partitions: number;
  readonly host: string;
}

interface HostRecord {
  heardMs: number | undefined;
  isAwaited: boolean;
  readonly places: Set<string>;
}

export class HostDirectory {
  readonly #options: HostDirectoryOptions;

  constructor(options: HostDirectoryOptions) {
    this.#options = options;
  }

  /** All hosts, ordered by id. One round trip a partition. Rejects with `overloaded`. */
  async list(): Promise<HostStatement[]> {
    const { nowMs, hosts } = await this.#readHosts().catch(asRejection('Hosts cannot be listed'));
    return [...hosts]
      .map(([id, { heardMs, isAwaited }]): HostStatement => {
        const isHeard = heardMs !== undefined && nowMs - heardMs < SILENT_MS;
        const state = isAwaited ? 'awaited' : isHeard ? 'heard' : 'silent';
        return { id, isSelf: id === this.#options.host, state, heardMs };
      })
      .sort((first, second) => (first.id < second.id ? -1 : 1));
  }

  /**
   * Frees what the host was granted and awaits the host no more, on all partitions. May be repeated if it
   * stopped half-way. Rejects with `not_found`, with `invalid_parameters` if the host is alive, and with
   * `overloaded` if it is too early or the server cannot be asked.
   */
  async forget(id: string): Promise<void> {
    if (id === this.#options.host) throw invalid(`host ${id} is the one that answers: ask another one`);
    await this.#forget(id).catch(asRejection(`It is not known whether host ${id} is forgotten everywhere`));
  }

  async #forget(id: string): Promise<void> {
    const { nowMs, hosts } = await this.#readHosts();
    const record = hosts.get(id);
    if (record === undefined) throw notFound(`there is no host ${id}: see the list of hosts`);
    // Checked for all places before one is freed: one of them may be silent while others are heard.
    const silentMs = nowMs - (record.heardMs ?? -Infinity);
    if (silentMs < SILENT_MS) throw aliveError(id, heardAgo(silentMs));
    for (const place of record.places) {
      for (let partition = 0; partition < this.#options.partitions; partition++) {
        await this.#forgetPlace(id, this.#serverAt(partition, id, place));
      }
    }
  }

  async #forgetPlace(host: string, server: ValkeyServer): Promise<void> {
    const incarnation = randomUUID();
    const reply = await server.run(FORGET_SCRIPT, { incarnation });
    if (reply.status === 'alive') throw aliveError(host, heardAgo(reply.ms));
    if (reply.status === 'early') {
      const seconds = Math.ceil(reply.ms / MS_PER_SECOND);
      const message = `The sharing server has lost data, and host ${host} may come back and say what it holds. Try again in ${seconds} s.`;
      throw new ProxyError('overloaded', 'gateway', message, seconds);
    }
    // Nothing is reported as spent: only the forgotten host knows what it has charged and not reported.
    const isFree = await server.free(incarnation, reply.toFree, () => false);
    if (!isFree || !(await server.carryOut(LEAVE_SCRIPT, { incarnation, staysIfAwaited: false })))
      throw aliveError(host, 'it has just come back');
  }

  async #readHosts(): Promise<{ readonly nowMs: number; readonly hosts: Map<string, HostRecord> }> {
    const { host, partitions } = this.#options;
    const hosts = new Map<string, HostRecord>();
    const recordOf = (place: string): HostRecord => {
      // `placeOf` of coordinator.ts.
      const id = place.slice(0, place.lastIndexOf(':'));
      const record = hosts.get(id) ?? { heardMs: undefined, isAwaited: false, places: new Set() };
      hosts.set(id, record);
      record.places.add(place);
      return record;
    };
    let latestMs = 0;
    for (let partition = 0; partition < partitions; partition++) {
      const server = this.#serverAt(partition, host, host);
      const { nowMs, heard, awaited } = await server.run(HOSTS_SCRIPT, {});
      latestMs = Math.max(latestMs, nowMs);
      for (const [place, heardMs] of heard) {
        const record = recordOf(place);
        if (heardMs > 0) record.heardMs = Math.max(record.heardMs ?? 0, heardMs);
      }
      for (const place of awaited) recordOf(place).isAwaited = true;
    }
    return { nowMs: latestMs, hosts };
  }

  /** The server, as a node at this place sees the partition. */
  #serverAt(partition: number, host: string, place: string): ValkeyServer {
    return new ValkeyServer({ ...this.#options, partition, host, place });
  }
}

function aliveError(host: string, reason: string): ProxyError {
  return invalid(
    `host ${host} is alive, ${reason}: only one that was silent for ${SILENT_MS / MS_PER_SECOND} s can be forgotten; stop it first`,
  );
}

/** The clocks of two partitions may differ, so `ms` may be below 0. */
function heardAgo(ms: number): string {
  return `the server heard it ${Math.floor(Math.max(0, ms) / MS_PER_SECOND)} s ago`;
}

function asRejection(sentence: string): (error: unknown) => never {
  return (error) => {
    if (!(error instanceof CoordinatorLost)) throw error;
    throw new ProxyError('overloaded', 'gateway', `${sentence} (${error.message}). Try again.`, 1);
  };
}
