/**
 * A node of the authority of hosts, that shows that it lives, and what it does when it is cut off. Main thread.
 *
 * It says something every few seconds, also when it holds nothing: after a loss of data the server waits for every node.
 *
 * Requests a minute without the authority: a node that has been cut off from it gives itself an equal share of each limit, by the
 * setting `on_authority_loss: equal_share`. Day, calls in flight and money live on what was leased.
 *
 * Why the limit holds in a cut that parts the nodes: the server holds the share of a node back once it has heard nothing of it
 * for SILENT_MS, until expiry and for a window after it has come back. What was lent before that weighs for QUARANTINE_MS at
 * the most. A node begins only when both are over, counted from the last moment at which the server may have heard it (a message
 * may take as long as SILENT_MS: one that takes longer finds its node held back already); it ends at its first contact, or at
 * expiry. Where the server is gone, all nodes have their shares, which are the limit at the most.
 *
 * A node that has never joined in its life has no share: its earlier life may have used it.
 */
import type { Clock } from '../core/clock.js';
import { asPicoUnits } from '../core/units.js';
import {
  AuthorityLost,
  type Authority,
  type ExchangeAnswer,
  type JoinAnswer,
  type LeaseAnswer,
  type LeaseAsk,
  type MinuteAsk,
  type NodeIdentity,
  type SubjectView,
} from './authority.js';
import { wasNotSent } from './authority-loss.js';
import { MemoryAuthority } from './memory-authority.js';
import { QUARANTINE_MS, SILENT_MS } from './valkey-lua.js';

const NO_MONEY = asPicoUnits(0n);

/** From the last moment at which the server may have heard the node. */
export const SHARE_BEGINS_MS = 2 * SILENT_MS + QUARANTINE_MS;
/** An idle node says that it lives: its share would be held back otherwise. */
const HEARTBEAT_MS = SILENT_MS / 4;

export interface EqualShareOptions {
  readonly authority: Authority;
  readonly node: NodeIdentity;
  readonly clock: Clock;
  /** Nodes of all hosts, by the settings; 0 where none has a share. */
  readonly shares: number;
  readonly nodeExpiryMs: number;
}

export class EqualShare implements Authority {
  readonly #options: EqualShareOptions;
  readonly #own: Authority;
  #heardMs = Infinity;
  #last: Promise<unknown> = Promise.resolve();
  #heartbeat: NodeJS.Timeout | undefined;
  #left = false;

  constructor(options: EqualShareOptions) {
    this.#options = options;
    this.#own = new MemoryAuthority(options.clock).connect(options.node);
  }

  /** Since the server may last have heard the node; below 0 where it never has. */
  get silentMs(): number {
    return this.#options.clock.monotonicMs() - this.#heardMs;
  }

  /** Whether the node lives on its share. */
  get isAlone(): boolean {
    if (this.#options.shares === 0) return false;
    const { silentMs } = this;
    return silentMs >= SHARE_BEGINS_MS && silentMs <= this.#options.nodeExpiryMs;
  }

  async join(): Promise<JoinAnswer> {
    const answer = await this.#inTurn(() => this.#options.authority.join());
    await this.#own.join();
    this.#heartbeat ??= setInterval(() => {
      // What fails is seen by the next exchange that is asked for.
      this.#beat().catch(() => undefined);
    }, HEARTBEAT_MS).unref();
    return answer;
  }

  async exchange(asks: readonly LeaseAsk[]): Promise<ExchangeAnswer> {
    try {
      return await this.#inTurn(() => this.#options.authority.exchange(asks.map(ofServer)));
    } catch (error) {
      if (!(error instanceof AuthorityLost) || !this.isAlone || asks.some(needsServer)) throw error;
      const { answers } = await this.#own.exchange(asks.map((ask) => this.#ofOwn(ask)));
      return {
        wallMs: this.#options.clock.wallMs(),
        answers: asks.map((ask, at) => alone(ask, answers[at]!)),
      };
    }
  }

  look(subjects: readonly string[]): Promise<SubjectView[]> {
    return this.#options.authority.look(subjects);
  }

  leave(): Promise<void> {
    // One that waits for its turn would join again.
    clearInterval(this.#heartbeat);
    this.#left = true;
    return this.#inTurn(() => this.#options.authority.leave());
  }

  close(): Promise<void> {
    clearInterval(this.#heartbeat);
    return this.#options.authority.close();
  }

  /** A server that knows nothing is told all at once, and not when a request comes: others wait for it. */
  async #beat(): Promise<void> {
    const { authority } = this.#options;
    await this.#inTurn(async () => {
      if (this.#left) return;
      try {
        await authority.exchange([]);
      } catch (error) {
        if (!(error instanceof AuthorityLost) || error.reason !== 'unknown_node') throw error;
        await authority.join();
      }
    });
  }

  /** One call at a time reaches the authority, as it wants; notes when the server may have heard it. */
  #inTurn<Result>(call: () => Promise<Result>): Promise<Result> {
    const made = this.#last.then(async () => {
      try {
        const result = await call();
        this.#heardMs = this.#options.clock.monotonicMs();
        return result;
      } catch (error) {
        // Before the first answer there is nothing to be silent after.
        if (this.#heardMs !== Infinity && !wasNotSent(error))
          this.#heardMs = this.#options.clock.monotonicMs();
        throw error;
      }
    });
    this.#last = made.catch(() => undefined);
    return made;
  }

  #ofOwn({ subject, limits, minute }: LeaseAsk): LeaseAsk {
    const requestsPerMinute = Math.floor(limits.requestsPerMinute / this.#options.shares);
    const returned = (minute?.returned ?? [])
      .filter(({ tick }) => tick < 0)
      .map(({ tick, count }) => ({ tick: -1 - tick, count }));
    return {
      subject,
      limits: { ...limits, requestsPerMinute },
      ...(minute === undefined ? {} : { minute: { ...minute, returned } }),
    };
  }
}

/** Permits of the own share have ticks below 0, and are none that the server knows. */
function ofServer(ask: LeaseAsk): LeaseAsk {
  const { minute } = ask;
  if (minute === undefined || minute.returned.every(({ tick }) => tick >= 0)) return ask;
  const own: MinuteAsk = { ...minute, returned: minute.returned.filter(({ tick }) => tick >= 0) };
  return { ...ask, minute: own };
}

/** To be told that there is none would be wrong: there may be, and only the server knows. */
function needsServer({ day, slots, money }: LeaseAsk): boolean {
  return (day?.least ?? 0) > 0 || (slots?.least ?? 0) > 0 || (money?.least ?? 0n) > 0n;
}

function alone(ask: LeaseAsk, { minute }: LeaseAnswer): LeaseAnswer {
  const none = { granted: 0, remaining: 0, elsewhere: true };
  return {
    ...(minute === undefined ? {} : { minute: { ...minute, tick: -1 - minute.tick, elsewhere: false } }),
    ...(ask.day === undefined ? {} : { day: { ...none, dayNumber: ask.day.dayNumber, endsInMs: 0 } }),
    ...(ask.slots === undefined ? {} : { slots: none }),
    ...(ask.money === undefined
      ? {}
      : { money: { granted: NO_MONEY, remaining: NO_MONEY, elsewhere: true } }),
  };
}
