/** What Delivery writes of frames whose memory the worker writes to again. */
import t from 'tap';
import type { HttpResponse } from 'uWebSockets.js';
import type { TriedAttempt } from '#src/channel/messages.js';
import { asCallSlot, asMonotonicMs, asPicoUnits, asWallMs } from '#src/core/units.js';
import { usageOfWhole } from '#src/core/token-counts.js';
import type { ChatExchange } from '#src/request/chat-exchange.js';
import type { Admission } from '#src/request/context.js';
import { Delivery, type DeliveryContext } from '#src/request/delivery.js';

const TRIED: TriedAttempt = {
  upstream: 0,
  fallback: 0,
  startMs: asMonotonicMs(0),
  durationMs: 1,
  status: 200,
  code: 'connection_lost',
  error: 'it closed the connection',
};

function bed() {
  const seen = { text: '', outcome: '', bodies: 0 };
  const res: HttpResponse = {
    cork: (write: () => void) => {
      write();
    },
    write: (bytes: Uint8Array) => {
      seen.text += Buffer.from(bytes).toString();
      return true;
    },
    writeStatus: () => res,
    onWritable: () => undefined,
    close: () => undefined,
  } as unknown as HttpResponse;
  const admission = {
    slot: asCallSlot(0),
    modelIndex: 0,
    model: {},
    call: { stream: true },
    admittedMs: asMonotonicMs(0),
  } as unknown as Admission;
  const exchange = {
    res,
    admission,
    requestId: 'req_test',
    requestNumber: 1,
    caller: { account: 0, key: 0 },
    models: [{}],
    corsLines: '',
    cacheLine: '',
    door: { isFree: true, errors: {}, headerLines: () => '' },
    clientGone: false,
    endsConnection: false,
    responseBegun: () => undefined,
    startSweep: () => undefined,
    onTried: () => undefined,
    giveBackBody: () => void (seen.bodies += 1),
    charged: () => undefined,
    finish: (outcome: string) => void (seen.outcome = outcome),
  } as unknown as ChatExchange;
  const listener = {
    clock: { monotonicMs: () => asMonotonicMs(1), wallMs: () => asWallMs(1) },
    ledger: { settle: () => ({ charged: asPicoUnits(0n), uncovered: asPicoUnits(0n) }) },
    journal: { append: () => 0 },
    channel: { refund: () => undefined, release: () => undefined },
    metrics: { callEnded: () => undefined },
    durability: 'interval',
    cachedInput: 'count',
  } as unknown as DeliveryContext;
  return { delivery: new Delivery(exchange, admission, listener), res, seen };
}

void t.test('bytes that came with a failed attempt are written before their memory is used again', (t) => {
  const { delivery, seen } = bed();
  delivery.onData(Buffer.from('data: 1\n\n'), false);
  const ring = Buffer.from('data: mine\n\n');
  // The stream was cut. Its end follows when its tokens are counted.
  delivery.onData(ring, true);
  delivery.onTried(TRIED);
  t.equal(seen.text, 'data: 1\n\ndata: mine\n\n');
  ring.fill('x');
  delivery.onCut(usageOfWhole(1, 1, 'estimated'), 0);
  t.same([seen.text, seen.outcome], ['data: 1\n\ndata: mine\n\n', 'client_gone']);
  t.end();
});

void t.test('a call that is cut gives its body back before its client has read', (t) => {
  const { delivery, res, seen } = bed();
  delivery.onData(Buffer.from('data: 1\n\n'), false);
  res.write = () => false;
  delivery.onData(Buffer.from('data: 2\n\n'), false);
  delivery.onCut(usageOfWhole(1, 1, 'estimated'), 0);
  t.same([seen.outcome, seen.bodies], ['', 1], 'it waits for its client');
  t.end();
});
