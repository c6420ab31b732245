/**
 * What Delivery writes of frames whose memory the worker writes to again, what it keeps as contents, and what
 * is charged if a commit does not come.
 */
import t from 'tap';
import type { HttpResponse } from 'uWebSockets.js';
import type { TriedAttempt } from '#src/channel/messages.js';
import { asCallSlot, asMonotonicMs, asPicoUnits, asWallMs } from '#src/core/units.js';
import { usageWithoutParts } from '#src/core/token-counts.js';
import type { ChatExchange } from '#src/request/chat-exchange.js';
import type { Admission } from '#src/request/context.js';
import { Delivery } from '#src/request/delivery.js';
import type { IntakeContext } from '#src/request/context.js';

const TRIED: TriedAttempt = {
  upstreamSlot: 0,
  fallback: 0,
  startMs: asMonotonicMs(0),
  durationMs: 1,
  status: 200,
  code: 'connection_lost',
  error: 'it closed the connection',
};

function bed(
  durability: 'interval' | 'commit' = 'interval',
  isKeyed = false,
  isStream = true,
  endsConnection = false,
) {
  const seen = {
    text: '',
    kept: '',
    outcome: '',
    bodies: 0,
    closed: 0,
    reversed: 0,
    forgotten: 0,
    published: 0,
    released: 0,
    rejected: '',
    /** What was given back, and when the exchange was finished. */
    order: [] as string[],
  };
  const res: HttpResponse = {
    cork: (write: () => void) => {
      write();
    },
    write: (bytes: Uint8Array) => {
      seen.text += Buffer.from(bytes).toString();
      return true;
    },
    end: (bytes: Uint8Array = new Uint8Array(0)) => void (seen.text += Buffer.from(bytes).toString()),
    writeStatus: () => res,
    writeHeader: () => res,
    onWritable: () => undefined,
    close: () => void (seen.closed += 1),
  } as unknown as HttpResponse;
  const admission = {
    slot: asCallSlot(0),
    modelIndex: 0,
    model: {},
    call: { stream: isStream },
    admittedMs: asMonotonicMs(0),
    mayReverse: true,
  } as unknown as Admission;
  const exchange = {
    res,
    admitted: admission,
    requestId: 'req_test',
    requestNumber: 1,
    knownCaller: { account: 0, key: 0 },
    models: [{}],
    corsLines: '',
    cacheLine: '',
    door: {
      isFree: true,
      errors: { status: () => 500, body: () => 'withheld', event: () => 'data: withheld\n\n' },
      headerLines: () => '',
    },
    clientGone: false,
    endsConnection,
    responseBegun: () => undefined,
    startSweep: () => undefined,
    addAttempt: () => undefined,
    giveBackBody: () => void (seen.bodies += 1),
    addServingAttempt: () => undefined,
    keyed: isKeyed ? {} : undefined,
    storable: {
      collect: () => undefined,
      keep: () => undefined,
      publish: () => void (seen.published += 1),
      forget: () => void (seen.forgotten += 1),
      giveUp: () => undefined,
    },
    contents: { addResponse: (bytes: Uint8Array) => void (seen.kept += Buffer.from(bytes).toString()) },
    charged: () => undefined,
    reversed: () => undefined,
    finish: (outcome: string) => {
      seen.outcome = outcome;
      seen.order.push('finished');
    },
  } as unknown as ChatExchange;
  const connections = { isClosing: false };
  const listener = {
    clock: { monotonicMs: () => asMonotonicMs(1), wallMs: () => asWallMs(1) },
    ledger: {
      settle: () => ({ charged: asPicoUnits(0n), uncovered: asPicoUnits(0n) }),
      takenOf: () => ({}),
      reverse: () => void (seen.reversed += 1),
      release: () => seen.order.push('hold') > 0,
    },
    journal: { append: () => 0, nextPosition: 1 },
    channel: {
      dispatch: () => false,
      refund: () => undefined,
      release: () => {
        seen.released += 1;
        seen.order.push('slot');
      },
    },
    connections,
    pendingCommits: { add: () => undefined },
    metrics: { callEnded: () => undefined, countRejection: (code: string) => void (seen.rejected = code) },
    durability,
    cachedInput: 'count',
  } as unknown as IntakeContext;
  const delivery = new Delivery(exchange, listener);
  const leave = (isCut: boolean): void => {
    connections.isClosing = isCut;
    exchange.clientGone = true;
    delivery.onClientGone();
  };
  return { delivery, res, seen, leave };
}

void t.test('a call that no worker takes is rejected, and gives all back', (t) => {
  const { delivery, seen } = bed();
  delivery.dispatch();
  t.match(seen, { text: 'withheld', outcome: 'overloaded', rejected: 'no_worker' });
  t.same(seen.order, ['hold', 'finished', 'slot'], 'the exchange reads the words of the slot');
  t.end();
});

void t.test('bytes that came with a failed attempt are written before their memory is used again', (t) => {
  const { delivery, seen } = bed();
  delivery.onData(Buffer.from('data: 1\n\n'), false);
  const ring = Buffer.from('data: mine\n\n');
  // The stream was cut. Its end follows when its tokens are counted.
  delivery.onData(ring, true);
  delivery.onTried(TRIED);
  t.equal(seen.text, 'data: 1\n\ndata: mine\n\n');
  ring.fill('x');
  delivery.onCut(usageWithoutParts({ promptTokens: 1, completionTokens: 1, source: 'estimated' }), 0);
  t.same([seen.text, seen.outcome], ['data: 1\n\ndata: mine\n\n', 'client_gone']);
  t.end();
});

