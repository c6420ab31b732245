/**
 * Replicates the registry between hosts. The server of sharing has a log of changes. Each host's store has a
 * copy of the registry, and the copy is at a position of that log. open-hosts.ts creates one RegistryLog in
 * each gateway process, on its main thread; gateway/shared-accounting.ts makes it join, and
 * shared-registry.ts calls `commit`. All processes of a host follow the log, and the quickest writes the
 * next change to the store.
 *
 *     change   draft on the copy → appended to the log → written to the store → acknowledged
 *              if another host was quicker: its changes are written to the copy, and the draft is made again
 *     follow   wait at the server for changes after the copy's → written to the store
 *              → `onApplied`: change-follower.ts brings them to the shared memory that calls go by
 *
 * Calls go by the store, and only the server knows whether another host was quicker. So a change is a draft
 * until the server has appended it. The server appends it only if the copy's position, at which the draft
 * was made, is the end of the log.
 *
 * Without the server nothing can be changed, and calls go on by the copy. A server that has lost its data
 * gets the newest copy of all hosts (registry-reseed.ts).
 *
 * Must hold: all hosts apply the same changes in the same order, and an acknowledged change is not lost, also
 * if its host is killed. A change that may have been made is never rejected as not made (`commit`,
 * registry-contact.ts). If another process moves the copy to a later epoch, a change is acknowledged only if
 * the later epoch has it (test/unit/sharing/registry-log.lost-change.test.ts).
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { ProxyError } from '../core/errors.js';
import { registryRowsOf, type RegistryPosition } from '../store/registry-copy.js';
import type { Store } from '../store/store.js';
import { StoreError } from '../store/store-file.js';
import {
  appendOnce,
  joinFailure,
  madeElsewhere,
  RegistryContact,
  type RegistryContactState,
  RegistryDiverged,
  RETRY_AFTER_SECONDS,
  Superseded,
  unknownFate,
} from './registry-contact.js';
import { download, type RegistryReseedOptions, takePartInReseed, wayTo } from './registry-reseed.js';
import type { ServerChange, ServerRegistry } from './registry-server.js';
import type { CommitChange } from './shared-registry.js';
import { ValkeyError } from './valkey-client.js';

/**
 * How often a change is tried. A try fails if another change came first. So many failures in a row mean that
 * another host floods the registry, or a bug.
 */
const APPENDS_MAX = 200;
/** After so many tries each further one comes after a random pause, or a quicker host would win each time. */
const APPENDS_BEFORE_PAUSE = 3;
const PAUSE_MS_MAX = 20;
/** The pause after the server could not be reached. */
const RETRY_MS = 500;
/** How often a start tries the server. Then the host goes on by its copy, or fails if it has none. */
const JOIN_TRIES_MAX = 20;

interface RegistryLogOptions extends RegistryReseedOptions {
  readonly store: Store;
  /**
   * Brings this process's shared buffers up to date with the store. The poll of change-follower.ts does so
   * too, every 25 ms. So nothing is lost if an error comes before the call.
   */
  readonly onApplied: () => void;
}

export class RegistryLog {
  readonly #options: RegistryLogOptions;
  readonly #contact: RegistryContact;
  /** The run of `#catchAllUp`, which all callers of `#catchUp` await; undefined if none is under way. */
  #catchingUp: Promise<void> | undefined;
  /** The end of the last change, which the next change waits for. Never rejects. */
  #lastChange: Promise<unknown> = Promise.resolve();
  #following: Promise<void> | undefined; // the run of `#follow`, from the end of `join` on
  readonly #closing = new AbortController();
  /** The damage that was logged last. It is found again at each try, until all rows are downloaded. */
  #loggedDamage: string | undefined;

  constructor(options: RegistryLogOptions) {
    this.#options = options;
    this.#contact = new RegistryContact(options.log);
  }

  get state(): RegistryContactState {
    return this.#contact.state;
  }

