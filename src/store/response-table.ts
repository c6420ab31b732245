/**
 * The responses on disk (`answers` in names of tables), and the codec of their rows. If they exceed their
 * bound of bytes, the oldest are evicted. One ResponseTable has the responses for replays by Idempotency-Key
 * (stored-responses.ts, flush.ts), one the response cache (gateway/cache-service.ts), which also bounds the
 * bytes of each model. A response counts for the bytes of its body and ROW_BYTES. Main thread of a gateway
 * process; in a command the audit reads the rows.
 *
 * Must hold: a damaged row is not served. Neither a damaged row nor a damaged sum of bytes stops the
 * transaction, which may be that of charges (test/unit/store/response-table.test.ts, test/fuzz). What
 * `digestOfResponse` hashes, and in which order, never changes, because the digests are on disk.
 */
import { createHash } from 'node:crypto';
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { parsedJson } from '../core/json.js';
import { schemaCheck } from '../core/schema-check.js';
import { asAccountIndex, asWallMs } from '../core/units.js';
import { modelOfCacheKey, type ResponseKey, type ResponseRecord } from '../registry/stored-response.js';
import {
  closedObject,
  damaged,
  Digest,
  findRow,
  Format,
  FORMAT,
  Moment,
  rowErrorOf,
  unlessDamaged,
} from './record-codec.js';
import type { Tables } from './tables.js';

const StoredResponse = closedObject({
  format: Format,
  bodyDigest: Digest,
  endedMs: Moment,
  stream: Type.Boolean(),
  fallback: Type.Optional(Type.String()),
  /** Made by `digestOfResponse`. Absent in formats before DIGEST_SINCE. */
  digest: Type.Optional(Digest),
  // Bytes, or null if they were too many to be kept. TypeBox has no type for them.
  bytes: Type.Unknown(),
});

const isResponse = schemaCheck('StoredResponse', StoredResponse);

/**
 * The first format whose rows for replays must have a digest. Responses of earlier formats stay valid, and
 * are gone after `idempotency.keep_hours`.
 */
const DIGEST_SINCE = 5;

/** About how many bytes a row takes besides its body; counted, so that short responses are bounded too. */
const ROW_BYTES = 512;

/** How many expired rows one transaction removes, in some 10 ms of the main thread. */
const EXPIRED_MAX = 1_000;
/** Pause between two transactions that remove expired rows, for the other work of the thread. */
export const EXPIRY_PAUSE_MS = 100;

/** How many of the oldest rows are read at once. */
const BATCH_ROWS = 64;

export interface ResponseChanges {
  /** Responses to write. */
  readonly kept: readonly ResponseRecord[];
  /** Keys whose responses are to be removed. */
  readonly forgotten: readonly ResponseKey[];
  readonly bounds: ResponseBounds;
}

export interface ResponseBounds {
  /** A response that ended at or before this time has expired. */
  readonly expiredMs: number;
  /** Bound of the bytes of all responses together. */
  readonly bytesMax: number;
  /** The response cache alone: bounds of the bytes of single models, by model id. */
  readonly modelBytesMax?: ReadonlyMap<string, number>;
}

/** The key of a row of ages, which sorts the responses of all accounts by the end of their calls. */
type Age = readonly [endedMs: number, account: number, key: string];

/** Returns the bytes that a response counts for. */
export function responseBytesOf({ bytes }: ResponseRecord): number {
  return ROW_BYTES + (bytes?.length ?? 0);
}

interface ResponseTables extends Pick<Tables, 'meta' | 'answers' | 'answerAges'> {
  /** Name of the row of `meta` with the bytes that all responses count for. */
  readonly bytesName: string;
  /** The first format whose rows must have a digest. Default: DIGEST_SINCE. */
  readonly digestSince?: number;
  /** Ages by model; undefined if the bytes of single models have no bounds. */
  readonly modelAges?: Tables['cachedModelAges'];
}

/** Name of the row of `meta` with the bytes of the cached responses of each model, as JSON. */
const MODEL_BYTES_NAME = 'cached_model_bytes';

/** What `apply` needs of the models whose bytes have bounds: their ages, and their bytes as it goes on. */
interface ModelRows {
  readonly ages: Tables['cachedModelAges'];
  /** Bytes that the responses of a model count for, by model id. A model without responses has no entry. */
  readonly bytes: Map<string, number>;
}

/** Returns the table of the responses for replays by Idempotency-Key. */
export function keyedResponseTable({ meta, answers, answerAges }: Tables): ResponseTable {
  return new ResponseTable({ meta, answers, answerAges, bytesName: 'answer_bytes' });
}

