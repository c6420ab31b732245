/**
 * The store's table of operators. Its key is the digest of an operator's token, by which a request is looked
 * up. registry/operators.ts uses it, and bounds the rows to OPERATORS_MAX. Main thread.
 *
 * Must hold: whoever changes the digest of a record removes the row of the former digest, or the old token
 * stays valid (test/unit/registry/operators.test.ts, "an operator from its creation to its end"). Rows keep
 * their fields (test/unit/store/record-codec.rows-on-disk.test.ts).
 */
import * as Type from 'typebox';
import { ROLES } from '../core/roles.js';
import { schemaCheck } from '../core/schema-check.js';
import { asWallMs } from '../core/units.js';
import type { OperatorRecord } from '../registry/account-record.js';
import type { OperatorStore } from '../registry/record-store.js';
import {
  closedObject,
  Count,
  Digest,
  findRow,
  Format,
  FORMAT,
  Moment,
  type NoFields,
  rowCodec,
  rowsIn,
} from './record-codec.js';
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

/** The row of `meta` with the last use of each operator on this host: id → Unix seconds. */
const OPERATOR_USES = 'operator_uses';
const isUses = schemaCheck('OperatorUses', Type.RecordFromPattern(Type.StringKey, Count));

const operatorCodec = rowCodec('StoredOperator', StoredOperator, {
  pack: ({ id, name, role, digest, active, createdMs, expiresSeconds, ...others }: OperatorRecord) => {
    others satisfies NoFields;
    return { format: FORMAT, id, name, role, digest, active, createdMs, expiresSeconds };
  },
  unpack: ({ id, name, role, digest, active, createdMs, expiresSeconds }): OperatorRecord => ({
    id,
    name,
    role,
    digest,
    active,
    createdMs: asWallMs(createdMs),
    expiresSeconds,
  }),
});
export const readOperator = operatorCodec.read;

export class OperatorRows implements OperatorStore {
  readonly #tables: Pick<Tables, 'operators' | 'meta'>;

  constructor(tables: Pick<Tables, 'operators' | 'meta'>) {
    this.#tables = tables;
  }

  find(digest: string): OperatorRecord | undefined {
    return findRow(this.#tables.operators, digest, readOperator);
  }

  /** Throws at the first damaged row: a list that leaves out an operator would hide who has access. */
  all(): OperatorRecord[] {
    return Array.from(rowsIn(this.#tables.operators, readOperator), ([, record]) => record);
  }

  put(record: OperatorRecord): void {
    this.#tables.operators.putSync(record.digest, operatorCodec.pack(record));
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
