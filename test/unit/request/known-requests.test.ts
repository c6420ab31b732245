import t from 'tap';
import { asAccountIndex } from '#src/core/units.js';
import { CHAT } from '#src/doors/chat/chat-door.js';
import type { Door } from '#src/doors/door.js';
import { DOORS } from '#src/doors/doors.js';
import { cacheKeyOf, nameOfResponse } from '#src/registry/stored-response.js';
import { knownFor, KnownRequests, type ReadRequest } from '#src/request/known-requests.js';
import { newSeed, pick, randomOf } from '../../support/random.js';

const FACTS = 'chat m r  false';
const ACCOUNT = asAccountIndex(1);
const KEY = cacheKeyOf(ACCOUNT, 'm', 'a'.repeat(64));
const MIB = 1024 * 1024;

const requestAt = (door: Door = CHAT): ReadRequest => ({ door, bodyText: '', known: undefined });
const bodyOf = (content: string, more = ''): Buffer =>
  Buffer.from(
    JSON.stringify({ model: 'm', messages: [{ role: 'user', content }] }).replace(/}$/, `${more}}`),
  );

function knownRequests(bytesMax = MIB): KnownRequests {
  const known = new KnownRequests();
  known.setBytesMax(bytesMax);
  return known;
}

/** Reads the body, and remembers it as a hit. */
function remember(known: KnownRequests, bytes: Uint8Array, key = KEY, facts = FACTS): ReadRequest {
  const request = requestAt();
  const read = known.read(request, bytes);
  if (!read.ok) throw new Error(read.error.message);
  known.remember(request, read.call, facts, key);
  return request;
}

void t.test('a known request is what reading its bytes gives; other bytes are read', (t) => {
  const seed = newSeed();
  t.comment(`TOLLGATE_TEST_SEED=${seed}`);
  const random = randomOf(seed);
  const known = knownRequests();
  const texts = ['', 'a', 'ä', 'Ã¤', '漢字', '😀', '\u0000', '\\u00e4', 'x'.repeat(300), 'é'.repeat(1_800)];
  const rest = ['', ',"stream":true', ',"max_tokens":7', ',"top_p":9', ',"model":"m"'];
  for (let n = 0; n < 500; n++) {
    const bytes = bodyOf(pick(random, texts) + pick(random, texts), pick(random, rest));
    const request = requestAt();
    const read = known.read(request, bytes);
    t.strictSame(read, CHAT.read(bytes), bytes.toString());
    if (read.ok) known.remember(request, read.call, FACTS, KEY);
  }
  t.ok(known.bytes > 0);
  t.end();
});

void t.test('it is known at its door, for its account and facts alone', (t) => {
  const known = knownRequests();
  const bytes = bodyOf('a');
  t.equal(remember(known, bytes).known, undefined, 'at first it is read');
  const again = requestAt();
  known.read(again, bytes);
  t.equal(knownFor(again, FACTS, ACCOUNT)?.key, KEY);
  t.equal(again.known?.name, nameOfResponse(KEY));
  t.equal(knownFor(again, FACTS, asAccountIndex(2)), undefined);
  t.equal(knownFor(again, 'chat m s  false', ACCOUNT), undefined);
  for (const door of DOORS.filter((one) => one !== CHAT)) {
    const elsewhere = requestAt(door);
    t.strictSame(known.read(elsewhere, bytes), door.read(bytes), door.name);
    t.equal(elsewhere.known, undefined, door.name);
  }
  const theirs = cacheKeyOf(asAccountIndex(2), 'm', 'a'.repeat(64));
  remember(known, bytes, theirs);
  const third = requestAt();
  known.read(third, bytes);
  t.equal(third.known?.key, theirs, 'the last account is known');
  t.end();
});

void t.test('memory is bounded, and the oldest go first', (t) => {
  const known = knownRequests(20_000);
  for (let n = 0; n < 100; n++) {
    remember(known, bodyOf(`${n}`.padStart(500)));
    t.ok(known.bytes <= 20_000);
  }
  const isKnown = (n: number): boolean => {
    const request = requestAt();
    known.read(request, bodyOf(`${n}`.padStart(500)));
    return request.known !== undefined;
  };
  t.ok(known.bytes > 15_000);
  t.ok(isKnown(99));
  t.notOk(isKnown(0));
  const before = known.bytes;
  remember(known, bodyOf('99'.padStart(500)));
  t.equal(known.bytes, before, 'what is known takes no more');
  const long = requestAt();
  t.ok(known.read(long, bodyOf('x'.repeat(4_096))).ok);
  t.equal(long.bodyText, '', 'a long body is not kept');
  known.setBytesMax(0);
  t.equal(known.bytes, 0);
  const off = requestAt();
  t.ok(known.read(off, bodyOf('a')).ok);
  t.equal(off.bodyText, '', 'without a cache nothing is copied');
  t.end();
});

void t.test('an entry counts with all its texts', (t) => {
  const known = knownRequests();
  const bytesOf = (facts: string, key = KEY): number => {
    const before = known.bytes;
    remember(known, bodyOf(`${known.bytes}`.padStart(10)), key, facts);
    return known.bytes - before;
  };
  const bytes = bytesOf(FACTS);
  t.equal(
    bytesOf(FACTS + 'b'.repeat(1_000)) - bytes,
    1_000,
    'the header `anthropic-beta` is one of its facts',
  );
  const long = cacheKeyOf(ACCOUNT, 'm'.repeat(501), 'a'.repeat(64));
  t.ok(bytesOf(FACTS, long) - bytes >= 1_000, 'the key, and the name that is made of it');
  t.end();
});
