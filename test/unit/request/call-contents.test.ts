/** What is gathered of calls, and that the budget gets back what each has taken. */
import t from 'tap';
import { asKeyIndex, asMonotonicMs, asWallMs } from '#src/core/units.js';
import { ContentsGatherer, type ContentsSettings } from '#src/request/call-contents.js';
import { ContentsBudget, createContentsBudget } from '#src/telemetry/contents-budget.js';
import { contentsAt, contentsBytesAt } from '#src/telemetry/contents-layout.js';
import { newSeed, pick, randomBelow, randomOf } from '../../support/random.js';

const KEY = asKeyIndex(3);
const BUDGET_BYTES = 32 * 1024 * 1024;

/** A gatherer, and a main thread that reads its batches and gives their bytes back. */
function bed(settings: ContentsSettings) {
  const buffer = createContentsBudget();
  const budget = new ContentsBudget(buffer);
  const privateKeys = new Set<number>();
  const texts: { id: string; request: string; response: string; bytesInAll: number[] }[] = [];
  const gatherer = new ContentsGatherer({
    budget,
    keys: { isPrivate: (key) => privateKeys.has(key) },
    clock: { monotonicMs: () => asMonotonicMs(1), wallMs: () => asWallMs(7) },
    send: (bytes) => {
      t.equal(bytes.buffer.byteLength, bytes.length, 'memory that can be transferred');
      const data = Buffer.from(bytes.buffer);
      for (let at = 0; at < data.length; at += contentsBytesAt(data, at)!) {
        const { requestId, request, response } = contentsAt(data, at);
        texts.push({
          id: requestId,
          request: Buffer.from(request.bytes).toString('latin1'),
          response: Buffer.from(response.bytes).toString('latin1'),
          bytesInAll: [request.bytesInAll, response.bytesInAll],
        });
      }
      budget.giveBack(bytes.length);
    },
  });
  gatherer.applySettings(settings);
  return { gatherer, budget, privateKeys, texts, taken: () => new Int32Array(buffer)[0]! };
}

void t.test('each text up to its bound, and all that was taken comes back', (t) => {
  const seed = newSeed();
  t.comment(`TOLLGATE_TEST_SEED=${seed}`);
  const next = randomOf(seed);
  const below = randomBelow(seed);
  const { gatherer, budget, texts, taken } = bed({ mode: 'errors', bodyBytesMax: 100 });
  const expected: typeof texts = [];
  const open = Array.from({ length: 200 }, (_, index) => ({
    id: `req_${index}`,
    contents: gatherer.begin(KEY)!,
    request: '',
    response: '',
  }));
  for (let round = 0; round < 1_000; round++) {
    const call = pick(next, open);
    const piece = Buffer.alloc(below(60), String.fromCharCode(97 + below(26)));
    if (below(2) === 0) {
      call.contents.addRequest(piece);
      call.request += piece.toString();
    } else {
      call.contents.addResponse(piece);
      call.response += piece.toString();
    }
    // µWS and the worker write to this memory again.
    piece.fill('!');
  }
  for (const { id, contents, request, response } of open) {
    const outcome = pick(next, ['ok', 'client_gone', 'internal_error'] as const);
    gatherer.end(contents, id, outcome);
    if (outcome === 'ok') continue;
    expected.push({
      id,
      request: request.slice(0, 100),
      response: response.slice(0, 100),
      bytesInAll: [request.length, response.length],
    });
  }
  gatherer.flush();
  t.same(texts, expected);
  t.equal(taken(), 0);
  for (const { contents } of open) contents.drop();
  t.equal(taken(), 0, 'once');
  t.equal(budget.dropped, 0);
  t.end();
});

void t.test('nothing is kept of a private key, nor if no contents are to be kept', (t) => {
  const { gatherer, budget, privateKeys, texts, taken } = bed({ mode: 'all', bodyBytesMax: 100 });
  const becamePrivate = gatherer.begin(KEY)!;
  becamePrivate.addRequest(Buffer.from('secret'));
  privateKeys.add(KEY);
  gatherer.end(becamePrivate, 'req_1', 'ok');
  t.equal(gatherer.begin(KEY), undefined);
  privateKeys.clear();
  const turnedOff = gatherer.begin(KEY)!;
  turnedOff.addRequest(Buffer.from('secret'));
  gatherer.applySettings({ mode: 'none', bodyBytesMax: 100 });
  gatherer.end(turnedOff, 'req_2', 'internal_error');
  t.equal(gatherer.begin(KEY), undefined);
  gatherer.flush();
  t.same([texts, taken(), budget.dropped], [[], 0, 0]);
  t.end();
});

void t.test('a call for which the budget is used up is dropped and counted, and takes nothing', (t) => {
  const { gatherer, budget, texts, taken } = bed({ mode: 'all', bodyBytesMax: BUDGET_BYTES });
  const lost = gatherer.begin(KEY)!;
  lost.addRequest(Buffer.alloc(1_000));
  const others = BUDGET_BYTES - taken();
  budget.take(others);
  lost.addResponse(Buffer.alloc(1));
  t.equal(taken(), others, 'what it had is free');
  budget.giveBack(others);
  lost.addResponse(Buffer.alloc(1));
  gatherer.end(lost, 'req_1', 'ok');
  const unpacked = gatherer.begin(KEY)!;
  unpacked.addRequest(Buffer.alloc(1_000));
  budget.take(BUDGET_BYTES - taken());
  const before = taken();
  gatherer.end(unpacked, 'req_2', 'ok');
  t.ok(taken() < before, 'as there is no memory to pack it');
  gatherer.flush();
  t.same([texts, budget.dropped], [[], 2]);
  t.end();
});
