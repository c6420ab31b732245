/**
 * Starts the gateway processes, starts again those that end, and ends them all. Supervisor process.
 *
 * The first gateway decides: one that ends before it ever served ends the group, because trying again would end the same
 * way and an operator is watching. Once it has served, its ports are kept for every later start, so that port 0 means one
 * port for as long as the supervisor lives.
 */
import type { Clock } from '../core/clock.js';
import type { GatewayReady, StartGateway } from '../gateway/messages.js';
import type { Log } from '../telemetry/log.js';
import { GatewayProcess, type GatewayExit, type GatewayProcessOptions } from './gateway-process.js';
import { RestartPolicy, type RestartPauses } from './restart-policy.js';

export interface GroupOptions extends GatewayProcessOptions {
  readonly start: StartGateway;
  readonly pauses: RestartPauses;
  readonly clock: Clock;
  readonly log: Log;
}

export interface GroupEnd {
  /** 0 where every gateway was asked to end and ended with 0. */
  readonly exitCode: 0 | 1;
  /** Why a gateway cannot run; for the operator, may have several lines. */
  readonly refusal: string | undefined;
}

interface Member {
  readonly policy: RestartPolicy;
  process: GatewayProcess | undefined;
  restart: NodeJS.Timeout | undefined;
}

export class ProcessGroup {
  readonly #options: GroupOptions;
  readonly #members: readonly Member[];
  readonly #onReady: (ready: GatewayReady) => void;
  readonly #ended: Promise<GroupEnd>;
  #resolveEnded!: (end: GroupEnd) => void;
  #start: StartGateway;
  #served = false;
  #stopping = false;
  #failed = false;
  #refusal: string | undefined;
  #killTimer: NodeJS.Timeout | undefined;

  /** Starts at once. `onReady` is called once, when the first gateway serves. */
  constructor(options: GroupOptions, onReady: (ready: GatewayReady) => void) {
    this.#options = options;
    this.#onReady = onReady;
    this.#start = options.start;
    this.#ended = new Promise((resolve) => (this.#resolveEnded = resolve));
    this.#members = Array.from({ length: options.start.settings.processes }, () => ({
      policy: new RestartPolicy(options.clock, options.pauses),
      process: undefined,
      restart: undefined,
    }));
    this.#launch(this.#members[0]!);
  }

  /** Resolves when no gateway is left and none will be started. */
  get ended(): Promise<GroupEnd> {
    return this.#ended;
  }

  /** Asks every gateway to finish its calls and end; kills those that have not after the time they have. Idempotent. */
  drain(): void {
    if (this.#stopping) return;
    this.#stopping = true;
    const waitMs = this.#start.settings.drain_timeout_ms + this.#options.exitGraceMs;
    this.#killTimer = setTimeout(() => {
      this.#options.log.error('a gateway did not end in time and is killed', { waited_ms: waitMs });
      this.kill();
    }, waitMs);
    for (const member of this.#members) {
      clearTimeout(member.restart);
      member.process?.drain();
    }
    this.#endIfEmpty();
  }

  /** Ends every gateway at once: calls in flight are cut, and charges of the last flush interval may be lost. */
  kill(): void {
    this.drain();
    for (const member of this.#members) member.process?.kill();
  }

  #launch(member: Member): void {
    member.restart = undefined;
    member.process = new GatewayProcess(this.#options, this.#start, {
      onReady: (ready) => this.#onMemberReady(member, ready),
      onExit: (exit) => this.#onMemberExit(member, exit),
    });
  }

  #onMemberReady(member: Member, ready: GatewayReady): void {
    member.policy.onReady();
    if (this.#served) {
      this.#options.log.info('gateway serves again', { port: ready.port });
      return;
    }
    this.#served = true;
    const { settings } = this.#start;
    this.#start = {
      ...this.#start,
      settings: {
        ...settings,
        listen: { ...settings.listen, port: ready.port },
        admin: { ...settings.admin, port: ready.adminPort },
      },
    };
    this.#onReady(ready);
    if (!this.#stopping) this.#members.slice(1).forEach((other) => this.#launch(other));
  }

  #onMemberExit(member: Member, exit: GatewayExit): void {
    member.process = undefined;
    if (exit.refusal !== undefined) this.#refuse(exit.refusal);
    else if (this.#stopping) this.#failed ||= !exit.clean;
    else if (!this.#served) this.#refuse(`the gateway ended before it was ready (${exit.how})`);
    else this.#restartLater(member, exit);
    this.#endIfEmpty();
  }

  #refuse(reason: string): void {
    this.#failed = true;
    this.#refusal ??= reason;
    this.drain();
  }

  #restartLater(member: Member, exit: GatewayExit): void {
    const pauseMs = member.policy.pauseAfterExitMs();
    member.restart = setTimeout(() => this.#launch(member), pauseMs);
    this.#options.log.warn('gateway ended unasked and is started again', {
      how: exit.how,
      pause_ms: pauseMs,
    });
  }

  #endIfEmpty(): void {
    if (!this.#stopping || this.#members.some((member) => member.process !== undefined)) return;
    clearTimeout(this.#killTimer);
    this.#resolveEnded({ exitCode: this.#failed ? 1 : 0, refusal: this.#refusal });
  }
}
