/**
 * Writes contents of calls to segments in a folder of their own, and finds them there by request id. On the
 * main thread of a gateway process gateway/gateway-logs.ts has a ContentsWriter, and gateway/admin-service.ts
 * has a ContentsReader. In a command cli/store-client.ts has a ContentsReader.
 *
 * A segment is CONTENTS_START, then contents one after the other (telemetry/contents-layout.ts), then an
 * index: an entry for each call, with the hash of its request id and its offset (32 bits each); the count of
 * the entries; and INDEX_MAGIC. A segment has no index while it grows, or if its writer was killed. A reader
 * then reads the whole segment, some 16 MiB at most.
 *
 * Must hold:
 * - Secrets in a text are masked before the text is on disk. Bytes in which no text was found, as after
 *   contents that are cut, are not written (test/unit/call-log/contents-writer.test.ts).
 * - Index entries are in the order of their offsets and leave out no call, because `findByIndex` takes the
 *   next entry's offset for the end of a call.
 * - A change of the layout needs another CONTENTS_START, because files of earlier versions are read.
 *
 * segment-writer.ts keeps the bounds of bytes and hours.
 */
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { asBuffer } from '../core/bytes.js';
import type { Clock } from '../core/clock.js';
import {
  type CallContents,
  contentsAt,
  contentsBytesAt,
  requestIdAt,
  textBoundsAt,
} from '../telemetry/contents-layout.js';
import type { Log } from '../telemetry/log.js';
import { FailedReads } from './failed-reads.js';
import { SecretMask } from './secret-mask.js';
import { type CallRetention, CONTENTS_FOLDER, segmentFiles } from './segment-files.js';
import { hashOf } from './segment-index.js';
import { SegmentWriter, type WrittenBlock, type WrittenIndex } from './segment-writer.js';

/** The first bytes of each segment. */
const CONTENTS_START = Buffer.from('tgconts1');
const INDEX_MAGIC = 0x58434754;
/** An entry of the index: the hash of the request id, then the offset of the call. */
const ENTRY_BYTES = 8;
const OFFSET_AT = 4;
/** The tail, the last bytes of a segment with an index: the count of entries, then INDEX_MAGIC. */
const TAIL_BYTES = 8;
const MAGIC_AT = 4;
/** A batch is written as soon as it has so many bytes, so a block exceeds them by at most one `append`. */
export const CONTENTS_BATCH_BYTES = 256 * 1024;

interface ContentsWriterOptions {
  /** The data directory. */
  readonly dataPath: string;
  readonly retention: CallRetention;
  /** Returns texts to mask. Callers' keys and operators' tokens are always masked (secret-mask.ts). */
  readonly secrets?: () => readonly string[];
  readonly clock: Clock;
  readonly log: Log;
}

export class ContentsWriter extends SegmentWriter<WrittenBlock> {
  readonly #mask: SecretMask;
  readonly #clock: Clock;
  /** The bytes that were appended and are not written. CONTENTS_BATCH_BYTES bounds the batch. */
  #batch: Uint8Array[] = [];
  #batchBytes = 0;
  /** How many calls have contents in the batch. */
  #batchCount = 0;

  constructor({ dataPath, retention, secrets, clock, log }: ContentsWriterOptions) {
    super({
      folder: join(dataPath, CONTENTS_FOLDER),
      kind: 'contents',
      start: CONTENTS_START,
      retention,
      clock,
      log,
    });
    this.#mask = new SecretMask(secrets ?? (() => []));
    this.#clock = clock;
  }