void t.test('a call that is cut gives its body back before its client has read', (t) => {
  const { delivery, res, seen } = bed();
  delivery.onData(Buffer.from('data: 1\n\n'), false);
  res.write = () => false;
  delivery.onData(Buffer.from('data: 2\n\n'), false);
  delivery.onCut(usageWithoutParts({ promptTokens: 1, completionTokens: 1, source: 'estimated' }), 0);
  t.same([seen.outcome, seen.bodies], ['', 1], 'it waits for its client');
  t.end();
});

void t.test('a client that closes a connection which ends has had its response', (t) => {
  const { delivery, seen, leave } = bed('interval', false, true, true);
  delivery.onData(Buffer.alloc(40_000, 'data'), false);
  t.equal(
    delivery.onEnd(
      Buffer.from('data: 2\n\n'),
      usageWithoutParts({ promptTokens: 1, completionTokens: 1, source: 'reported' }),
      0,
    ),
    false,
  );
  t.equal(seen.outcome, '', 'the last bytes may still be with µWS');
  leave(false);
  t.same([seen.outcome, seen.order], ['ok', ['finished', 'slot']]);
  t.end();
});

void t.test('a stop takes the charge back of a response that waits for its commit and was not begun', (t) => {
  for (const end of ['onCommitted', 'onUncommitted'] as const) {
    const { delivery, seen, leave } = bed('commit');
    t.equal(
      delivery.onEnd(
        Buffer.from('whole'),
        usageWithoutParts({ promptTokens: 1, completionTokens: 1, source: 'reported' }),
        0,
      ),
      false,
    );
    leave(true);
    t.equal(seen.outcome, '', 'its charge is on its way to the disk');
    delivery[end]();
    const expected = {
      text: '',
      outcome: 'client_gone',
      reversed: 1,
      forgotten: 1,
      published: 0,
      released: 1,
    };
    t.match(seen, expected, end);
  }
  t.end();
});

void t.test(
  'a charge stays if the client left by itself, had the beginning, or has a key that replays it',
  (t) => {
    for (const isCut of [false, true])
      for (const hasBegun of [false, true]) {
        const { delivery, seen, leave } = bed('commit', isCut && !hasBegun);
        if (hasBegun) delivery.onData(Buffer.from('data: 1\n\n'), false);
        delivery.onEnd(
          Buffer.from('data: 2\n\n'),
          usageWithoutParts({ promptTokens: 1, completionTokens: 1, source: 'reported' }),
          0,
        );
        leave(isCut);
        delivery.onCommitted();
        const expected = { outcome: 'client_gone', reversed: 0, forgotten: 0, published: 1, released: 1 };
        t.match(seen, expected, `${isCut} ${hasBegun}`);
      }
    t.end();
  },
);

void t.test('contents are what the client got, also if the charge is not committed', (t) => {
  for (const isCommitted of [true, false])
    for (const isStream of [true, false]) {
      const what = `committed: ${isCommitted}, stream: ${isStream}`;
      const { delivery, seen } = bed('commit', false, isStream);
      if (isStream) delivery.onData(Buffer.from('data: 1\n\n'), false);
      delivery.onEnd(
        Buffer.from('last'),
        usageWithoutParts({ promptTokens: 1, completionTokens: 1, source: 'reported' }),
        0,
      );
      t.equal(seen.kept, seen.text, `${what}: while it waits`);
      if (isCommitted) delivery.onCommitted();
      else delivery.onUncommitted();
      t.equal(seen.outcome, isCommitted ? 'ok' : 'internal_error', what);
      t.ok(seen.text.endsWith(isCommitted ? 'last' : isStream ? 'data: withheld\n\n' : 'withheld'), what);
      // The exchange adds the error to contents that have no response.
      t.equal(seen.kept, isCommitted || isStream ? seen.text : '', what);
    }
  t.end();
});

void t.test('no error event follows half an event: the connection is cut', (t) => {
  const usage = usageWithoutParts({ promptTokens: 1, completionTokens: 1, source: 'reported' });
  const pieces: [pieces: string[], isWhole: boolean][] = [
    [['data: 1\n\n'], true],
    [['data: 1\r\n\r\n'], true],
    [['data: 1\n\ndata: 2'], false],
    [['data: 1\n\n', 'data: 2'], false],
    [['data: 1', '23\n\n'], true],
    [['data: 1\n'], false],
  ];
  const ends = ['dies', 'dies with a full socket', 'waits for the next frame', 'is not committed'] as const;
  for (const [texts, isWhole] of pieces)
    for (const end of ends) {
      const { delivery, res, seen } = bed('commit');
      if (end === 'dies with a full socket') {
        res.write = (bytes) => {
          seen.text += Buffer.from(bytes as Uint8Array).toString();
          return false;
        };
        delivery.onData(Buffer.from('data: 0\n\n'), false);
      }
      for (const text of texts) delivery.onData(Buffer.from(text), end === 'waits for the next frame');
      if (end === 'is not committed') {
        delivery.onEnd(Buffer.from(' last\n\n'), usage, 0);
        delivery.onUncommitted();
      } else delivery.onFail({ code: 'internal_error', message: 'the worker died' });
      const what = `${JSON.stringify(texts)} ${end}`;
      t.equal(seen.closed, isWhole ? 0 : 1, what);
      if (!isWhole) t.notMatch(seen.text, /withheld/, what);
      else if (end !== 'dies with a full socket') t.match(seen.text, /\n\r?\ndata: withheld/, what);
      if (!isWhole) t.equal(seen.outcome, 'internal_error', what);
    }
  t.end();
});
