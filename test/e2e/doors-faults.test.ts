/**
 * What an upstream can do wrong, by each door and at each kind of upstream, whole and streamed, alone and
 * with a healthy second one: status, form of the error, and the bill to the pico-unit.
 * fault-matrix.test.ts has more faults, for chat completions alone.
 */
import t from 'tap';
import type { Test } from 'tap';
import { SERVICE_OF } from '#src/core/door-names.js';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { closedOrigin } from '../fixtures/upstream-server.js';
import {
  callAt,
  checkDoorError,
  checkErrorEvent,
  costOf,
  DOOR_CASES,
  DOOR_ENV,
  DOOR_PRICE,
  eventsIn,
  isFree,
  isWholeStream,
  WAYS,
  wayName,
  type Way,
} from '../support/doors.js';
import { SPEECH, type Said, type SpeechForm } from '../support/door-speech.js';
import { checkCells, checkNothingStays, settledAccount, slugOf } from '../support/fault-cells.js';
import {
  chunked,
  FaultServer,
  head,
  LAST_CHUNK,
  send,
  type FaultScript,
  sendOnceReached,
} from '../support/fault-server.js';
import { eventually, startGateway, type Gateway } from '../support/gateway.js';
import type { Answer } from '../support/http.js';

const TIMEOUTS = {
  connect_timeout_ms: 2_000,
  first_byte_timeout_ms: 2_000,
  idle_timeout_ms: 2_000,
  total_timeout_ms: 6_000,
};
const SAID: Said = { text: 'hi there', prompt: 7, output: 3 };
const OTHER: Said = { text: 'the other one', prompt: 5, output: 2 };
const CREDIT = '10.00';

/**
 * ok: the response. counted: the same, with tokens counted here. other: that of the healthy upstream. down:
 * 502, unbilled. caller: 400. cut: a stream that ends with an error event, unbilled.
 */
type Ending = 'ok' | 'counted' | 'other' | 'down' | 'caller' | 'cut';

interface Row {
  readonly name: string;
  /** In the order one upstream, two; undefined: not a case. */
  readonly whole: readonly [Ending, Ending] | undefined;
  readonly stream: readonly [Ending, Ending] | undefined;
  readonly script: FaultScript | undefined;
}

const UNSERVED = { whole: ['down', 'other'], stream: ['down', 'other'] } as const;
const BROKEN = { whole: ['down', 'other'], stream: ['cut', 'cut'] } as const;
const SERVED = { whole: ['ok', 'ok'], stream: ['ok', 'ok'] } as const;
const COUNTED = { whole: ['counted', 'counted'], stream: ['counted', 'counted'] } as const;
const REJECTED = { whole: ['caller', 'caller'], stream: ['caller', 'caller'] } as const;

const typeOf = (stream: boolean): string => (stream ? 'text/event-stream' : 'application/json');
const JSON_ERROR = '{"type":"error","error":{"type":"x","message":"the upstream says so"}}';

const sized =
  (body: string, type: string, status = 200): FaultScript =>
  (socket) =>
    send(
      socket,
      [
        head(status, {
          'content-type': type,
          'content-length': String(Buffer.byteLength(body)),
          connection: 'close',
        }),
        body,
      ],
      'close',
    );
const chunkedHead = (stream: boolean): string =>
  head(200, { 'content-type': typeOf(stream), 'transfer-encoding': 'chunked', connection: 'close' });

const begun = (first: string): string[] => [chunkedHead(true) + chunked(first)];

