/** Segments that cannot be read: the calls of the others are found, and each search says what it lacks. */
import { readdirSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import t from 'tap';
import { BlockBuilder } from '#src/call-log/block-builder.js';
import {
  CHECKED_AT,
  FIXED_BYTES,
  HEAD,
  HEAD_BYTES,
  SEGMENT_START,
  VARIABLE,
} from '#src/call-log/call-block.js';
import { CallReader } from '#src/call-log/call-reader.js';
import { CallWriter } from '#src/call-log/call-writer.js';
import { ContentsReader, ContentsWriter } from '#src/call-log/contents-writer.js';
import { SystemClock } from '#src/core/clock.js';
import { asWallMs } from '#src/core/units.js';
import { type CallRecord, requestIdOf } from '#src/telemetry/call-record.js';
import { packContents } from '#src/telemetry/contents-layout.js';
import { randomOf } from '../../support/random.js';
import { randomCall } from '../../support/stored-calls.js';
import { ListLog } from '../store/support.js';

const START_MS = 1_763_950_000_000;
const RETENTION = { keepHours: 72, keepBytes: 1024 ** 3, processes: 1 };
const KINDS = { accounts: 4, models: 2, upstreams: 2 };
const random = randomOf(5);
const callOf = (number: number): CallRecord => randomCall(random, number, START_MS + number, KINDS);
const idOf = ({ requestPrefix, request }: CallRecord): string => requestIdOf(requestPrefix, request);

/** Pages do not end early, however busy the machine is. */
const readerOf = (folder: string): CallReader => new CallReader(folder, { searchMs: 60_000 });

function writeSegment(folder: string, written: readonly CallRecord[]): void {
  const writer = new CallWriter({
    folder,
    retention: RETENTION,
    clock: new SystemClock(),
    log: new ListLog(),
  });
  for (const call of written) writer.append(call);
  writer.close();
}

/** Three segments of ten calls each. */
function writeSegments(folder: string): { readonly written: CallRecord[]; readonly paths: string[] } {
  const written = Array.from({ length: 30 }, (_, number) => callOf(number));
  for (let at = 0; at < 30; at += 10) writeSegment(folder, written.slice(at, at + 10));
  const paths = readdirSync(folder)
    .sort()
    .map((name) => join(folder, name));
  return { written, paths };
}

/** Cannot be opened, by root either: a link to itself. */
function breakFile(path: string): void {
  renameSync(path, `${path}.aside`);
  symlinkSync(path, path);
}

function mend(path: string): void {
  unlinkSync(path);
  renameSync(`${path}.aside`, path);
}

const nameOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

for (const isKnown of [false, true])
  void t.test(
    `a segment that cannot be read, ${isKnown ? 'and could before' : 'from the start'}`,
    async (t) => {
      const folder = t.testdir();
      const { written, paths } = writeSegments(folder);
      const reader = readerOf(folder);
      if (isKnown) {
        await reader.page({}, 100);
        for (const call of written) t.ok(await reader.find(idOf(call)));
      }
      breakFile(paths[1]!);
      const others = [...written.slice(0, 10), ...written.slice(20)].map(idOf);
      const page = await reader.page({}, 100);
      t.same(page!.calls.map(idOf).reverse(), others);
      t.same(page!.unread, [`${nameOf(paths[1]!)}: ELOOP`]);
      t.equal(page!.next, null);
      // Pages of a few calls name it too.
      const short = await reader.page({}, 2);
      t.same(short!.unread, isKnown ? [] : page!.unread, 'of a known one only those that need it');
      for (const call of [...written.slice(0, 10), ...written.slice(20)]) t.ok(await reader.find(idOf(call)));
      // It may be in what cannot be read, so nobody is told that there is none.
      await t.rejects(reader.find(idOf(written[15]!)), { code: 'ELOOP' });
      mend(paths[1]!);
      const mended = await reader.page({}, 100);
      t.same(mended!.calls.map(idOf).reverse(), written.map(idOf));
      t.same(mended!.unread, []);
      t.ok(await reader.find(idOf(written[15]!)));
    },
  );

void t.test('looks for newer calls return those of a segment once it can be read', async (t) => {
  const folder = t.testdir();
  const reader = readerOf(folder);
  const start = (await reader.page({}, 10))!.newest;
  const { written, paths } = writeSegments(folder);
  breakFile(paths[1]!);
  const first = await reader.newerCalls(start, {}, 100);
  t.same(first!.calls.map(idOf), [...written.slice(0, 10), ...written.slice(20)].map(idOf));
  t.same(first!.unread, [`${nameOf(paths[1]!)}: ELOOP`]);
  const again = await reader.newerCalls(first!.newest, {}, 100);
  t.same(again!.calls, []);
  t.same(again!.unread, first!.unread);
  mend(paths[1]!);
  const mended = await reader.newerCalls(again!.newest, {}, 100);
  t.same(mended!.calls.map(idOf), written.slice(10, 20).map(idOf));
  t.same(mended!.unread, []);
  t.same((await reader.newerCalls(mended!.newest, {}, 100))!.calls, []);
});

void t.test('a segment that grows, and could not be read for the first page', async (t) => {
  const folder = t.testdir();
  const written = Array.from({ length: 20 }, (_, number) => callOf(number));
  const writer = new CallWriter({
    folder,
    retention: RETENTION,
    clock: new SystemClock(),
    log: new ListLog(),
  });
  for (const call of written.slice(0, 10)) writer.append(call);
  writer.flush();
  const path = join(folder, readdirSync(folder)[0]!);
  const reader = readerOf(folder);
  breakFile(path);
  const page = await reader.page({}, 100);
  t.same(page!.calls, []);
  mend(path);
  for (const call of written.slice(10)) writer.append(call);
  writer.flush();
  const newer = await reader.newerCalls(page!.newest, {}, 100);
  t.same(newer!.calls.map(idOf), written.map(idOf));
  writer.close();
});

void t.test('a folder in the place of a segment, which can be opened and not be read', async (t) => {
  const folder = t.testdir({ '0000000007.calls': {} });
  const written = Array.from({ length: 10 }, (_, number) => callOf(number));
  writeSegment(folder, written);
  const page = await readerOf(folder).page({}, 100);
  t.same(page!.calls.map(idOf).reverse(), written.map(idOf));
  t.same(page!.unread, ['0000000007.calls: EISDIR']);
  rmSync(join(folder, '0000000007.calls'), { recursive: true });
});

void t.test('a call whose bytes are wrong, with the right checksum, hides no other', async (t) => {
  const folder = t.testdir();
  const builder = new BlockBuilder();
  const written = Array.from({ length: 10 }, (_, number) => callOf(number));
  for (const call of written) builder.add(call);
  const bytes = builder.take().data;
  const wrong = 8;
  bytes.writeUInt32LE(2 ** 31, HEAD_BYTES + wrong * FIXED_BYTES + VARIABLE * 4);
  bytes.writeUInt32LE(crc32(bytes.subarray(CHECKED_AT)), HEAD.crc32 * 4);
  writeFileSync(join(folder, '0000000001.calls'), Buffer.concat([SEGMENT_START, bytes]));
  const reader = readerOf(folder);
  const found: string[] = [];
  let cursor: string | null | undefined;
  while (cursor !== null) {
    const page = await reader.page({}, 3, cursor);
    found.push(...page!.calls.map(idOf));
    cursor = page!.next;
  }
  t.same(found.reverse(), written.filter((_, number) => number !== wrong).map(idOf));
  t.match((await reader.page({}, 3))!.unread, [/^0000000001\.calls: .*ends within a call/]);
  await t.rejects(reader.find(idOf(written[wrong]!)), /ends within a call/);
});

void t.test('contents in another segment than the one that cannot be read are found', async (t) => {
  const dataPath = t.testdir();
  const text = { bytes: Buffer.from('text'), bytesInAll: 4 };
  for (const requestId of ['req_a-1', 'req_a-2']) {
    const writer = new ContentsWriter({
      dataPath,
      retention: RETENTION,
      clock: new SystemClock(),
      log: new ListLog(),
    });
    writer.append(packContents({ requestId, endedMs: asWallMs(START_MS), request: text, response: text }));
    writer.close();
  }
  const folder = join(dataPath, 'contents');
  breakFile(join(folder, readdirSync(folder).sort()[1]!));
  const reader = new ContentsReader(dataPath);
  t.equal((await reader.find('req_a-1'))?.requestId, 'req_a-1');
  await t.rejects(reader.find('req_a-2'), { code: 'ELOOP' });
});
