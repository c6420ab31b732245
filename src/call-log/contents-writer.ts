/**
 * Contents of calls on disk, in segments of their own folder. gateway/gateway-logs.ts owns a ContentsWriter,
 * which writes in batches, on the main thread of a gateway process. The admin interface and commands find
 * contents by request id (ContentsReader).
 *
 * A segment is CONTENTS_START, contents one behind the other (telemetry/contents-layout.ts), and an index at
 * its end: for each call the hash of its request id and its offset (32 bits each), then their number, and
 * INDEX_MAGIC. A segment has no index while it grows or if its writer was killed; then all of it is read, at
 * most some 16 MiB.
 *
 * Must hold: secrets in a text are masked before it is on disk; the index has its entries in the order of
 * their offsets, without gaps, as the reader finds the end of one at the begin of the next; a change of the
 * layout needs another CONTENTS_START, as older segments stay readable. segment-writer.ts keeps the bounds
 * of bytes and hours (test/unit/call-log/contents-writer.test.ts).
 */
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../core/clock.js';
import {
  type CallContents,
  contentsAt,
  contentsBytesAt,
  requestIdAt,
  textBoundsAt,
} from '../telemetry/contents-layout.js';
import type { Log } from '../telemetry/log.js';
import { SecretMask } from './secret-mask.js';
import { type CallRetention, CONTENTS_FOLDER, segmentFiles } from './segment-files.js';
import { hashOf } from './segment-index.js';
import { SegmentWriter, type WrittenBlock, type WrittenIndex } from './segment-writer.js';

const CONTENTS_START = Buffer.from('tgconts1');
const INDEX_MAGIC = 0x58434754;
const ENTRY_BYTES = 8;
const TAIL_BYTES = 8;
/** A batch of this size is written at once. */
export const CONTENTS_BATCH_BYTES = 256 * 1024;

interface ContentsWriterOptions {
  /** The data directory. */
  readonly dataPath: string;
  readonly retention: CallRetention;
  /** Returns texts to mask besides keys of callers and tokens of operators: see secret-mask.ts. */
  readonly secrets?: () => readonly string[];
  readonly clock: Clock;
  readonly log: Log;
}

export class ContentsWriter {
  readonly #segments: SegmentWriter<WrittenBlock>;
  readonly #mask: SecretMask;
  readonly #clock: Clock;
  #batch: Uint8Array[] = [];
  #batchBytes = 0;
  #batchCount = 0;

