import t from 'tap';
import type { HttpResponse } from 'uWebSockets.js';
import { BODY_BYTES_UNCOUNTED } from '#src/core/limits.js';
import { readBody, type BodyWatcher, type BodyReceiver } from '#src/request/read-body.js';
import { newSeed, randomOf } from '../../support/random.js';

const BODY_BYTES_MAX = 300_000;
const ONE_PIECE_BYTES_MAX = 20_000;
const CASES = 1_000;

/** What was done with a body. */
interface Seen {
  kind: 'none' | 'body' | 'large' | 'too_large' | 'refused';
  calls: number;
  bytes: Buffer;
  heldBytes: number;
  firstPiece: Buffer | undefined;
}

/**
 * Sends `body` in chunks that end at `cuts`, each in memory that is overwritten afterwards, as that of µWS
 * is. If the last cut is at the end of the body, an empty chunk comes after it.
 */
function read(body: Buffer, cuts: readonly number[], isLengthKnown: boolean, refuseAt = Infinity): Seen {
  const seen: Seen = { kind: 'none', calls: 0, bytes: Buffer.alloc(0), heldBytes: 0, firstPiece: undefined };
  const end = (kind: Seen['kind'], bytes: Uint8Array[] = []): void => {
    seen.kind = kind;
    seen.calls++;
    seen.bytes = Buffer.concat(bytes);
  };
  const receiver: BodyReceiver = {
    onBody: (bytes) => end('body', [bytes]),
    onLargeBody: (pieces) => {
      if (pieces.some(({ length }) => length === 0)) throw new Error('an empty piece');
      end('large', pieces);
    },
    onTooLarge: () => end('too_large'),
  };
  let asks = 0;
  const hold: BodyWatcher = {
    onBodyProgress: () => undefined,
    takeBody: (bytes, certainBytes) => {
      if (certainBytes > bytes || bytes > BODY_BYTES_MAX) throw new Error(`took ${bytes}, ${certainBytes}`);
      if (++asks >= refuseAt) {
        end('refused');
        return false;
      }
      seen.heldBytes = bytes;
      return true;
    },
    takeFirstPiece: (piece) => {
      if (seen.firstPiece !== undefined) throw new Error('a second first piece');
      seen.firstPiece = Buffer.from(piece);
      if (++asks < refuseAt) return true;
      end('refused');
      return false;
    },
  };
  let onData: (chunk: ArrayBuffer, isLast: boolean) => void = () => undefined;
  const res = { onData: (handler: typeof onData) => void (onData = handler) } as unknown as HttpResponse;
  const length = isLengthKnown ? body.length : 0;
  if (length > BODY_BYTES_UNCOUNTED && length <= BODY_BYTES_MAX) seen.heldBytes = length;
  const lengths = { length, bodyBytesMax: BODY_BYTES_MAX, onePieceBytesMax: ONE_PIECE_BYTES_MAX };
  readBody(res, lengths, hold, receiver);
  let start = 0;
  const ends = [...cuts, body.length];
  for (const [index, cut] of ends.entries()) {
    const chunk = new Uint8Array(body.subarray(start, cut));
    onData(chunk.buffer, index === ends.length - 1);
    chunk.fill(0);
    start = cut;
  }
  return seen;
}

void t.test('any body in any chunks comes whole, once, and is counted before it is kept', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  const below = (limit: number): number => Math.floor(next() * limit);
  const edges = [0, 1, BODY_BYTES_UNCOUNTED, ONE_PIECE_BYTES_MAX, 65_536, BODY_BYTES_MAX];
  const counts = new Map<string, number>();
  for (let round = 0; round < CASES; round++) {
    const size =
      below(2) === 0 ? Math.max(0, edges[below(edges.length)]! + below(3) - 1) : below(BODY_BYTES_MAX * 1.2);
    const body = Buffer.alloc(size);
    for (let at = 0; at < size; at += 97) body[at] = below(256);
    const cuts = Array.from({ length: below(6) }, () => below(size)).filter((cut) => cut > 0);
    const chunkCuts = [...new Set(cuts)].sort((one, other) => one - other);
    const isLengthKnown = below(2) === 0;
    if (!isLengthKnown && below(2) === 0) chunkCuts.push(size);
    const refuseAt = below(4) === 0 ? 1 + below(4) : Infinity;
    const seen = read(body, chunkCuts, isLengthKnown, refuseAt);
    const what = `${size} bytes, cut at ${chunkCuts.join()}, ${isLengthKnown ? 'known' : 'chunked'}, ${refuseAt}`;
    counts.set(seen.kind, (counts.get(seen.kind) ?? 0) + 1);
    if (seen.calls !== 1) t.fail(`${what}: ${seen.calls} ends`);
    if (seen.kind === 'refused') continue;
    const kind = size > BODY_BYTES_MAX ? 'too_large' : size > ONE_PIECE_BYTES_MAX ? 'large' : 'body';
    if (seen.kind !== kind) t.fail(`${what}: ${seen.kind}, not ${kind}`);
    if (kind === 'too_large') continue;
    if (!seen.bytes.equals(body)) t.fail(`${what}: other bytes`);
    if (size > BODY_BYTES_UNCOUNTED && seen.heldBytes < size) t.fail(`${what}: ${seen.heldBytes} counted`);
    if (size <= BODY_BYTES_UNCOUNTED && seen.heldBytes > 0) t.fail(`${what}: counted`);
    const { firstPiece } = seen;
    // The chunk that brings the end is no first piece: the body is whole then.
    const isAsked = kind === 'large' && (chunkCuts.at(-1) ?? 0) > ONE_PIECE_BYTES_MAX;
    if (isAsked !== (firstPiece !== undefined)) t.fail(`${what}: a first piece of ${firstPiece?.length}`);
    if (firstPiece?.equals(body.subarray(0, firstPiece.length)) === false)
      t.fail(`${what}: the first piece is another`);
  }
  t.comment(JSON.stringify(Object.fromEntries(counts)));
  t.strictSame([...counts.keys()].sort(), ['body', 'large', 'refused', 'too_large'], 'each end was seen');
  t.end();
});

void t.test('a body whose length is said to be too long is not kept', (t) => {
  const body = Buffer.alloc(BODY_BYTES_MAX + 1);
  const seen = read(body, [1_000, 100_000], true);
  t.equal(seen.kind, 'too_large');
  t.equal(seen.heldBytes, 0);
  t.equal(seen.firstPiece, undefined);
  t.end();
});

void t.test('a body that is not as long as its Content-Length is a bug', (t) => {
  for (const chunks of [[5], [3, 2], [11], [8, 3]]) {
    let onData: (chunk: ArrayBuffer, isLast: boolean) => void = () => undefined;
    const res = { onData: (handler: typeof onData) => void (onData = handler) } as unknown as HttpResponse;
    const unused = (): never => t.fail('the body is handed on') as never;
    const receiver = { onBody: unused, onLargeBody: unused, onTooLarge: unused };
    const watcher = { takeBody: () => true, takeFirstPiece: () => true, onBodyProgress: () => undefined };
    const lengths = { length: 10, bodyBytesMax: 100, onePieceBytesMax: 50 };
    readBody(res, lengths, watcher, receiver);
    const send = (): void =>
      chunks.forEach((bytes, index) => onData(new ArrayBuffer(bytes), index === chunks.length - 1));
    t.throws(send, /as long as its Content-Length/, chunks.join());
  }
  t.end();
});
