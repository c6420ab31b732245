/**
 * What a contender is: something that listens on loopback and answers chat calls, and the processes behind
 * it. Starters of contenders (this folder) make them, and round.ts and latency.ts measure them.
 */

/** In the order of measuring. */
export const CONTENDER_NAMES = [
  'bare',
  'direct',
  'nginx',
  'haproxy',
  'relay',
  'portkey',
  'litellm',
  'litellm-limits',
  'litellm-rs',
  'litellm-rs-limits',
  'tollgate',
  'any',
  'tollgate-2',
  'tollgate-4',
  'tollgate-2p',
] as const;
export type ContenderName = (typeof CONTENDER_NAMES)[number];

/**
 * Run where they are named: as many listeners, and as many workers, of the gateway, of each of two processes
 * in `2p`. Fewer cores than threads say nothing.
 */
export const THREADS = { 'tollgate-2': 2, 'tollgate-4': 4, 'tollgate-2p': 1 } as const;

/** Who asks, for those contenders that tell callers apart. */
export type Caller = 'paying' | 'limited' | 'unknown';

/** How a scenario is asked of one contender. */
export interface Call {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface Contender {
  readonly name: ContenderName;
  readonly port: number;
  /** All its processes that live now. */
  pids(): number[];
  /** `status`: that which the response must have. */
  callOf(wanted: { readonly caller: Caller; readonly status: number }): Call;
}

export const CHAT_PATH = '/v1/chat/completions';
export const JSON_HEADERS = { 'content-type': 'application/json' } as const;

/** A call that carries no key: the contender asks for none. */
export const openCall = (): Call => ({ path: CHAT_PATH, headers: JSON_HEADERS });
