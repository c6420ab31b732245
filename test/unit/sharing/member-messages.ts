/**
 * What a test and the processes that share a registry say to each other.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

export const ACCOUNTS_MAX = 200;
export const KEYS_MAX = 400;

export const CHANGES = [
  'account',
  'plan',
  'disable-account',
  'enable-account',
  'credit',
  'debit',
  'bulk',
  'key',
  'disable-key',
  'enable-key',
  'rotate',
  'delete-key',
] as const;
export type Change = (typeof CHANGES)[number];

export type MemberRequest = { readonly id: number } & (
  | {
      readonly kind: 'change';
      readonly what: Change;
      readonly of: string;
      readonly name: string;
      readonly planId: string;
    }
  | { readonly kind: 'look' }
  | { readonly kind: 'see' }
  | { readonly kind: 'burn'; readonly looks: number }
  | { readonly kind: 'find'; readonly digest: string }
);
type WithoutId<Request> = Request extends unknown ? Omit<Request, 'id'> : never;

/** What a process's buffers know. */
export interface Sight {
  readonly accounts: readonly { readonly plan: number; readonly active: boolean }[];
  readonly keys: readonly {
    readonly slot: number;
    readonly account: number;
    readonly state: string;
    readonly limited: boolean;
    readonly expired: boolean;
  }[];
  readonly found: readonly string[];
  readonly log: readonly string[];
}

export interface MemberAnswer extends Partial<Sight> {
  readonly id: number;
  readonly made?: unknown;
  readonly rejected?: string;
  readonly key?: number | undefined;
  readonly state?: string | undefined;
  readonly microseconds?: number;
}

export class Member {
  readonly child: ChildProcess;
  readonly #waiting = new Map<number, (answer: MemberAnswer) => void>();
  #asked = 0;

  private constructor(child: ChildProcess) {
    this.child = child;
    child.on('message', (answer: MemberAnswer) => {
      this.#waiting.get(answer.id)?.(answer);
      this.#waiting.delete(answer.id);
    });
  }

  static async start(dataPath: string, pace: 'timer' | 'asked'): Promise<Member> {
    const member = new Member(
      fork(fileURLToPath(new URL('registry-member.js', import.meta.url)), [dataPath, pace], {
        serialization: 'advanced',
      }),
    );
    await new Promise<MemberAnswer>((resolve) => member.#waiting.set(0, resolve));
    return member;
  }

  ask(request: WithoutId<MemberRequest>): Promise<MemberAnswer> {
    const id = ++this.#asked;
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve);
      this.child.send({ ...request, id });
    });
  }

  async end(): Promise<void> {
    this.child.disconnect();
    await once(this.child, 'exit');
  }
}