/** Rows in the words of one protocol. */
function rowsOf({ whole, stream, errorEvents, errorsInWhole }: SpeechForm): Row[] {
  const both =
    (text: string, streamText: string): FaultScript =>
    (socket, isStream, reached) =>
      sized(isStream ? streamText : text, typeOf(isStream))(socket, isStream, reached);
  const [first, rest] = stream?.(SAID) ?? ['', ''];
  const good = (usage?: unknown): FaultScript =>
    both(whole(SAID, usage), stream?.(SAID, usage).join('') ?? '');
  const error = (status: number): FaultScript => sized(JSON_ERROR, 'application/json', status);
  const breaks = (['close', 'reset', 'stall'] as const).flatMap((end): Row[] => [
    { name: `${end} before headers`, ...UNSERVED, script: (socket) => send(socket, [], end) },
    {
      name: `${end} after headers`,
      ...UNSERVED,
      script: (socket, isStream) => send(socket, [chunkedHead(isStream)], end),
    },
    {
      name: `${end} after the first byte`,
      ...BROKEN,
      script: (socket, isStream, reached) => {
        if (isStream) sendOnceReached(reached, socket, begun(first), [], end);
        else send(socket, [chunkedHead(false), chunked(whole(SAID).slice(0, -9))], end);
      },
    },
  ]);
  /** After good events. */
  const later =
    (text: string): FaultScript =>
    (socket, _, reached) =>
      sendOnceReached(
        reached,
        socket,
        begun(first),
        [(text === '' ? '' : chunked(text)) + LAST_CHUNK],
        'close',
      );
  const laterRows: [string, string][] = [
    ['broken JSON later', 'data: {"x":\n\n'],
    ['no object later', 'data: []\n\n'],
    ['no end', ''],
    ...errorEvents.map((text, index): [string, string] => [`error event ${index} later`, text]),
  ];
  return [
    { name: 'good', ...SERVED, script: good() },
    { name: 'refused connection', ...UNSERVED, script: undefined },
    ...breaks,
    ...[401, 403, 404, 408, 429, 500, 503, 529].map((status) => ({
      name: `status ${status}`,
      ...UNSERVED,
      script: error(status),
    })),
    ...[400, 413, 422].map((status) => ({ name: `status ${status}`, ...REJECTED, script: error(status) })),
    {
      name: 'redirect',
      ...UNSERVED,
      script: (socket) =>
        send(
          socket,
          [head(307, { location: '/followed/x', 'content-length': '0', connection: 'close' })],
          'close',
        ),
    },
    { name: 'HTML', ...UNSERVED, script: sized('<html></html>', 'text/html') },
    { name: 'HTML under a right type', ...UNSERVED, script: both('<html></html>', '<html></html>') },
    { name: 'broken JSON', ...UNSERVED, script: both(whole(SAID).slice(0, -1), 'data: {"x":\n\n') },
    { name: 'no object', ...UNSERVED, script: both('[]', 'data: []\n\n') },
    { name: 'nothing of the protocol', ...UNSERVED, script: both('{}', 'data: {}\n\n') },
    { name: 'empty', ...UNSERVED, script: both('', '') },
    {
      name: 'the other kind',
      ...UNSERVED,
      script: (socket, isStream, reached) => sized(whole(SAID), typeOf(!isStream))(socket, isStream, reached),
    },
    {
      name: 'JSON as plain text',
      whole: SERVED.whole,
      stream: UNSERVED.stream,
      script: sized(whole(SAID), 'text/plain; charset=utf-8'),
    },
    ...errorsInWhole.map((text, index): Row => ({
      name: `error ${index} for an answer`,
      whole: UNSERVED.whole,
      stream: undefined,
      script: both(text, ''),
    })),
    ...errorEvents.map((text, index): Row => ({
      name: `error event ${index} first`,
      whole: undefined,
      stream: UNSERVED.stream,
      script: both('', text),
    })),
    ...laterRows.map(([name, text]): Row => ({
      name,
      whole: undefined,
      stream: ['cut', 'cut'],
      script: later(text),
    })),
    {
      name: 'reset after the last event',
      whole: undefined,
      stream: ['ok', 'ok'],
      script: (socket) => send(socket, [chunkedHead(true), chunked(first + rest)], 'reset'),
    },
    { name: 'usage missing', ...COUNTED, script: good(null) },
    { name: 'usage a text', ...COUNTED, script: good('7') },
    {
      name: 'usage absurd',
      ...COUNTED,
      script: good({
        prompt_tokens: 1e15,
        completion_tokens: 1e15,
        input_tokens: 1e15,
        output_tokens: 1e15,
        total_tokens: 2e15,
      }),
    },
    {
      name: 'usage negative',
      ...COUNTED,
      script: good({
        prompt_tokens: -7,
        completion_tokens: -3,
        input_tokens: -7,
        output_tokens: -3,
        total_tokens: -10,
      }),
    },
  ];
}

interface Cell {
  readonly way: Way;
  readonly row: Row;
  readonly stream: boolean;
  readonly upstreams: 1 | 2;
  readonly ending: Ending;
}

const cellsOf = (way: Way): Cell[] =>
  rowsOf(SPEECH[way.speech]).flatMap((row) =>
    [false, true].flatMap((stream) =>
      (stream && SPEECH[way.speech].stream === undefined
        ? []
        : ((stream ? row.stream : row.whole) ?? [])
      ).map((ending, index): Cell => ({
        ...{ way, row, stream, upstreams: index === 0 ? 1 : 2 },
        // What a provider cannot tell is counted here.
        ending: isFree(way) && ending === 'down' ? 'counted' : ending,
      })),
    ),
  );

const modelOf = ({ way, row, upstreams }: Cell): string => slugOf(`${wayName(way)}-${row.name}-${upstreams}`);

function checkServed(t: Test, answer: Answer, { way, row, stream, ending }: Cell, name: string): void {
  t.equal(answer.status, 200, `${name}: ${answer.body.slice(0, 200)}`);
  if (answer.status !== 200) return;
  const said = ending === 'other' ? OTHER : SAID;
  const { whole } = SPEECH[way.speech];
  if (stream) {
    t.ok(isWholeStream(way, answer.body), `${name}: ${answer.body.slice(-300)}`);
    const text = eventsIn(answer.body)
      .map((event) => JSON.stringify(event))
      .join('\n');
    for (const part of [said.text.slice(0, 2), said.text.slice(2)]) t.match(text, `"${part}"`, name);
  } else if (way.kind === 'passed') {
    if (ending === 'counted') t.ok(DOOR_CASES[way.door].textOf(answer).length > 0, name);
    if (row.name === 'good' || ending === 'other')
      t.equal(answer.body, whole(said), `${name}: the same bytes`);
  } else t.equal(DOOR_CASES[way.door].textOf(answer), said.text, name);
}

