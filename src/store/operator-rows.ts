/**
 * The store's table of operators. Its key is the digest of an operator's token, by which a request is looked
 * up. registry/operators.ts uses it, and bounds the rows to OPERATORS_MAX. Main thread.
 *
 * Must hold: whoever changes the digest of a record removes the row of the former digest, or the old token
 * stays valid (test/unit/registry/operators.test.ts, "an operator from its creation to its end").
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { ROLES } from '../core/roles.js';
import { schemaCheck } from '../core/schema-check.js';
import { asWallMs } from '../core/units.js';
import type { OperatorRecord } from '../registry/account-record.js';
import type { OperatorStore } from '../registry/record-store.js';
import { closedObject, Count, damaged, Digest, Format, FORMAT, locationOf, Moment } from './record-codec.js';
import type { Tables } from './tables.js';

const StoredOperator = closedObject({
  format: Format,
  id: Type.String(),
  name: Type.String(),
  role: Type.Enum([...ROLES]),
  digest: Digest,
  active: Type.Boolean(),
  createdMs: Moment,
  /** Unix seconds; absent: never. */
  expiresSeconds: Type.Optional(Count),
});

type StoredOperator = Static<typeof StoredOperator>;

const isOperator = schemaCheck('StoredOperator', StoredOperator);

/** The row of `meta` with the last use of each operator on this host: id → Unix seconds. */
const OPERATOR_USES = 'operator_uses';
const isUses = schemaCheck('OperatorUses', Type.RecordFromPattern(Type.StringKey, Count));

/** Throws StoreError `damaged`; `location` names the record in the message. */
export function readOperator(stored: unknown, location: string): OperatorRecord {
  if (!isOperator(stored)) throw damaged(location);
  const { id, name, role, digest, active, createdMs, expiresSeconds } = stored;
  return { id, name, role, digest, active, createdMs: asWallMs(createdMs), expiresSeconds };
}

export class OperatorRows implements OperatorStore {
  readonly #tables: Pick<Tables, 'path' | 'operators' | 'meta'>;

  constructor(tables: Pick<Tables, 'path' | 'operators' | 'meta'>) {
    this.#tables = tables;
  }

  find(digest: string): OperatorRecord | undefined {
    const stored = this.#tables.operators.get(digest);
    return stored === undefined
      ? undefined
      : readOperator(stored, locationOf(this.#tables, 'operators', digest));
  }

  /** Throws at the first damaged row: a list that leaves out an operator would hide who has access. */
  all(): OperatorRecord[] {
    const rows = this.#tables.operators.getRange();
    return Array.from(rows, ({ key, value }) =>
      readOperator(value, locationOf(this.#tables, 'operators', key)),
    );
  }

  put({ expiresSeconds, ...plainFields }: OperatorRecord): void {
    // A field without a value is left out of the row.
    const expiry = expiresSeconds === undefined ? {} : { expiresSeconds };
    this.#tables.operators.putSync(plainFields.digest, { format: FORMAT, ...plainFields, ...expiry });
  }

  remove({ digest }: OperatorRecord): void {
    this.#tables.operators.removeSync(digest);
  }

  /** Returns the Unix seconds of each last use on this host, by operator id. */
  lastUses(): Map<string, number> {
    const stored = this.#tables.meta.get(OPERATOR_USES);
    // A damaged row counts as none, because last uses are only shown to operators.
    return new Map(isUses(stored) ? Object.entries(stored) : []);
  }

  /** Replaces all last uses. Leaves out deleted operators, so that the row does not grow. */
  putLastUses(lastUses: ReadonlyMap<string, number>): void {
    const ids = new Set(this.all().map(({ id }) => id));
    const keptUses = [...lastUses].filter(([id]) => ids.has(id));
    this.#tables.meta.putSync(OPERATOR_USES, Object.fromEntries(keptUses));
  }
}
