/**
 * The row that is recorded of each change that an operator makes: who, from where, what, and the values
 * before and after. The rows are chained by hash (store/operator-changes.ts), which shows if a row was
 * altered, removed or inserted. registry.ts hands each change to store/operator-changes.ts, which writes the
 * row; admin/change-routes.ts shows rows to operators. Main thread.
 *
 * Must hold: HASHED_CHANGE is the form of all rows that were ever written, because the check of the chain
 * calls a row altered that it does not fit. So no field is removed, renamed or narrowed, and a new one is
 * optional, the last, and absent from old rows; FORMAT of store/record-codec.ts is raised then, because to an
 * older Tollgate the new rows are altered. The order of the fields is that of the JSON that is hashed, by
 * which others than Tollgate check the rows of the admin interface. Test:
 * test/unit/store/operator-changes.test.ts.
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { type Operator, ROLES } from '../core/roles.js';
import type { WallMs } from '../core/units.js';

const CLOSED = { additionalProperties: false };

/** Who changes something, and from where. `from` is the address of a client, or a command's system user. */
interface Actor extends Operator {
  readonly from: string;
}

/**
 * Actors that are no operators: the start, a signal to the supervisor, a watched file. No operator may have
 * such a name, so each is in OTHER_ACTORS of operators.ts too (test/unit/registry/operators.test.ts).
 */
export const START: Actor = { who: 'start', role: 'admin', from: 'gateway' };
export const SIGNAL: Actor = { who: 'signal', role: 'admin', from: 'supervisor' };
export const WATCH: Actor = { who: 'watch', role: 'admin', from: 'supervisor' };

/** A command that works on the store itself. A user who can open the data directory can do anything. */
export const COMMAND: Operator = { who: 'command', role: 'admin' };

/** Why something changes. An `action` is for example `keys.rotate`. */
export interface Cause {
  readonly actor: Actor;
  readonly action: string;
}

const FieldValue = Type.Union([Type.String(), Type.Number(), Type.Boolean(), Type.Null()]);

/**
 * Null is no value: before it was set, or after it was removed. Both are null for an entry of the settings
 * that is added or removed whole; the field says which, such as `plans.free (added)`.
 */
const FieldChange = Type.Object(
  {
    field: Type.String({
      description: "the field's name; of a further record, after its id and a point: `key_….name`",
    }),
    before: FieldValue,
    after: FieldValue,
  },
  CLOSED,
);

const ChangeTarget = Type.Object(
  {
    type: Type.String({ description: '`account`, `key`, `group`, `operator`, `settings`, `log` …' }),
    id: Type.Union([Type.String(), Type.Null()]),
    name: Type.Union([Type.String(), Type.Null()]),
  },
  CLOSED,
);

/** The fields that are hashed, as JSON without spaces and in this order. */
export const HASHED_CHANGE = {
  number: Type.Integer({ minimum: 1, description: 'from 1, without gaps' }),
  at_ms: Type.Integer({ description: 'Unix milliseconds' }),
  who: Type.String({
    description: "an operator's name, or `bootstrap`, `command`, `signal`, `watch` or `start`",
  }),
  role: Type.Enum([...ROLES]),
  from: Type.String({ description: 'the address of the client; of a command the user of the system' }),
  action: Type.String(),
  target: ChangeTarget,
  changes: Type.Array(FieldChange),
};

export const OperatorChange = Type.Object(
  {
    ...HASHED_CHANGE,
    hash: Type.String({
      description: 'SHA-256, in hex, of the hash before and the JSON of the other members',
    }),
  },
  CLOSED,
);

export type OperatorChange = Static<typeof OperatorChange>;
export type FieldValue = Static<typeof FieldValue>;
export type FieldChange = Static<typeof FieldChange>;
export type ChangeTarget = Static<typeof ChangeTarget>;

/** What is known only after the change. */
export interface ChangeDetails {
  readonly target: ChangeTarget;
  readonly changes: readonly FieldChange[];
}

/** A field that is undefined does not restrict the list. */
export interface ChangeFilter {
  readonly who?: string | undefined;
  /** The whole action, or its first word: `keys`. */
  readonly action?: string | undefined;
  /** Id or name of the target. */
  readonly target?: string | undefined;
  readonly fromMs?: number | undefined;
  readonly toMs?: number | undefined;
}

/** Rows, the newest first. */
export interface ChangePage {
  readonly items: readonly OperatorChange[];
  /** The number before which the next page continues; undefined after the oldest row. */
  readonly next: number | undefined;
}

/** What is wrong with a row of the chain. */
export interface ChainProblem {
  readonly number: number;
  readonly problem: string;
}

/** A row's position in the chain. Number 0 with an empty hash stands for the link before the first row. */
export interface ChainLink {
  readonly number: number;
  readonly hash: string;
}

export interface ChainReport {
  /** How many rows were read. */
  readonly rows: number;
  /** The row before the oldest row that is kept. */
  readonly before: ChainLink;
  /** The newest row. */
  readonly head: ChainLink;
  /** The first problems found; empty if the chain is whole. */
  readonly problems: readonly ChainProblem[];
}

/** The result of a change, and its row; undefined if nothing was written. */
export interface Recorded<Result> {
  readonly result: Result;
  readonly change: OperatorChange | undefined;
}

export interface ChangeStore {
  /**
   * Runs `work`, which may commit once and must not call `runAs`. What it writes to the registry is recorded
   * in the same transaction, as the change of `cause`. Throws an Error if `work` returns a promise: what it
   * writes later would not be recorded.
   */
  runAs<Result>(cause: Cause & { readonly atMs: WallMs }, work: () => Result): Recorded<Result>;
  /** Records a change that writes no row of the registry. Call it in a commit of `work` in `runAs`. */
  record(details: ChangeDetails): void;
  /**
   * Returns at most `limit` rows before the number `before`, or the newest. Reads some thousand rows at most,
   * in 10 ms, so a page may be empty although `next` is set. Skips rows that cannot be read (see `verify`).
   */
  page(filter: ChangeFilter, before: number | undefined, limit: number): ChangePage;
  /**
   * Reads the whole chain, in slices of some 10 ms. A million rows take some seconds. If `clientLeft` is
   * aborted, it ends after the slice and rejects.
   */
  verify(clientLeft?: AbortSignal): Promise<ChainReport>;
}
