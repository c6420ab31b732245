/** What a group of gateways is given, and what it tells. Supervisor process. */
import type { Settings } from '../config/schema.js';
import type { GatewayReady, ReloadOutcome, ReloadRequest, StartGateway } from '../gateway/messages.js';
import type { Log } from '../telemetry/log.js';
import type { MemberOptions } from './group-member.js';

export interface GroupOptions extends MemberOptions {
  readonly settings: Settings;
  readonly demo: boolean;
  /** The settings as an operator looks at them. */
  readonly inForce: StartGateway['inForce'];
  /** Of this supervisor: see GroupPlace. */
  readonly groupId: string;
  readonly log: Log;
}

export interface GroupEnd {
  /** 0 where every gateway was asked to end and ended with 0. */
  readonly exitCode: 0 | 1;
  /** Why a gateway cannot run; for the operator, may have several lines. */
  readonly refusal: string | undefined;
}

export interface GroupCallbacks {
  /** Once, when the first gateway serves. */
  onReady(ready: GatewayReady): void;
  /** A gateway's operator asks for a reload; must not reject. */
  onReloadAsked(request: ReloadRequest): Promise<ReloadOutcome>;
}

/** A replacement that has begun. */
export interface Replacement {
  /** Gateways that are replaced. */
  readonly count: number;
  /** When all are: undefined; or why the rest stay as they are. */
  readonly done: Promise<string | undefined>;
}