/** Pico-units; undefined if tokens are counted here. */
function billOf({ way, ending }: Cell): bigint | undefined {
  // A door without output has its prompt billed alone.
  const tokensOf = ({ prompt, output }: Said): [number, number] =>
    way.door === 'embeddings' || way.door === 'rerank' ? [prompt, 0] : [prompt, output];
  if (ending === 'ok') return costOf(way, tokensOf(SAID));
  if (ending === 'other') return costOf(way, tokensOf(OTHER));
  return ending === 'counted' ? undefined : 0n;
}

async function checkCell(t: Test, gateway: Gateway, server: FaultServer, cell: Cell): Promise<void> {
  const { way, row, stream, upstreams, ending } = cell;
  const name = `${wayName(way)}, ${row.name}, ${stream ? 'stream' : 'whole'}, ${upstreams}`;
  const { key, accountId } = await gateway.admin.customer({ credit: CREDIT });
  const answer = await callAt(gateway, key, way, 'Hello', {
    model: modelOf(cell),
    stream,
    onBegun: () => server.reach(modelOf(cell)),
  });
  t.notMatch(answer.body, DOOR_ENV.PROVIDER_KEY, name);
  t.ok(answer.headers['x-request-id'], `${name}: named`);
  if (ending === 'down') {
    const message = checkDoorError(t, way, answer, 'provider_unavailable', name);
    t.notMatch(message, /127\.0\.0\.1|ECONN/, `${name}: no address`);
  } else if (ending === 'caller') {
    t.equal(checkDoorError(t, way, answer, 'invalid_parameters', name), 'the upstream says so', name);
  } else if (ending === 'cut') {
    t.equal(answer.status, 200, name);
    checkErrorEvent(t, way, answer.body, 'provider_unavailable', name);
  } else checkServed(t, answer, cell, name);
  const account = await settledAccount(gateway, accountId, name);
  const spent = picoUnitsOf(account.spent)!;
  const bill = billOf(cell);
  if (bill === undefined) {
    // Of moderations nothing is counted.
    const least = way.door === 'moderations' ? costOf(way, [0, 0]) : costOf(way, [1, 0]);
    t.ok(spent >= least && spent <= costOf(way, [60, 20]), `${name}: ${account.spent}`);
  } else t.equal(account.spent, decimalOf(bill), `${name}: bill`);
  const isGivenBack = ending === 'down' || ending === 'cut' || isFree(way);
  t.equal(account.calls_today, isGivenBack ? 0 : 1, `${name}: day`);
  t.equal(picoUnitsOf(account.credited), picoUnitsOf(account.balance)! + spent, `${name}: the law`);
}

void t.test('faults by each door', { timeout: 600_000 }, async (t) => {
  const server = new FaultServer(t);
  const dead = await closedOrigin();
  const asking = WAYS.filter(({ kind }) => kind !== 'counted');
  const cells = asking.flatMap(cellsOf);
  const scripts = new Map<string, FaultScript>();
  const healthyOf = (way: Way): string => slugOf(`${wayName(way)}-healthy`);
  for (const cell of cells) if (cell.row.script !== undefined) scripts.set(modelOf(cell), cell.row.script);
  for (const way of asking) {
    const { whole, stream } = SPEECH[way.speech];
    scripts.set(healthyOf(way), (socket, isStream, reached) =>
      sized(isStream ? stream!(OTHER).join('') : whole(OTHER), typeOf(isStream))(socket, isStream, reached),
    );
  }
  const port = await server.scripted(scripts);
  const upstreamOf = (way: Way, name: string | undefined): object => ({
    url: `${name === undefined ? dead : `http://127.0.0.1:${port}/${name}`}${way.hasVersion ? '/v1' : ''}`,
    key: '${PROVIDER_KEY}',
    ...way.upstream,
    ...TIMEOUTS,
  });
  const models = new Map(
    cells.map((cell) => {
      const { way, row, upstreams } = cell;
      const faulty = upstreamOf(way, row.script && modelOf(cell));
      const healthy = { ...upstreamOf(way, healthyOf(way)), priority: 2 };
      const model = {
        id: modelOf(cell),
        serves: [SERVICE_OF[way.door]],
        price: DOOR_PRICE,
        max_output_tokens: 1_000,
        upstreams: upstreams === 1 ? [faulty] : [faulty, healthy],
      };
      return [model.id, model];
    }),
  );
  const gateway = await startGateway(t, {
    config: {
      models: [...models.values()],
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
    },
    env: DOOR_ENV,
  });
  await checkCells(t, cells, (cell) => checkCell(t, gateway, server, cell));
  await checkNothingStays(t, gateway, server, DOOR_ENV.PROVIDER_KEY);
  t.equal(await gateway.stop(), 0);
  await eventually('the end of all connections', () => (server.sockets.size === 0 ? true : undefined));
});
