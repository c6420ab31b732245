/** Who pays for a hit of the response cache whose client does not get it. */
import t from 'tap';
import { asCallSlot, asMonotonicMs, asPicoUnits, asWallMs } from '#src/core/units.js';
import type { ErrorRecord } from '#src/core/errors.js';
import type { ChatExchange } from '#src/request/chat-exchange.js';
import type { Admission, IntakeContext } from '#src/request/context.js';
import { ChargedHit } from '#src/request/replay.js';
import { NOT_COMMITTED, STOPPED } from '#src/request/rejections.js';

const COST = asPicoUnits(5n);

function bed() {
  const seen = { reversed: 0, released: 0, rejections: [] as (ErrorRecord | undefined)[] };
  const connections = { isClosing: false };
  const admission = {
    slot: asCallSlot(0),
    modelIndex: 0,
    model: { price: { cachedResponsePicoUnits: COST } },
    admittedMs: asMonotonicMs(0),
    mayReverse: true,
  } as unknown as Admission;
  const exchange = {
    admitted: admission,
    requestNumber: 1,
    knownCaller: { account: 0, key: 0 },
    charged: () => undefined,
    reversed: () => undefined,
  } as unknown as ChatExchange;
  const listener = {
    clock: { monotonicMs: () => asMonotonicMs(1), wallMs: () => asWallMs(1) },
    ledger: {
      settle: () => ({ charged: COST, uncovered: asPicoUnits(0n) }),
      takenOf: () => ({}),
      reverse: () => void (seen.reversed += 1),
    },
    journal: { append: () => 0 },
    channel: { release: () => void (seen.released += 1) },
    pendingCommits: { add: () => undefined },
    connections,
    durability: 'commit',
    cachedInput: 'count',
  } as unknown as IntakeContext;
  const hit = new ChargedHit(exchange, listener, (rejection) => seen.rejections.push(rejection));
  hit.start();
  return { hit, connections, seen };
}

void t.test('a hit that waits for its commit costs nothing if a stop cuts its connection', (t) => {
  for (const [end, isCut, rejection] of [
    ['onCommitted', true, STOPPED],
    ['onCommitted', false, undefined],
    ['onUncommitted', true, NOT_COMMITTED],
    ['onUncommitted', false, NOT_COMMITTED],
  ] as const) {
    const { hit, connections, seen } = bed();
    connections.isClosing = isCut;
    hit.onClientGone();
    t.same(seen.rejections, []);
    connections.isClosing = true;
    hit[end]();
    const reversed = rejection === undefined ? 0 : 1;
    t.same(seen, { reversed, released: 1, rejections: [rejection] }, `${end} ${isCut}`);
  }
  t.end();
});
