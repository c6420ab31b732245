/** Contents of calls on disk: whole or cut, found while their segment grows and after, and gone in time. */
import { readdirSync, readFileSync, statSync, truncateSync, utimesSync, writeFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { ContentsReader, ContentsWriter } from '#src/call-log/contents-writer.js';
import { REMOVE_PERIOD_MS, type CallRetention } from '#src/call-log/segment-files.js';
import { hashOf } from '#src/call-log/segment-index.js';
import { type Clock, SystemClock } from '#src/core/clock.js';
import { asWallMs } from '#src/core/units.js';
import { type CallContents, packContents } from '#src/telemetry/contents-layout.js';
import { randomOf } from '../../support/random.js';
import { StoppedClock } from '../store/support.js';

const RETENTION: CallRetention = {
  keepHours: 24,
  keepBytes: 64 * 1024 * 1024,
  processes: 1,
  blockBytes: 512 * 1024,
};
const log = { error: () => undefined, warn: () => undefined, info: () => undefined, record: () => undefined };
const writerOn = (
  dataPath: string,
  retention = RETENTION,
  clock: Clock = new SystemClock(),
): ContentsWriter => new ContentsWriter({ dataPath, retention, clock, log });

const START_MS = 1_763_950_000_000;
/** A new folder's numbers begin at the second: files of an earlier run may have been in another. */
const FIRST_FILE = `${new StoppedClock().nowMs / 1_000 + 1}.contents`;
const random = randomOf(7);

function contents(number: number, bytes = Math.floor(random() * 4_000)): CallContents {
  const text = (what: string): Buffer => Buffer.from(`${what} ${number} `.repeat(bytes / 10 + 1));
  return {
    requestId: `req_abcdefgh-${number.toString(36)}`,
    endedMs: asWallMs(START_MS + number),
    request: { bytes: text('request'), bytesInAll: 1_000_000 + number },
    response: { bytes: number % 3 === 0 ? Buffer.alloc(0) : text('response'), bytesInAll: number },
  };
}

void t.test('found while the segment grows, when it is whole, and without its index', async (t) => {
  const folder = t.testdir();
  const written = Array.from({ length: 300 }, (_, number) => contents(number));
  const writer = writerOn(folder, RETENTION, new StoppedClock());
  const reader = new ContentsReader(folder);
  t.equal(await reader.find('req_abcdefgh-1'), undefined, 'there is no folder yet');
  // Some calls in one message, as a listener sends them.
  for (let at = 0; at < written.length; at += 7)
    writer.append(Buffer.concat(written.slice(at, at + 7).map(packContents)));
  writer.flush();
  const found = (ones: readonly CallContents[]) =>
    Promise.all(ones.map(({ requestId }) => reader.find(requestId)));
  t.same(await found(written), written);
  writer.close();
  t.same(await found(written), written);
  t.equal(await reader.find('req_abcdefgh-zzzz'), undefined);
  const path = join(folder, 'contents', FIRST_FILE);
  t.equal(statSync(path).mode & 0o777, 0o600);

  // As a killed process leaves it: no index, and the last contents cut.
  const last = written.at(-1)!;
  truncateSync(path, readFileSync(path).lastIndexOf('request 299') + 5);
  t.equal(await reader.find(last.requestId), undefined, 'what is cut is not shown');
  t.same(await found(written.slice(0, -1)), written.slice(0, -1));
});

void t.test('found although the index has wrong offsets', async (t) => {
  const folder = t.testdir();
  const written = [contents(1), contents(2)];
  const writer = writerOn(folder, RETENTION, new StoppedClock());
  for (const call of written) writer.append(packContents(call));
  writer.close();
  const path = join(folder, 'contents', FIRST_FILE);
  const file = readFileSync(path);
  // The index ends with two entries of 8 bytes, each a hash and an offset, and a tail of 8 bytes.
  const [firstAt, secondAt] = [file.length - 20, file.length - 12];
  const offsets = [file.readUInt32LE(firstAt), file.readUInt32LE(secondAt)] as const;
  const find = async (first: number, second: number): Promise<unknown[]> => {
    file.writeUInt32LE(first, firstAt);
    file.writeUInt32LE(second, secondAt);
    writeFileSync(path, file);
    const reader = new ContentsReader(folder);
    return Promise.all(written.map(({ requestId }) => reader.find(requestId)));
  };
  t.same(await find(...offsets), written);
  t.same(await find(offsets[1], offsets[0]), written, 'swapped');
  t.same(await find(offsets[0], 0xffff_ffff), written, 'beyond the file');
  t.same(await find(0, 0), written, 'in the head');
});

void t.test(
  'of two request ids with the same hash each is found, and few bytes are read for it',
  async (t) => {
    const folder = t.testdir();
    // Found by trying. Few calls share a hash by chance, but callers may choose their request ids.
    const twins = ['req_abcdefgh-73zx', 'req_abcdefgh-apad'];
    t.equal(hashOf(twins[0]!), hashOf(twins[1]!));
    const [first, second, ...others] = Array.from({ length: 200 }, (_, number) => contents(number, 20_000));
    const written = [{ ...first!, requestId: twins[0]! }, ...others, { ...second!, requestId: twins[1]! }];
    const writer = writerOn(folder, RETENTION, new StoppedClock());
    for (const call of written) writer.append(packContents(call));
    writer.close();
    const handle = await open(join(folder, 'contents', FIRST_FILE));
    const prototype = Object.getPrototypeOf(handle) as FileHandle;
    await handle.close();
    let longest = 0;
    type Read = (buffer: Buffer, offset: number, length: number, at: number) => Promise<unknown>;
    const { read } = prototype as unknown as { readonly read: Read };
    t.intercept(prototype, 'read', {
      value: function (this: FileHandle, buffer: Buffer, offset: number, length: number, at: number) {
        longest = Math.max(longest, length);
        return read.call(this, buffer, offset, length, at);
      },
    });
    const reader = new ContentsReader(folder);
    for (const call of [written[0]!, written.at(-1)!]) t.same(await reader.find(call.requestId), call);
    t.ok(longest > 0 && longest < 100_000, `at most ${longest} bytes at once`);
  },
);

void t.test('a key that a caller put into a message is unreadable on the disk', async (t) => {
  const folder = t.testdir();
  const key = `sk-${'Ab_-9'.repeat(9).slice(0, 43)}`;
  const bytes = Buffer.from(`{"content":"my key is ${key}, and sk-short is none"}`);
  const text = { bytes, bytesInAll: bytes.length };
  const writer = writerOn(folder, RETENTION, new StoppedClock());
  writer.append(
    packContents({ requestId: 'req_1', endedMs: asWallMs(START_MS), request: text, response: text }),
  );
  writer.close();
  const file = readFileSync(join(folder, 'contents', FIRST_FILE));
  t.notOk(file.includes(key.slice(3)));
  const found = await new ContentsReader(folder).find('req_1');
  const hidden = `{"content":"my key is sk-${'*'.repeat(43)}, and sk-short is none"}`;
  t.equal(Buffer.from(found!.request.bytes).toString(), hidden);
  t.equal(Buffer.from(found!.response.bytes).toString(), hidden);
});

void t.test('the bound in bytes holds, and the oldest go first', async (t) => {
  const folder = t.testdir();
  const small = { ...RETENTION, keepBytes: 8 * 1024 * 1024 };
  const writer = writerOn(folder, small);
  let mostBytes = 0;
  for (let number = 0; number < 400; number++) {
    writer.append(packContents(contents(number * 3 + 1, 40_000)));
    const names = readdirSync(folder).length === 0 ? [] : readdirSync(join(folder, 'contents'));
    const bytes = names.reduce((sum, name) => sum + statSync(join(folder, 'contents', name)).size, 0);
    mostBytes = Math.max(mostBytes, bytes);
  }
  writer.close();
  t.ok(mostBytes <= small.keepBytes && mostBytes > small.keepBytes / 2, `at most ${mostBytes} bytes`);
  const reader = new ContentsReader(folder);
  t.equal(await reader.find('req_abcdefgh-1'), undefined);
  t.ok(await reader.find(`req_abcdefgh-${(399 * 3 + 1).toString(36)}`));
});

void t.test('a key of a provider is unreadable wherever it stands', async (t) => {
  const folder = t.testdir();
  const secrets = ['provider-secret-1234', 'provider-secret-1234-longer'];
  const writer = new ContentsWriter({
    dataPath: folder,
    retention: RETENTION,
    secrets: () => [...secrets].reverse(),
    clock: new SystemClock(),
    log,
  });
  const text = Buffer.from(`before ${secrets.join()}${secrets[0]} after`);
  const clipped = { bytes: text, bytesInAll: text.length };
  writer.append(packContents({ ...contents(1), request: clipped, response: clipped }));
  writer.flush();
  const found = await new ContentsReader(folder).find('req_abcdefgh-1');
  for (const { bytes } of [found!.request, found!.response]) {
    t.match(Buffer.from(bytes).toString(), /^before \*+,\*+ after$/);
    t.equal(bytes.length, text.length);
  }
  writer.close();
});

void t.test('of contents that are cut nothing is written, because nothing in them is masked', async (t) => {
  const folder = t.testdir();
  const secret = 'provider-secret-1234';
  const writer = new ContentsWriter({
    dataPath: folder,
    retention: RETENTION,
    secrets: () => [secret],
    clock: new SystemClock(),
    log,
  });
  const text = Buffer.from(`before ${secret} after`);
  const clipped = { bytes: text, bytesInAll: text.length };
  const packed = (call: number): Buffer =>
    packContents({ ...contents(call), request: clipped, response: clipped });
  for (let cut = 0; cut < packed(2).length; cut++) {
    writer.append(packed(1).subarray(0, cut));
    writer.append(Buffer.concat([packed(1), packed(2).subarray(0, cut)]));
  }
  writer.append(packed(3));
  writer.close();
  const written = readdirSync(join(folder, 'contents')).map((name) =>
    readFileSync(join(folder, 'contents', name), 'latin1'),
  );
  t.notMatch(written.join(), secret);
  const reader = new ContentsReader(folder);
  t.ok(await reader.find('req_abcdefgh-1'));
  t.ok(await reader.find('req_abcdefgh-3'), 'what follows is found');
});

void t.test('a key that is no secret changes nothing', async (t) => {
  const folder = t.testdir();
  // A server that wants no key gets any. A search for stars would find what it has just written.
  const writer = new ContentsWriter({
    dataPath: folder,
    retention: RETENTION,
    secrets: () => ['', 'x', '********'],
    clock: new SystemClock(),
    log,
  });
  const text = Buffer.from('x is **************** there');
  const clipped = { bytes: text, bytesInAll: text.length };
  writer.append(packContents({ ...contents(1), request: clipped, response: clipped }));
  writer.flush();
  const found = await new ContentsReader(folder).find('req_abcdefgh-1');
  t.ok(text.equals(found!.request.bytes));
  t.ok(text.equals(found!.response.bytes));
  writer.close();
});

void t.test('what could be older than its hours before the next look is removed', (t) => {
  const folder = t.testdir();
  const first = writerOn(folder, RETENTION, new StoppedClock());
  first.append(packContents(contents(1)));
  first.close();
  const path = join(folder, 'contents', FIRST_FILE);
  const isThere = (): boolean => readdirSync(join(folder, 'contents')).length > 0;
  const writtenBefore = (hours: number): void => {
    const clock = new StoppedClock();
    const writer = writerOn(folder, RETENTION, clock);
    // Just after the start nothing is removed by age.
    clock.nowMs += REMOVE_PERIOD_MS;
    const seconds = clock.wallMs() / 1_000 - hours * 3_600;
    utimesSync(path, seconds, seconds);
    writer.applyRetention(RETENTION);
    writer.close();
  };
  // A segment spans an hour at most, and the two looks are ten minutes.
  writtenBefore(24 - 1 - 10 / 60 - 0.01);
  t.ok(isThere());
  writtenBefore(24 - 1 - 10 / 60 + 0.01);
  t.notOk(isThere());
  t.end();
});
