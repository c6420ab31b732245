/**
 * Creates, finds, lists, changes and deletes operators: people and programs with a token of their own for the
 * admin interface, and a role. registry.ts makes the object; admin/authentication.ts looks up each request's
 * token. Main thread of a gateway process, or a command.
 *
 * Must hold: only the digest of a token is kept. Each request reads the store, so a disabled operator is
 * rejected at the next request to this host, and to another host once its copy has the change.
 */
import { hash } from 'node:crypto';
import { BOOTSTRAP, type Operator, type Role } from '../core/roles.js';
import type { WallMs } from '../core/units.js';
import type { OperatorRecord } from './account-record.js';
import { takeRandomBytes } from './key-digest.js';
import { expiryOf, isExpired } from './key-record.js';
import { COMMAND, SIGNAL, START, WATCH } from './operator-change.js';
import {
  assertReference,
  createId,
  idPattern,
  invalid,
  notFound,
  OPERATOR_TOKEN,
  withoutStart,
} from './record-id.js';
import { commitAndApply } from './record-store.js';
import { recordMomentMs, type RegistryContext } from './registry-context.js';

export interface NewOperator {
  readonly name: string;
  readonly role: Role;
  /** When the token expires: Unix seconds, or seconds from now. If neither is given, it never expires. */
  readonly expiresSeconds?: number | undefined;
  readonly expiresInSeconds?: number | undefined;
}

/** An operator with its last use. admin/operator-routes.ts makes the view. */
export interface OperatorStatement {
  readonly record: OperatorRecord;
  readonly expired: boolean;
  /** Unix seconds of its last request to this host; undefined if no request is known. */
  readonly lastUsedSeconds: number | undefined;
}

/** `token` is the only copy of its text, and can never be read again. */
interface CreatedOperator extends OperatorStatement {
  readonly token: string;
}

/** How often last uses are written, by one fsync. A crash loses the last uses of so long. */
const USES_PERIOD_MS = 600_000;

/** To find an operator by name all rows are read, 3 µs each. This bounds the time. */
const OPERATORS_MAX = 1_000;

const TOKEN_BYTES = 32;
/** Actors that are no operators. */
const OTHER_ACTORS = [BOOTSTRAP, COMMAND, SIGNAL, START, WATCH].map(({ who }) => who);
const NAME_CHARS_MAX = 64;
/** Names appear in logs and tables, so none may look like another actor, an id, a token or a formula. */
const NAME = new RegExp(
  `^(?!(?:${OTHER_ACTORS.join('|')})$)(?!${withoutStart(idPattern(['op_']))})(?!${withoutStart(OPERATOR_TOKEN)})[A-Za-z0-9][A-Za-z0-9._@+-]{0,${NAME_CHARS_MAX - 1}}$`,
);
/** The rule of names as JSON Schema, for the documents. */
export const OPERATOR_NAME_RULE = { minLength: 1, maxLength: NAME_CHARS_MAX, pattern: NAME.source };

export function isOperatorToken(text: string): boolean {
  return OPERATOR_TOKEN.test(text);
}

/** Returns a token that matches OPERATOR_TOKEN. No random byte is used twice (key-digest.ts). */
function newToken(): string {
  return `tgop_${takeRandomBytes(TOKEN_BYTES).toString('base64url')}`;
}

export function digestOfToken(token: string): string {
  return hash('sha256', token);
}

export class Operators {
  readonly #context: RegistryContext;
  /** By id, in Unix seconds: the last uses in this process that are not in the store yet. */
  readonly #unwrittenUses = new Map<string, number>();
  /** When writing uses was last tried, by the monotonic clock. The first use is written at once. */
  #usesTriedMs = -Infinity;

  constructor(context: RegistryContext) {
    this.#context = context;
  }

  /** The operator is on disk on return; so are the changes of other methods. Throws `invalid_parameters`. */
  create({ name, role, ...expiry }: NewOperator): CreatedOperator {
    const { store } = this.#context;
    const nowMs = this.#nowMs;
    const token = newToken();
    const record = store.commit(() => {
      assertNewName(name, store.operators.all());
      const operator: OperatorRecord = {
        id: createId('op_'),
        name,
        role,
        digest: digestOfToken(token),
        active: true,
        createdMs: nowMs,
        expiresSeconds: expiryOf(expiry, nowMs),
      };
      store.operators.put(operator);
      return operator;
    });
    return { ...this.#statementOf(record), token };
  }

  /** Ordered by name. */
  list(): OperatorStatement[] {
    const records = this.#context.store.operators.all();
    const lastUses = this.#lastUses();
    return records
      .sort((record, other) => (record.name < other.name ? -1 : 1))
      .map((record) => this.#statementOf(record, lastUses));
  }

  /**
   * Throws `not_found`, or `invalid_parameters` if a token was given in place of an id or a name; so do
   * `setActive`, `setRole`, `rotate` and `delete`.
   */
  find(idOrName: string): OperatorStatement {
    return this.#statementOf(this.#recordOf(idOrName));
  }

  setActive(idOrName: string, active: boolean): OperatorStatement {
    return this.#change(idOrName, (record) => ({ ...record, active }));
  }

  setRole(idOrName: string, role: Role): OperatorStatement {
    return this.#change(idOrName, (record) => ({ ...record, role }));
  }

  /**
   * Replaces the operator's token. From then on the former token and the console sessions that it opened are
   * rejected. The new token expires when the former token would have, unless another moment is given.
   */
  rotate(
    idOrName: string,
    expiry: Pick<NewOperator, 'expiresSeconds' | 'expiresInSeconds'>,
  ): CreatedOperator {
    const token = newToken();
    const nowMs = this.#nowMs;
    const newExpiry = expiryOf(expiry, nowMs);
    const statement = this.#change(idOrName, (record) => {
      const expiresSeconds = newExpiry ?? record.expiresSeconds;
      if (isExpired({ expiresSeconds }, nowMs))
        throw invalid(
          `the token of ${record.name} has expired: say when the new one does (expires, expires_in)`,
        );
      return { ...record, digest: digestOfToken(token), expiresSeconds };
    });
    return { ...statement, token };
  }