/** Returns the table of the response cache. */
export function cachedResponseTable(tables: Tables): ResponseTable {
  const { meta, cached: answers, cachedAges: answerAges, cachedModelAges: modelAges } = tables;
  const bytesName = 'cached_bytes';
  // `digestSince`: a cached response of any format must have a digest.
  return new ResponseTable({ meta, answers, answerAges, modelAges, bytesName, digestSince: 0 });
}

export class ResponseTable {
  readonly #tables: ResponseTables;

  constructor(tables: ResponseTables) {
    this.#tables = tables;
  }

  /** Returns a copy of the response, however old; undefined if there is none. Throws StoreError. */
  find(key: ResponseKey): ResponseRecord | undefined {
    const { answers, digestSince } = this.#tables;
    return findRow(answers, [key.account, key.key], (stored, location) =>
      readResponse(stored, key, location, digestSince),
    );
  }

  /** When the oldest response ended, by a damaged key long ago; undefined if there is none. Takes some µs. */
  oldestMs(): number | undefined {
    const age = this.#oldestAge();
    return age === undefined || isAge(age) ? age?.[0] : -Infinity;
  }

  /**
   * Removes the oldest responses that have expired, as many as one transaction may, which `commit` makes.
   * Returns whether there may be more. False also if the oldest row could not be removed, because it is
   * damaged: otherwise each call would return true.
   */
  expire(bounds: ResponseBounds, commit: (work: () => void) => void): boolean {
    const oldestAge = String(this.#oldestAge());
    if ((this.oldestMs() ?? Infinity) > bounds.expiredMs) return false;
    commit(() => this.apply({ kept: [], forgotten: [], bounds }));
    return oldestAge !== String(this.#oldestAge());
  }

  /** The key of the oldest row of ages. */
  #oldestAge(): Age | undefined {
    return Array.from(this.#tables.answerAges.getKeys({ limit: 1 }))[0];
  }

  /**
   * Bytes that all responses count for. If the sum is damaged, which must not stop the flush of charges, the
   * rows are counted again: 1 µs each.
   */
  get bytes(): number {
    const { meta, bytesName } = this.#tables;
    const bytes = meta.get(bytesName) ?? 0;
    return typeof bytes === 'number' && Number.isSafeInteger(bytes) && bytes >= 0 ? bytes : this.#recount();
  }

  /** Makes the changes, then removes the oldest responses beyond the bounds. Call in a transaction. */
  apply({ kept, forgotten, bounds }: ResponseChanges): void {
    const { meta, bytesName } = this.#tables;
    const models = this.#readModels();
    let { bytes } = this;
    // Either the bound was lowered or the sum is damaged. A damaged sum must not evict responses that fit.
    if (bytes > bounds.bytesMax) bytes = this.#recount();
    for (const key of forgotten) bytes -= this.#remove(key, models);
    for (const record of kept) bytes += this.#put(record, models);
    // The bounds of models come first: what they evict need not be evicted for the bound of all.
    if (models !== undefined)
      for (const [model, bytesMax] of bounds.modelBytesMax ?? [])
        bytes -= this.#evictOfModel(model, bytesMax, models);
    meta.putSync(bytesName, this.#evict(bytes, bounds, models));
    if (models !== undefined) meta.putSync(MODEL_BYTES_NAME, JSON.stringify([...models.bytes]));
  }

  /**
   * Undefined if this table has no bounds for models. In a store of an earlier version the row is missing.
   * Then the models of the responses are unknown, and all responses are removed.
   */
  #readModels(): ModelRows | undefined {
    const { meta, modelAges: ages } = this.#tables;
    if (ages === undefined) return undefined;
    const text = meta.get(MODEL_BYTES_NAME);
    const entries = typeof text === 'string' ? parsedJson(text) : undefined;
    if (Array.isArray(entries) && entries.every(isModelEntry)) return { ages, bytes: new Map(entries) };
    this.clear();
    return { ages, bytes: new Map() };
  }

  /** At most `limit` keys after `after`, or from the first on, in the order of the table. 1 µs a key. */
  keys(after: ResponseKey | undefined, limit: number): ResponseKey[] {
    const { answers } = this.#tables;
    // `\0` makes it the least text after `after.key`.
    const start = after === undefined ? {} : { start: [after.account, `${after.key}\0`] as [number, string] };
    return Array.from(answers.getKeys({ ...start, limit }), ([account, key]) => ({
      account: asAccountIndex(account),
      key,
    }));
  }

  /** Removes all responses, damaged ones too. Call in a transaction. */
  clear(): void {
    const { answers, answerAges, modelAges, meta, bytesName } = this.#tables;
    answers.clearSync();
    answerAges.clearSync();
    meta.putSync(bytesName, 0);
    if (modelAges === undefined) return;
    modelAges.clearSync();
    meta.putSync(MODEL_BYTES_NAME, '[]');
  }

  #recount(): number {
    let bytes = 0;
    for (const { value } of this.#tables.answerAges.getRange()) bytes += countedBytesOf(value);
    return bytes;
  }

  /** Puts the record in place of an older one of its key. Returns by how many bytes all responses grow. */
  #put(record: ResponseRecord, models: ModelRows | undefined): number {
    const { account, key, endedMs } = record;
    // The row may be on disk with its bytes, though its commit threw and memory has dropped the bytes.
    if (record.bytes === undefined && this.#hasRow(record)) return 0;
    const removed = this.#remove(record, models);
    const bytes = responseBytesOf(record);
    this.#tables.answers.putSync([account, key], packResponse(record));
    this.#tables.answerAges.putSync([endedMs, account, key], bytes);
    if (models === undefined) return bytes - removed;
    const model = modelOfCacheKey(record);
    models.ages.putSync([model, endedMs, account, key], bytes);
    models.bytes.set(model, (models.bytes.get(model) ?? 0) + bytes);
    return bytes - removed;
  }

  /** Returns the bytes that the removed response counted for; 0 if there was none. */
  #remove(key: ResponseKey, models: ModelRows | undefined): number {
    const damages: string[] = [];
    const record = unlessDamaged(
      () => this.find(key),
      (message) => damages.push(message),
    );
    if (damages.length > 0) return this.#removeDamaged(key, models);
    if (record === undefined) return 0;
    return this.#removeRow([record.endedMs, key.account, key.key], responseBytesOf(record), models);
  }

  /**
   * The age of a damaged response is unknown, so all rows of ages are looked through: 1 µs each. One that
   * stayed would have the next response of the key evicted by the age of this one.
   */
  #removeDamaged({ account, key }: ResponseKey, models: ModelRows | undefined): number {
    const { answers, answerAges } = this.#tables;
    answers.removeSync([account, key]);
    const ages = Array.from(
      answerAges.getRange().filter(({ key: age }) => isAge(age) && age[1] === account && age[2] === key),
    );
    return ages.reduce((bytes, { key: age, value }) => bytes + this.#removeRow(age, value, models), 0);
  }

  /** Whether the response of the same call is on disk. */
  #hasRow({ account, key, bodyDigest, endedMs }: ResponseRecord): boolean {
    const stored = unlessDamaged(() => this.find({ account, key }));
    return stored?.endedMs === endedMs && stored.bodyDigest === bodyDigest;
  }

