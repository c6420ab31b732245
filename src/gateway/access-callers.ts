/**
 * The middle of an access line: who called what, and how it ended. Most keys make the same kind of call over and over, so it is
 * kept as bytes, the last kind of each key. Main thread of a gateway process.
 */
import { statusOf } from '../core/errors.js';
import { jsonText } from '../core/json-text.js';
import type { KeyIndex } from '../core/units.js';
import type { IdNames } from '../store/id-names.js';
import type { AccessRecord } from '../telemetry/access-layout.js';

/** Keys whose last kind of call is kept, 500 bytes each. */
const KINDS_MAX = 10_000;
/** With the hour of IdNames well within the day for which a slot rests after its key was deleted. */
const KINDS_KEPT_MS = 3_600_000;

export interface CallerNames {
  readonly ids: IdNames;
  readonly modelIdOf: (modelIndex: number) => string;
  readonly upstreamNameOf: (upstreamSlot: number) => string | undefined;
}

interface Kind {
  readonly record: AccessRecord;
  readonly bytes: Uint8Array;
}

export class AccessCallers {
  readonly #names: CallerNames;
  readonly #kinds = new Map<KeyIndex, Kind>();
  #sinceMs = -Infinity;
  /** By model or upstream, which are few: see CATALOG_ENTRIES_MAX. */
  readonly #models = new Map<number, string>();
  readonly #upstreams = new Map<number, string>();

  constructor(names: CallerNames) {
    this.#names = names;
  }

  /** From the end of the request's identifier to the tokens. */
  bytesOf(record: AccessRecord): Uint8Array {
    const { key, endedMs } = record;
    if (key === undefined) return this.#make(record).bytes;
    if (endedMs - this.#sinceMs > KINDS_KEPT_MS) {
      this.#sinceMs = endedMs;
      this.#kinds.clear();
    }
    const last = this.#kinds.get(key);
    if (last !== undefined && isOfKind(record, last.record)) return last.bytes;
    const { bytes, known } = this.#make(record);
    if (this.#kinds.size >= KINDS_MAX) this.#kinds.clear();
    if (known) this.#kinds.set(key, { record, bytes });
    return bytes;
  }

  /** `known` where the ids could be read. */
  #make(record: AccessRecord): { readonly bytes: Uint8Array; readonly known: boolean } {
    const { ids, modelIdOf, upstreamNameOf } = this.#names;
    const account = record.account === undefined ? null : ids.accountIdOf(record.account);
    const key = record.key === undefined ? null : ids.keyIdOf(record.key);
    const text =
      `","account":${quoted(account)},"key":${quoted(key)},` +
      `"model":${nameOf(this.#models, record.model, modelIdOf)},` +
      `"upstream":${nameOf(this.#upstreams, record.upstream, upstreamNameOf)},` +
      `"stream":${record.stream},"status":${httpStatusOf(record)},` +
      `"code":${record.outcome === 'ok' ? 'null' : `"${record.outcome}"`},`;
    return { bytes: Buffer.from(text, 'latin1'), known: account !== null && key !== null };
  }
}

/** Whether all that is told of the one is so of the other, which has the same key. */
function isOfKind(one: AccessRecord, other: AccessRecord): boolean {
  return (
    one.account === other.account &&
    one.model === other.model &&
    one.upstream === other.upstream &&
    one.stream === other.stream &&
    one.outcome === other.outcome &&
    one.begun === other.begun
  );
}

function nameOf(
  names: Map<number, string>,
  index: number | undefined,
  find: (index: number) => string | undefined,
): string {
  if (index === undefined) return 'null';
  let name = names.get(index);
  if (name === undefined) {
    name = jsonText(find(index) ?? null);
    names.set(index, name);
  }
  return name;
}

/** Identifiers that the registry has made need no escapes. */
function quoted(id: string | null): string {
  return id === null ? 'null' : `"${id}"`;
}

function httpStatusOf({ outcome, begun }: AccessRecord): number | null {
  if (begun || outcome === 'ok') return 200;
  return outcome === 'client_gone' ? null : statusOf({ code: outcome, message: '' });
}