  /**
   * Brings the copy up to date before calls are served, and follows the log from then on. If the server
   * cannot be reached, or a record of its registry is damaged, a host that has a copy goes on by the copy.
   * Without a copy rejects with the `joinFailure` of a ValkeyError or StoreError. Rejects at once with any
   * other error, such as RegistryDiverged.
   */
  async join(): Promise<void> {
    const { store } = this.#options;
    for (let tries = 1; ; tries++) {
      try {
        await this.#catchUp();
        break;
      } catch (error) {
        // At the first try of a start the connection is still being made, which is no failure to log.
        const isConnecting = tries === 1 && error instanceof ValkeyError && error.code === 'offline';
        if (!isConnecting) this.#recordFailure(error);
        if (!(error instanceof ValkeyError || (error instanceof StoreError && error.code === 'damaged')))
          throw error;
        // The pause rejects only if `close` was called. Then the next `#catchUp` returns at once.
        if (tries < JOIN_TRIES_MAX)
          await pause(RETRY_MS, undefined, { signal: this.#closing.signal }).catch(() => undefined);
        else if (store.copy.position() === undefined) throw joinFailure(error);
        else break;
      }
    }
    this.#following = this.#follow();
  }

  /**
   * Makes one change at a time; the others wait. Rejects with `overloaded` if the change was not made, and
   * with `conflict` if it was made or may have been: the operator has to look before trying again. If `work`
   * or `check` throws, nothing is changed, and `commit` rejects with that error.
   */
  readonly commit: CommitChange = (work, check) => {
    const ended = this.#lastChange.then(() => this.#change(work, check));
    this.#lastChange = ended.catch(() => undefined);
    return ended;
  };

  /**
   * Waits for the end of following, but not for a `join` or a change under way, which end by themselves. The
   * caller closes the clients of the server first, so that commands that wait at the server reject.
   */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#following;
  }

  async #change<Result>(work: () => Result, check: Parameters<CommitChange>[1]): Promise<Result> {
    const { store, onApplied, log } = this.#options;
    for (let appends = 0; appends < APPENDS_MAX; appends++) {
      // Read before the draft: rows that are older than their position would replace newer ones on all hosts.
      const position = store.copy.position();
      const draft = store.shared.draft(work);
      check(draft.rows);
      if (draft.rows.length === 0) return draft.result;
      if (position === undefined || this.#contact.state.kind !== 'following') throw this.#contact.rejection();
      const { epoch, version, lastId: after } = position;
      const change = { version: version + 1, id: randomUUID(), after, rows: registryRowsOf(draft.rows) };
      if (await this.#append(position, change)) {
        await this.#writeOwn(epoch, change);
        onApplied();
        return draft.result;
      }
      try {
        await this.#catchUp();
      } catch (error) {
        this.#recordFailure(error);
        throw this.#contact.rejection();
      }
      if (appends >= APPENDS_BEFORE_PAUSE) await pause(Math.random() * PAUSE_MS_MAX);
    }
    log.warn('a change of accounts and keys was not made: other hosts were quicker', { tries: APPENDS_MAX });
    const message = 'Nothing was changed: other hosts were quicker. Try again.';
    throw new ProxyError('overloaded', 'gateway', message, RETRY_AFTER_SECONDS);
  }

  /** Appends the change at the server. Returns false if another came first. Rejects as `commit` does. */
  async #append(position: RegistryPosition, { id, rows }: ServerChange): Promise<boolean> {
    try {
      return await appendOnce(this.#options.server, position, id, rows);
    } catch (error) {
      if (!(error instanceof ValkeyError)) throw error;
      this.#recordFailure(error);
      throw error.code === 'refused' ? this.#contact.rejection() : unknownFate();
    }
  }

  /**
   * Brings the copy to the server's position. Callers at the same time wait for one run. It may have asked
   * the server before the change that its caller waits for, and so end without it. That is harmless, because
   * each caller looks at the copy again: `#change` appends at an old position once more and is refused,
   * `#writeOwn` rejects as if the change were lost, and `#follow` gets a reply from the server at once.
   */
  #catchUp(): Promise<void> {
    this.#catchingUp ??= this.#catchAllUp().finally(() => {
      this.#catchingUp = undefined;
    });
    return this.#catchingUp;
  }

  async #catchAllUp(): Promise<void> {
    const { store, server, onApplied } = this.#options;
    while (!this.#isClosing()) {
      const position = store.copy.position();
      const registry = await server.pull(position);
      const isEqual = await this.#stepTowards(registry, position);
      onApplied();
      if (!isEqual) continue;
      this.#contact.recordFollowing();
      return;
    }
  }

  /** Brings the copy one step nearer to `registry`, by `wayTo` (registry-reseed.ts); true if it was equal. */
  async #stepTowards(
    registry: ServerRegistry | undefined,
    position: RegistryPosition | undefined,
  ): Promise<boolean> {
    const { store, server, log } = this.#options;
    const way = wayTo(store.copy, registry?.position, position);
    // The second condition is for the compiler: without a registry `wayTo` returns 'reseed'.
    if (way === 'reseed' || registry === undefined) {
      await takePartInReseed(this.#options, registry?.position, this.#closing.signal);
      return false;
    }
    if (way === 'equal') return true;
    const { changes, damage } = registry;
    // If the server no longer has the next change, or it is damaged, this host needs all rows.
    const hasNext = way === 'behind' && changes[0]?.version === (position?.version ?? 0) + 1;
    if (!hasNext && damage !== undefined && damage !== this.#loggedDamage) {
      this.#loggedDamage = damage;
      log.error('a change of accounts and keys is damaged: all of them are taken over anew', {
        error: damage,
      });
    }
    try {
      if (!hasNext) await download(store, server, registry.position);
      else for (const change of changes) this.#write(registry.position.epoch, change);
    } catch (error) {
      // Superseded: another process has moved the copy. The caller reads copy and registry again.
      if (!(error instanceof Superseded)) throw error;
    }
    return false;
  }

  /**
   * Writes this host's own change, which the server has appended, to the store. Rejects with `conflict` if
   * the write fails, or if the server may have lost the change since.
   */
  async #writeOwn(epoch: string, change: ServerChange): Promise<void> {
    try {
      this.#write(epoch, change);
      return;
    } catch (error) {
      if (!(error instanceof Superseded)) {
        this.#recordFailure(error);
        throw madeElsewhere(error);
      }
    }
    // Superseded: another process of this host has put a later epoch in place of the copy. The later epoch
    // has this change, unless the server lost its data before any host had the change.
    try {
      await this.#catchUp();
    } catch (error) {
      this.#recordFailure(error);
      throw unknownFate();
    }
    if (!this.#hasVersion(epoch, change.version)) throw unknownFate();
  }

  /** Whether the copy has the change `version` of `epoch`: the copy's epoch or an earlier one. */
  #hasVersion(epoch: string, version: number): boolean {
    const position = this.#options.store.copy.position();
    const ended = position?.history.find(([endedEpoch]) => endedEpoch === epoch);
    const lastVersion = position?.epoch === epoch ? position.version : ended?.[1];
    return lastVersion !== undefined && lastVersion >= version;
  }

  /**
   * Writes a change of the log to the store; does nothing if another process of this host has written it.
   * Throws Superseded if the copy is of another epoch or lacks an earlier change, and RegistryDiverged if
   * the copy's last change is not the one that this change follows.
   */
  #write(epoch: string, change: ServerChange): void {
    const { copy, shared } = this.#options.store;
    shared.commitAgreed(() => {
      const position = copy.position();
      if (position?.epoch !== epoch) throw new Superseded();
      if (position.version >= change.version) return;
      if (position.version + 1 !== change.version) throw new Superseded();
      if (position.lastId !== change.after) {
        throw new RegistryDiverged(
          `The sharing server has lost the change ${position.version} of accounts and keys that this host has, and has others since.`,
        );
      }
      for (const row of change.rows) copy.apply(row);
      copy.setPosition({ ...position, version: change.version, lastId: change.id });
    });
  }

  /** Follows the log until `close`. Never rejects. */
  async #follow(): Promise<void> {
    const { store, server } = this.#options;
    const { signal } = this.#closing;
    while (!this.#isClosing()) {
      try {
        await this.#catchUp();
        const position = store.copy.position();
        if (position !== undefined && !this.#isClosing()) await server.wait(position);
      } catch (error) {
        this.#recordFailure(error);
        // The length is random, so that hosts that lost the same server do not all come back at once.
        await pause(RETRY_MS * (0.5 + Math.random()), undefined, { signal }).catch(() => undefined);
      }
    }
  }

  #recordFailure(error: unknown): void {
    if (!this.#isClosing()) this.#contact.recordFailure(error);
  }

  #isClosing(): boolean {
    return this.#closing.signal.aborted;
  }
}