  /**
   * Removes a response from all tables. `age` is the key of its row of ages, `countedBytes` the value there.
   * Returns the bytes that the response counted for. `model` counted them; by default that of its key.
   */
  #removeRow(age: Age, countedBytes: unknown, models: ModelRows | undefined, model?: string): number {
    const { answers, answerAges } = this.#tables;
    const [endedMs, account, key] = age;
    const bytes = countedBytesOf(countedBytes);
    answers.removeSync([account, key]);
    answerAges.removeSync([endedMs, account, key]);
    if (models === undefined) return bytes;
    const keyModel = modelOfCacheKey({ account: asAccountIndex(account), key });
    models.ages.removeSync([keyModel, endedMs, account, key]);
    const counted = model ?? keyModel;
    const bytesLeft = (models.bytes.get(counted) ?? 0) - bytes;
    if (bytesLeft > 0) models.bytes.set(counted, bytesLeft);
    else models.bytes.delete(counted);
    return bytes;
  }

  /** Removes a row of ages with a damaged key; returns what it counted for. (lmdb reads the key [x] as x.) */
  #removeAge(age: [number, number, string], countedBytes: unknown): number {
    const { answerAges } = this.#tables;
    const isRemoved = answerAges.removeSync(age) || answerAges.removeSync([age] as unknown as typeof age);
    return isRemoved ? countedBytesOf(countedBytes) : 0;
  }

  /** Removes the oldest responses of a model beyond its bound. Returns their bytes. */
  #evictOfModel(model: string, bytesMax: number, models: ModelRows): number {
    let removed = 0;
    while ((models.bytes.get(model) ?? 0) > bytesMax) {
      // A shorter key sorts before all keys that begin with it; the type knows whole keys alone.
      const start = [model, 0] as unknown as [string, number, number, string];
      const oldest = Array.from(models.ages.getRange({ start, limit: BATCH_ROWS })).filter(
        ({ key: [modelId] }) => modelId === model,
      );
      // A damaged sum says that there are more.
      if (oldest.length === 0) return removed;
      for (const { key, value } of oldest) {
        if ((models.bytes.get(model) ?? 0) <= bytesMax) return removed;
        const [, ...age] = key;
        // By its own key: if that is damaged, it is not among the ages of the model that the response names,
        // and would stay the oldest for ever.
        models.ages.removeSync(key);
        removed += this.#removeRow(age, value, models, model);
      }
    }
    return removed;
  }

  /** Removes expired responses, then the oldest beyond the bound. Returns what is left of `bytes`. */
  #evict(bytes: number, { expiredMs, bytesMax }: ResponseBounds, models: ModelRows | undefined): number {
    let bytesLeft = bytes;
    let expired = 0;
    for (;;) {
      // Copied, because a range must not change while it is iterated.
      const oldest = Array.from(this.#tables.answerAges.getRange({ limit: BATCH_ROWS }));
      for (const { key: age, value } of oldest) {
        const isDamaged = !isAge(age);
        const isExpired = isDamaged || (age[0] <= expiredMs && expired < EXPIRED_MAX);
        if (!isExpired && bytesLeft <= bytesMax) return bytesLeft;
        if (isExpired) expired++;
        bytesLeft -= isDamaged ? this.#removeAge(age, value) : this.#removeRow(age, value, models);
      }
      // No row is left, even if a damaged sum says otherwise.
      if (oldest.length < BATCH_ROWS) return 0;
    }
  }
}