  constructor({ dataPath, retention, secrets, clock, log }: ContentsWriterOptions) {
    this.#mask = new SecretMask(secrets ?? (() => []));
    this.#clock = clock;
    this.#segments = new SegmentWriter<WrittenBlock>({
      folder: join(dataPath, CONTENTS_FOLDER),
      kind: 'contents',
      start: CONTENTS_START,
      newIndex: () => new ContentsIndex(),
      retention,
      clock,
      log,
      take: () => this.#take(),
    });
  }

  /** How many calls' contents could not be written since the start. */
  get dropped(): number {
    return this.#segments.dropped;
  }

  apply(retention: CallRetention): void {
    this.#segments.apply(retention);
  }

  /**
   * Appends the contents of calls, one behind the other. It masks secrets in `bytes` themselves and keeps
   * them until they are written, so the caller gives them up.
   */
  append(bytes: Uint8Array): void {
    const data = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    this.#mask.renew(this.#clock.monotonicMs());
    for (const offset of offsetsOf(data, 0)) {
      const [requestAt, responseAt, end] = textBoundsAt(data, offset);
      this.#mask.hide(data, requestAt, responseAt);
      this.#mask.hide(data, responseAt, end);
      this.#batchCount += 1;
    }
    this.#batch.push(data);
    this.#batchBytes += data.length;
    if (this.#batchBytes >= CONTENTS_BATCH_BYTES) this.#segments.flush();
    else this.#segments.flushLater();
  }

  /** Writes what was appended. Never throws. */
  flush(): void {
    this.#segments.flush();
  }

  close(): void {
    this.#segments.close();
  }

  #take(): WrittenBlock | undefined {
    if (this.#batchCount === 0) return undefined;
    const block = { data: Buffer.concat(this.#batch, this.#batchBytes), count: this.#batchCount };
    this.#batch = [];
    this.#batchBytes = 0;
    this.#batchCount = 0;
    return block;
  }
}

class ContentsIndex implements WrittenIndex<WrittenBlock> {
  readonly #entries: (readonly [hash: number, at: number])[] = [];

  add(at: number, { data }: WrittenBlock): void {
    for (const offset of offsetsOf(data, 0))
      this.#entries.push([hashOf(requestIdAt(data, offset)), at + offset]);
  }

  toBytes(): Buffer {
    const bytes = Buffer.alloc(this.#entries.length * ENTRY_BYTES + TAIL_BYTES);
    this.#entries.forEach(([hash, at], entry) => {
      bytes.writeInt32LE(hash, entry * ENTRY_BYTES);
      bytes.writeUInt32LE(at, entry * ENTRY_BYTES + 4);
    });
    bytes.writeUInt32LE(this.#entries.length, bytes.length - TAIL_BYTES);
    bytes.writeUInt32LE(INDEX_MAGIC, bytes.length - TAIL_BYTES + 4);
    return bytes;
  }
}

/** Finds contents in a data directory. */
export class ContentsReader {
  readonly #folder: string;

  constructor(dataPath: string) {
    this.#folder = join(dataPath, CONTENTS_FOLDER);
  }

  /** Returns the contents of the call of that request id, if they are kept. */
  async find(requestId: string): Promise<CallContents | undefined> {
    for (const { path } of segmentFiles(this.#folder, 'contents').reverse()) {
      const found = await findIn(path, requestId);
      if (found !== undefined) return found;
    }
    return undefined;
  }
}

async function findIn(path: string, requestId: string): Promise<CallContents | undefined> {
  let file;
  try {
    file = await open(path, 'r');
  } catch (error) {
    // The oldest segments are removed at any time.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    const { size } = await file.stat();
    const read = async (at: number, bytes: number): Promise<Buffer> => {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(bytes), 0, bytes, at);
      return buffer.subarray(0, bytesRead);
    };
    const tail = await read(Math.max(0, size - TAIL_BYTES), TAIL_BYTES);
    const isIndexed = tail.length === TAIL_BYTES && tail.readUInt32LE(4) === INDEX_MAGIC;
    const entryBytes = isIndexed ? tail.readUInt32LE(0) * ENTRY_BYTES : 0;
    const indexAt = size - TAIL_BYTES - entryBytes;
    // An index that claims more than the file has is damaged.
    if (!isIndexed || indexAt < CONTENTS_START.length) {
      const data = await read(0, size);
      for (const at of offsetsOf(data, CONTENTS_START.length))
        if (requestIdAt(data, at) === requestId) return contentsAt(data, at);
      return undefined;
    }
    const index = await read(indexAt, entryBytes);
    const hash = hashOf(requestId);
    for (let entry = 0; entry < index.length; entry += ENTRY_BYTES) {
      if (index.readInt32LE(entry) !== hash) continue;
      const at = index.readUInt32LE(entry + 4);
      const end = entry + ENTRY_BYTES < index.length ? index.readUInt32LE(entry + ENTRY_BYTES + 4) : indexAt;
      const data = await read(at, end - at);
      if (contentsBytesAt(data, 0) !== undefined && requestIdAt(data, 0) === requestId)
        return contentsAt(data, 0);
    }
    return undefined;
  } finally {
    await file.close();
  }
}

/** Returns the offsets of contents, up to the first that are not whole. */
function* offsetsOf(data: Buffer, from: number): Generator<number> {
  for (let at = from; ;) {
    const bytes = contentsBytesAt(data, at);
    if (bytes === undefined) return;
    yield at;
    at += bytes;
  }
}