  /**
   * Appends contents of calls, one after the other. Leaves out contents that are cut, and all after them.
   * Overwrites secrets in `bytes`, and keeps `bytes` until they are written: the caller must not use them
   * again. Never throws if the disk fails.
   */
  append(bytes: Uint8Array): void {
    const data = asBuffer(bytes);
    this.#mask.renew(this.#clock.monotonicMs());
    /** How many bytes were masked: no others are written. */
    let maskedBytes = 0;
    for (const offset of offsetsOf(data, 0)) {
      const [requestAt, responseAt, end] = textBoundsAt(data, offset);
      this.#mask.hide(data, requestAt, responseAt);
      this.#mask.hide(data, responseAt, end);
      this.#batchCount += 1;
      maskedBytes = end;
    }
    if (maskedBytes === 0) return;
    this.#batch.push(data.subarray(0, maskedBytes));
    this.#batchBytes += maskedBytes;
    if (this.#batchBytes >= CONTENTS_BATCH_BYTES) this.flush();
    else this.flushLater();
  }

  protected newIndex(): ContentsIndex {
    return new ContentsIndex();
  }

  /** The batch is the block. */
  protected take(): WrittenBlock | undefined {
    if (this.#batchCount === 0) return undefined;
    const block = { data: Buffer.concat(this.#batch, this.#batchBytes), count: this.#batchCount };
    this.#batch = [];
    this.#batchBytes = 0;
    this.#batchCount = 0;
    return block;
  }
}

class ContentsIndex implements WrittenIndex<WrittenBlock> {
  readonly #entries: { readonly hash: number; readonly at: number }[] = [];

  add(at: number, { data }: WrittenBlock): void {
    for (const offset of offsetsOf(data, 0))
      this.#entries.push({ hash: hashOf(requestIdAt(data, offset)), at: at + offset });
  }

  toBytes(): Buffer {
    const bytes = Buffer.alloc(this.#entries.length * ENTRY_BYTES + TAIL_BYTES);
    this.#entries.forEach(({ hash, at }, position) => {
      bytes.writeInt32LE(hash, position * ENTRY_BYTES);
      bytes.writeUInt32LE(at, position * ENTRY_BYTES + OFFSET_AT);
    });
    bytes.writeUInt32LE(this.#entries.length, bytes.length - TAIL_BYTES);
    bytes.writeUInt32LE(INDEX_MAGIC, bytes.length - TAIL_BYTES + MAGIC_AT);
    return bytes;
  }
}

/** Finds contents that any process of a data directory has written. Keeps no file open between searches. */
export class ContentsReader {
  readonly #folder: string;

  constructor(dataPath: string) {
    this.#folder = join(dataPath, CONTENTS_FOLDER);
  }

  /**
   * Resolves with the contents of the call of that request id; undefined if none are kept. Rejects if they
   * are not found, and a segment cannot be read.
   */
  async find(requestId: string): Promise<CallContents | undefined> {
    const failures = new FailedReads();
    for (const { path } of segmentFiles(this.#folder, 'contents').reverse()) {
      const contents = await failures.orElse({ path }, undefined, () => findIn(path, requestId));
      if (contents !== undefined) return contents;
    }
    failures.throwFirst();
    return undefined;
  }
}

/** Returns the contents of that call; undefined if the segment lacks them. Throws if it cannot be read. */
async function findIn(path: string, requestId: string): Promise<CallContents | undefined> {
  let file;
  try {
    file = await open(path, 'r');
  } catch (error) {
    // A writer may remove a segment at any time.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    const { size } = await file.stat();
    const read: ReadBytes = async (at, bytes) => {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(bytes), 0, bytes, at);
      return buffer.subarray(0, bytesRead);
    };
    const tail = await read(Math.max(0, size - TAIL_BYTES), TAIL_BYTES);
    const isIndexed = tail.length === TAIL_BYTES && tail.readUInt32LE(MAGIC_AT) === INDEX_MAGIC;
    const indexBytes = isIndexed ? tail.readUInt32LE(0) * ENTRY_BYTES : 0;
    const indexAt = size - TAIL_BYTES - indexBytes;
    // An index that claims more than the file has is damaged: the segment is read as one without an index.
    if (isIndexed && indexAt >= CONTENTS_START.length)
      return await findByIndex(read, indexAt, indexBytes, requestId);
    return await findInWhole(read, size, requestId);
  } finally {
    await file.close();
  }
}

/** Reads `bytes` bytes from offset `at` on; resolves with fewer if the file ends earlier. */
type ReadBytes = (at: number, bytes: number) => Promise<Buffer>;

/** Looks at each call up to offset `end`, for a segment without an index or with a damaged one. */
async function findInWhole(
  read: ReadBytes,
  end: number,
  requestId: string,
): Promise<CallContents | undefined> {
  const data = await read(0, end);
  for (const at of offsetsOf(data, CONTENTS_START.length))
    if (requestIdAt(data, at) === requestId) return contentsAt(data, at);
  return undefined;
}

async function findByIndex(
  read: ReadBytes,
  indexAt: number,
  indexBytes: number,
  requestId: string,
): Promise<CallContents | undefined> {
  const index = await read(indexAt, indexBytes);
  const hash = hashOf(requestId);
  for (let entry = 0; entry < index.length; entry += ENTRY_BYTES) {
    if (index.readInt32LE(entry) !== hash) continue;
    const at = index.readUInt32LE(entry + OFFSET_AT);
    const next = entry + ENTRY_BYTES;
    const end = next < index.length ? index.readUInt32LE(next + OFFSET_AT) : indexAt;
    const data = at <= end && end <= indexAt ? await read(at, end - at) : undefined;
    // The index is damaged: it has no checksum.
    if (
      data === undefined ||
      contentsBytesAt(data, 0) !== data.length ||
      hashOf(requestIdAt(data, 0)) !== hash
    )
      return findInWhole(read, indexAt + indexBytes, requestId);
    // Another request id may have the same hash.
    if (requestIdAt(data, 0) === requestId) return contentsAt(data, 0);
  }
  return undefined;
}

/** Yields the offset of each call's contents, from offset `from` on. Ends at contents that are not whole. */
function* offsetsOf(data: Buffer, from: number): Generator<number> {
  for (let at = from; ;) {
    const bytes = contentsBytesAt(data, at);
    if (bytes === undefined) return;
    yield at;
    at += bytes;
  }
}
