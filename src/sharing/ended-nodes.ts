/**
 * Frees what nodes of this host hold at the server of sharing once their process has ended, however it ended.
 * Most often the next process in the slot does so as it joins. But a process that was replaced, or one that
 * did not take over, has no successor in its slot. open-hosts.ts makes one in each gateway process, on its
 * main thread; gateway/shared-accounting.ts starts it. The coordinator of one host needs none: it frees what
 * dead processes hold by itself (lmdb-coordinator.ts).
 *
 * Which lives have ended is in the lease file, where each process adds its nodes before they join: `/proc`
 * tells whether a process runs. Every process of the host looks; whoever takes the place over last frees it.
 *
 * Must hold: nothing of a life that runs is freed, and after a life is freed nothing that it had sent is
 * carried out. So the order is: which life the server has at the place, then whether the life in the lease
 * file is still one that has ended, and then the server replaces just that life
 * (test/unit/sharing/ended-nodes.test.ts).
 */
import { randomUUID } from 'node:crypto';
import { invariant } from '../core/errors.js';
import { identityOf } from '../store/process-identity.js';
import type { Log } from '../telemetry/log.js';
import type { NodeIdentity } from './coordinator.js';
import { DamagedScopes } from './damaged-scopes.js';
import type { LeaseFile } from './lease-file.js';
import type { LeaseTimers } from './lease-terms.js';
import { LeaseNodes } from './lmdb-coordinator.js';
import { UnexpectedErrors } from './unexpected-errors.js';
import { scriptOf } from './valkey-client.js';
import { versioned } from './valkey-codec.js';
import { LEAVE_SCRIPT } from './valkey-life-scripts.js';
import { LUA_PRELUDE } from './valkey-lua.js';
import type { HostAccounting } from './valkey-partition.js';
import { PAGE_SCOPES } from './valkey-scripts.js';
import { ValkeyServer, type ValkeyServerOptions } from './valkey-server.js';

/** How often a process looks which others have ended: 20 µs for each life of the host. */
const LOOK_PERIOD_MS = 1_000;

/**
 * Replaces the life of an ended process by another one, so that nothing that is still under way from it is
 * carried out, and its leases can be freed.
 *
 *     KEYS     meta, nodes, awaited, held
 *     ARGV[3]  [life that has ended or '' to be told the one that is there, new life, time]
 *     reply    the life that is there; or [scopes to free, whether the place can be left]; false if there is
 *              no such life
 */
export const REPLACE_SCRIPT = scriptOf(`${LUA_PRELUDE}
local ended, life, now = head[1], head[2], now_ms(head[3], KEYS[1])
local node = node_of(KEYS[2], place)
if not node then return pack(false) end
if ended == '' then return pack(node[INCARNATION]) end
if node[INCARNATION] ~= ended then return pack(false) end
node[INCARNATION], node[FORMER], node[VOIDS] = life, ended, 1
call('HSET', KEYS[2], place, pack(node))
-- If it was cut off before it ended, it may have used its equal share. That is held back while it has a record.
local may_leave = node[EQUAL_SHARES] == 0 or now - node[SEEN] <= SILENT
return pack({call('SRANDMEMBER', KEYS[4], ${PAGE_SCOPES}), may_leave})
`);

type Replaced = readonly [scopes: readonly string[], mayLeave: boolean] | false;

/** `nothing`: the server does not know the place. */
type Freed = 'freed' | 'nothing' | 'not_yet';

export interface EndedNodesOptions extends Pick<ValkeyServerOptions, 'client' | 'namespace' | 'host'> {
  readonly partitions: number;
  readonly file: Pick<LeaseFile, 'environment' | 'nodes' | 'meta'>;
  readonly accounting: Pick<HostAccounting, 'spentOf'>;
  readonly timers: LeaseTimers;
  readonly log: Pick<Log, 'info' | 'error'>;
  /** See ValkeyServerOptions. Default: the server's time. */
  readonly timeInsteadMs?: () => number;
}

export class EndedNodes {
  readonly #options: EndedNodesOptions;
  readonly #nodes: LeaseNodes;
  readonly #storeDamage: DamagedScopes;
  readonly #unexpected: UnexpectedErrors;
  #stopTimer: (() => void) | undefined;
  #looking: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(options: EndedNodesOptions) {
    this.#options = options;
    this.#nodes = new LeaseNodes(options.file);
    this.#storeDamage = new DamagedScopes(options.log, 'a record is damaged, and its scope gets no leases');
    this.#unexpected = new UnexpectedErrors(options.log);
  }

  /** Makes known that the node is of this process. Call it before the node joins. Throws what LMDB throws. */
  add(node: NodeIdentity): void {
    const process = identityOf(globalThis.process.pid);
    invariant(process !== undefined, '/proc tells who this process is');
    this.#options.file.environment.write(() => this.#nodes.join(node, process));
  }

  /** Looks from now on, until `close`. */
  start(): void {
    if (this.#closed) return;
    this.#stopTimer = this.#options.timers.after(LOOK_PERIOD_MS, () => {
      this.#looking = this.look().finally(() => this.start());
    });
  }

  /** Resolves when a look that is under way has ended: close the client for that. */
  close(): Promise<void> {
    this.#closed = true;
    this.#stopTimer?.();
    return this.#looking;
  }

  /** Frees what ended lives hold, as far as the server can be asked. Never rejects. */
  async look(): Promise<void> {
    const { file, host, partitions, log } = this.#options;
    try {
      file.environment.refresh();
      for (const [place, life] of this.#nodes.endedOf(host)) {
        const freed: Freed[] = [];
        for (let partition = 0; partition < partitions; partition++)
          freed.push(await this.#freeAt(partition, place, life));
        if (freed.includes('not_yet')) continue;
        file.environment.write(() => this.#nodes.forget(place, life));
        if (freed.includes('freed'))
          log.info('what an ended process held at the sharing server is free', { place });
      }
    } catch (error) {
      // Tried again with the next look.
      this.#unexpected.asLoss(error);
    }
  }

  /** Rejects with CoordinatorLost. */
  async #freeAt(partition: number, place: string, life: number): Promise<Freed> {
    const { timeInsteadMs = () => 0, file } = this.#options;
    const server = new ValkeyServer({ ...this.#options, partition, place, timeInsteadMs });
    const next = randomUUID();
    const ended = (await server.run(REPLACE_SCRIPT, ['', next, timeInsteadMs()])) as string | false;
    if (ended === false) return 'nothing';
    // A process adds its nodes before they join. So if none was added by now, `ended` is of none that runs.
    file.environment.refresh();
    if (this.#closed || this.#nodes.rowAt(place)?.life !== life) return 'not_yet';
    const replaced = (await server.run(REPLACE_SCRIPT, [ended, next, timeInsteadMs()])) as Replaced;
    if (replaced === false) return 'not_yet';
    const [scopes, mayLeave] = replaced;
    if (!(await server.free(next, scopes, (scope) => this.#spentOf(scope)))) return 'not_yet';
    // Not if the place is awaited after a loss of data.
    const hasLeft = !mayLeave || (await server.run(LEAVE_SCRIPT, [next, true])) === true;
    return hasLeft ? 'freed' : 'not_yet';
  }

  /** As VOID_SCRIPT has it. */
  #spentOf(scope: string): readonly number[] | boolean {
    const { accounting } = this.#options;
    return this.#storeDamage.read(scope, () => versioned(accounting.spentOf(scope))) ?? true;
  }
}