/** False for a damaged key of a row of ages: it would stay the oldest for ever, or stop the transaction. */
function isAge(age: Age): boolean {
  return Array.isArray(age) && age.map((part) => typeof part).join() === 'number,number,string';
}

function isModelEntry(value: unknown): value is [string, number] {
  return Array.isArray(value) && typeof value[0] === 'string' && Number.isSafeInteger(value[1]);
}

/** The bytes that a row of ages counts for. A damaged row counts ROW_BYTES, and stops no flush. */
const countedBytesOf = (value: unknown): number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= ROW_BYTES ? value : ROW_BYTES;

/** Returns the row of a response. Hashes its bytes: 1 µs a kilobyte, 1 ms a megabyte of the main thread. */
export function packResponse(record: ResponseRecord): Static<typeof StoredResponse> {
  const { bodyDigest, endedMs, stream, fallback, bytes } = record;
  const digest = digestOfResponse(record);
  const stored = { format: FORMAT, bodyDigest, endedMs, stream, digest, bytes: bytes ?? null };
  return fallback === undefined ? stored : { ...stored, fallback };
}

/**
 * Returns the response in a row, with a copy of its bytes. Compares the row with its digest, because LMDB has
 * no checksums: a flipped bit, or another key's record, must reach no caller. Throws as a RowReader, and
 * `damaged` also for a row of the format `digestSince` or later that has no digest.
 */
export function readResponse(
  stored: unknown,
  { account, key }: ResponseKey,
  location: string,
  digestSince = DIGEST_SINCE,
): ResponseRecord {
  if (!isResponse(stored)) throw rowErrorOf(stored, location);
  const { bodyDigest, endedMs, stream, fallback, digest, bytes } = stored;
  if (bytes !== null && !(bytes instanceof Uint8Array)) throw damaged(location);
  const record: ResponseRecord = {
    account,
    key,
    bodyDigest,
    endedMs: asWallMs(endedMs),
    stream,
    fallback,
    // lmdb returns a view of a buffer that its next read overwrites.
    bytes: bytes === null ? undefined : new Uint8Array(bytes),
  };
  if (digest === undefined ? stored.format >= digestSince : digest !== digestOfResponse(record))
    throw damaged(location);
  return record;
}

/** Returns the SHA-256, in hex, of the record, its key and its bytes. */
function digestOfResponse(record: ResponseRecord): string {
  const { account, key, bodyDigest, endedMs, stream, fallback = null, bytes } = record;
  const fields = [account, key, bodyDigest, endedMs, stream, fallback, bytes === undefined];
  const digest = createHash('sha256').update(JSON.stringify(fields));
  return (bytes === undefined ? digest : digest.update(bytes)).digest('hex');
}