  /** Also drops the last use in memory, even if a commit that threw is on disk. */
  delete(idOrName: string): OperatorRecord {
    const { store } = this.#context;
    const remove = (): OperatorRecord => {
      const record = this.#recordOf(idOrName);
      store.operators.remove(record);
      return record;
    };
    return commitAndApply(
      store,
      remove,
      (removed) => (store.operators.find(removed.digest) === undefined ? removed : undefined),
      ({ id }) => void this.#unwrittenUses.delete(id),
    );
  }

  /**
   * The operator whose token has that digest; undefined if there is none, or it is disabled or expired. A
   * lookup for a request that finds an operator counts as a use. Takes 5 µs.
   */
  identityOf(digest: string, purpose: 'request' | 'check' = 'request'): Operator | undefined {
    const record = this.#context.store.operators.find(digest);
    const nowMs = this.#nowMs;
    if (record === undefined || !record.active || isExpired(record, nowMs)) return undefined;
    if (purpose === 'request') this.#recordUse(record.id, Math.floor(nowMs / 1_000));
    return { who: record.name, role: record.role };
  }

  /** Now, as records have it: in whole milliseconds. */
  get #nowMs(): WallMs {
    return recordMomentMs(this.#context.clock);
  }

  /** By id, the later use of store and memory: another process may have had the admin interface meanwhile. */
  #lastUses(): Map<string, number> {
    const lastUses = this.#context.store.operators.lastUses();
    for (const [id, seconds] of this.#unwrittenUses)
      lastUses.set(id, Math.max(seconds, lastUses.get(id) ?? 0));
    return lastUses;
  }

  #recordUse(id: string, seconds: number): void {
    const { store, clock } = this.#context;
    this.#unwrittenUses.set(id, seconds);
    if (clock.monotonicMs() - this.#usesTriedMs < USES_PERIOD_MS) return;
    this.#usesTriedMs = clock.monotonicMs();
    try {
      store.commit(() => store.operators.putLastUses(this.#lastUses()));
      this.#unwrittenUses.clear();
    } catch {
      // The disk takes no write, which the flush logs. The request goes on, and the uses stay in memory.
    }
  }

  #change(idOrName: string, change: (record: OperatorRecord) => OperatorRecord): OperatorStatement {
    const { store } = this.#context;
    const record = store.commit(() => {
      const former = this.#recordOf(idOrName);
      const changed = change(former);
      // The digest is the key of the row, so the row of the former token would stay valid.
      if (changed.digest !== former.digest) store.operators.remove(former);
      store.operators.put(changed);
      return changed;
    });
    return this.#statementOf(record);
  }

  #recordOf(idOrName: string): OperatorRecord {
    assertReference('operator', idOrName);
    const records = this.#context.store.operators.all();
    const record = records.find(({ id, name }) => id === idOrName || name === idOrName);
    if (record === undefined) throw notFound(`there is no operator ${idOrName}: see the list of operators`);
    return record;
  }

  #statementOf(record: OperatorRecord, lastUses = this.#lastUses()): OperatorStatement {
    return {
      record,
      expired: isExpired(record, this.#nowMs),
      lastUsedSeconds: lastUses.get(record.id),
    };
  }
}

/** Throws `invalid_parameters` if a new operator cannot have that name, or there are too many. */
function assertNewName(name: string, operators: readonly OperatorRecord[]): void {
  if (!NAME.test(name)) {
    throw invalid(
      `name must have 1 to ${NAME_CHARS_MAX} letters, digits and . _ @ + -, begin with a letter or a digit, and be ` +
        `none of ${OTHER_ACTORS.join(', ')}, nor an id or a token`,
    );
  }
  const owner = operators.find((record) => record.name === name);
  if (owner !== undefined) throw invalid(`name must be unique, and ${owner.id} is named ${name} already`);
  if (operators.length >= OPERATORS_MAX) {
    throw invalid(`there are ${OPERATORS_MAX} operators, as many as there may be: delete one`);
  }
}
