/**
 * What providers with protocols of their own can do wrong, whole and streamed, with one upstream and with a
 * healthy second one: what the caller gets, what it costs to the pico-unit, and that nothing stays behind.
 * Faults of HTTP itself are in fault-matrix.test.ts; these are of what comes inside. One gateway; each
 * provider, row and number of upstreams is a model of its own.
 */
import { gzipSync } from 'node:zlib';
import t, { type Test } from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import type { ProviderName } from '#src/core/provider-names.js';
import { checkError } from '../support/error-answer.js';
import {
  BROKEN,
  cellsOf,
  checkCells,
  checkNothingStays,
  checkServed,
  FAULT_TIMEOUTS,
  REJECTED,
  SERVED,
  settledAccount,
  slugOf,
  UNSERVED,
  COUNTED,
  type FaultCell,
} from '../support/fault-cells.js';
import {
  FaultServer,
  head,
  LAST_CHUNK,
  send,
  type FaultScript,
  sendOnceReached,
} from '../support/fault-server.js';
import { startGateway, TEST_PRICE, type Gateway } from '../support/gateway.js';
import type { Answer } from '../support/http.js';
import { startMock } from '../support/mock.js';
import { answerCases } from '../support/provider-answers.js';
import { GEMINI, type AnswerCase } from '../support/provider-dialects.js';
import {
  modelAt,
  PROVIDER_ENV,
  PROVIDER_MODELS,
  SECRET,
  type ProviderModel,
} from '../support/provider-bed.js';
import { ERROR_FORMS } from '../support/provider-errors.js';
import { FORMS, type Form } from '../support/provider-forms.js';

const CREDIT = '100.00';
/** Of the dialects' first usage: 12 and 9 tokens; of the healthy upstream: 11 and 5. */
const BILLS = {
  ok: 38_250_000n,
  other: 27_750_000n,
  down: 0n,
  caller: 0n,
  cut: 0n,
  counted: undefined,
} as const;

/**
 * ok: the provider's response. other: the healthy upstream's. down: 502. caller: 400. cut: a stream that ends
 * with an error event. counted: as ok, with tokens counted here.
 */
type Ending = keyof typeof BILLS;

interface Row {
  readonly name: string;
  /** In the order one upstream, two upstreams; undefined: not a case. */
  readonly whole: readonly [Ending, Ending] | undefined;
  readonly stream: readonly [Ending, Ending] | undefined;
  readonly script: (form: Form) => FaultScript;
}

const TOLD = 'the provider says so';
/** Traces of ours, as the provider's message may have them. */
const TRACES: Readonly<Partial<Record<ProviderName, string>>> = {
  anthropic: PROVIDER_ENV.PROVIDER_KEY,
  gemini: `${PROVIDER_ENV.PROVIDER_KEY} of projects/project-5ecret-7`,
  vertex: `projects/project-5ecret-7/locations/us-east5 with ${PROVIDER_ENV.PROVIDER_TOKEN.slice('Bearer '.length)}`,
  bedrock: `arn:aws:bedrock:us-east-1:123456789012:x with ${PROVIDER_ENV.PROVIDER_KEY}`,
};
const told = ({ provider }: Form): string => `${TOLD} for ${TRACES[provider]!}`;

const answerOf = ({ dialect }: Form): AnswerCase => answerCases(dialect).find(({ name }) => name === 'text')!;
const bodyOf = (form: Form, stream: boolean, more: Partial<AnswerCase> = {}): Buffer => {
  const answer = { ...answerOf(form), ...more };
  return stream ? form.dialect.stream(answer) : Buffer.from(JSON.stringify(form.dialect.whole(answer)));
};
const typeOf = ({ dialect }: Form, stream: boolean): string =>
  stream ? dialect.streamType : 'application/json';

/** A response that is well formed as far as HTTP goes. */
const reply =
  (
    status: number,
    body: (form: Form, stream: boolean) => Uint8Array | string,
    headers: Record<string, string> = {},
  ) =>
  (form: Form): FaultScript =>
  (socket, stream) => {
    const bytes = Buffer.from(body(form, stream) as string);
    const type = typeOf(form, stream && status === 200);
    const fields = { 'content-type': type, 'content-length': String(bytes.length), connection: 'close' };
    const more = status === 200 ? {} : ERROR_FORMS.get(form.dialect)!.headers(status);
    send(socket, [head(status, { ...fields, ...more, ...headers }), bytes], 'close');
  };

const error = (status: number, headers: Record<string, string> = {}): Row['script'] =>
  reply(status, (form) => ERROR_FORMS.get(form.dialect)!.body(status, told(form)), headers);

/** What comes of the body, in chunks, before the connection ends in that way. */
const broken =
  (end: 'close' | 'reset' | 'stall', part: (bytes: Buffer) => Buffer, last = '') =>
  (form: Form): FaultScript =>
  (socket, stream, reached) => {
    const bytes = part(bodyOf(form, stream));
    const fields = {
      'content-type': typeOf(form, stream),
      'transfer-encoding': 'chunked',
      connection: 'close',
    };
    const size = Buffer.from(`${bytes.length.toString(16)}\r\n`);
    const piece = bytes.length === 0 ? Buffer.alloc(0) : Buffer.concat([size, bytes, Buffer.from('\r\n')]);
    const first = [head(200, fields), piece];
    if (stream && bytes.length > 0) sendOnceReached(reached, socket, first, [last], end);
    else send(socket, [...first, last], end);
  };

const nothing = (): Buffer => Buffer.alloc(0);
const half = (bytes: Buffer): Buffer => bytes.subarray(0, Math.floor(bytes.length * 0.6));

const ROWS: readonly Row[] = [
  { name: 'sound', ...SERVED, script: reply(200, bodyOf) },
  {
    name: 'byte by byte',
    ...SERVED,
    script: (form) => (socket, stream) => {
      const bytes = bodyOf(form, stream);
      const fields = {
        'content-type': typeOf(form, stream),
        'content-length': String(bytes.length),
        connection: 'close',
      };
      socket.write(head(200, fields));
      const next = (at: number): void => {
        if (at === bytes.length) socket.end();
        else socket.write(bytes.subarray(at, at + 1), () => setImmediate(next, at + 1));
      };
      next(0);
    },
  },
  ...(['close', 'reset', 'stall'] as const).flatMap((end): Row[] => [
    { name: `${end} after headers`, ...UNSERVED, script: broken(end, nothing) },
    { name: `${end} in the middle`, ...BROKEN, script: broken(end, half) },
  ]),
  { name: 'an end too early', ...BROKEN, script: broken('close', half, LAST_CHUNK) },
  ...[400, 413].map((status): Row => ({ name: `status ${status}`, ...REJECTED, script: error(status) })),
  ...[401, 403, 404, 429, 500, 503, 529].map((status): Row => ({
    name: `status ${status}`,
    ...UNSERVED,
    script: error(status),
  })),
  { name: 'status 429 with a wait', ...UNSERVED, script: error(429, { 'retry-after': '20' }) },
  { name: 'a status without a body', ...UNSERVED, script: reply(500, () => '') },
  {
    name: 'a status with HTML',
    ...UNSERVED,
    script: reply(502, () => '<html>bad gateway</html>', { 'content-type': 'text/html' }),
  },
  { name: 'redirect', ...UNSERVED, script: reply(302, () => '', { location: '/followed' }) },
  {
    name: 'an error first',
    ...UNSERVED,
    script: reply(200, ({ dialect }, stream) => {
      const forms = ERROR_FORMS.get(dialect)!;
      return stream ? forms.frame(503, TOLD) : forms.body(503, TOLD);
    }),
  },
  {
    name: 'an error in the middle',
    whole: undefined,
    stream: ['cut', 'cut'],
    script: (form) => (socket, _, reached) => {
      const bytes = bodyOf(form, true);
      const middle = Math.floor(bytes.length / 2);
      // Whole events, half of them.
      let end = 0;
      if (form.provider === 'bedrock') while (end < middle) end += bytes.readUInt32BE(end);
      else
        end =
          /\n\r?\n/.exec(bytes.toString('latin1', middle))!.index +
          middle +
          (form.dialect === GEMINI ? 3 : 2);
      const frame = ERROR_FORMS.get(form.dialect)!.frame(503, told(form));
      const fields = { 'content-type': form.dialect.streamType, connection: 'close' };
      // In one piece with it, nothing would have gone out before the error.
      sendOnceReached(reached, socket, [head(200, fields), bytes.subarray(0, end)], [frame], 'close');
    },
  },
  { name: 'no body', ...UNSERVED, script: reply(200, () => '') },
  { name: 'HTML', ...UNSERVED, script: reply(200, () => '<html></html>') },
  {
    name: 'an empty object',
    ...UNSERVED,
    script: reply(200, (_, stream) => (stream ? 'data: {}\n\n' : '{}')),
  },
  { name: 'an array', ...UNSERVED, script: reply(200, (_, stream) => (stream ? 'data: []\n\n' : '[]')) },
  {
    name: 'broken JSON',
    ...UNSERVED,
    script: reply(200, (_, stream) => (stream ? 'data: {"type":\n\n' : '{"type":')),
  },
  {
    name: 'gzip',
    ...UNSERVED,
    script: reply(200, (form, stream) => gzipSync(bodyOf(form, stream)), { 'content-encoding': 'gzip' }),
  },
  {
    name: 'no usage',
    ...COUNTED,
    script: reply(200, (form, stream) => bodyOf(form, stream, { usage: {} })),
  },
  {
    name: 'mad usage',
    ...COUNTED,
    script: reply(200, (form, stream) => {
      const { usage } = answerOf(form);
      const mad = Object.fromEntries(Object.keys(usage).map((name) => [name, 10 ** 15]));
      return bodyOf(form, stream, { usage: mad });
    }),
  },
];

interface Cell extends FaultCell<Row, Ending> {
  readonly id: string;
}

const slugsOf = (...names: string[]): string => slugOf(names.join(' '));
const TARGETS = PROVIDER_MODELS.flatMap((model): { model: ProviderModel; form: Form }[] => {
  const form = FORMS.find((one) => one.provider === model.provider && one.model === model.model);
  return form === undefined ? [] : [{ model, form }];
});

const cellsAt = ({ id }: ProviderModel): Cell[] =>
  cellsOf<Ending, Row>(ROWS).map((cell) => ({
    ...cell,
    id: `${slugsOf(id, cell.row.name)}-${cell.upstreams}`,
  }));

function checkAnswer(t: Test, answer: Answer, { stream, ending }: Cell, name: string): void {
  t.notMatch(answer.body + JSON.stringify(answer.headers), SECRET, name);
  t.notMatch(answer.body, /arn:aws|123456789012/, name);
  if (ending === 'down') {
    const message = checkError(t, answer, 'provider_unavailable', name);
    t.notMatch(message, /127\.0\.0\.1|ECONN/, `${name}: no address`);
    return;
  }
  if (ending === 'caller') {
    t.match(checkError(t, answer, 'invalid_parameters', name), TOLD, name);
    return;
  }
  const expected =
    ending === 'other' ? /^w0 / : ending === 'cut' ? /^Hello/ : /^Hello, how can I help you today\?$/;
  checkServed(t, answer, { stream, isCut: ending === 'cut', expected }, name);
}

async function checkCell(t: Test, gateway: Gateway, server: FaultServer, cell: Cell): Promise<void> {
  const { id, stream, ending } = cell;
  const name = `${id}, ${stream ? 'stream' : 'whole'}`;
  const customer = await gateway.admin.customer({ credit: CREDIT });
  const answer = await gateway.request(customer.key, {
    body: { model: id, messages: [{ role: 'user', content: 'Hello' }], stream },
    onBegun: stream ? () => server.reach(id) : undefined,
  });
  checkAnswer(t, answer, cell, name);
  const account = await settledAccount(gateway, customer.accountId, name);
  const bill = BILLS[ending];
  if (bill !== undefined) t.equal(account.spent, decimalOf(bill), `${name}: bill`);
  else {
    const spent = picoUnitsOf(account.spent)!;
    t.ok(spent > 0n && spent < 100_000_000n, `${name}: ${account.spent}`);
  }
}

void t.test('fault matrix over providers', async (t) => {
  const mock = await startMock(t, ['--prompt-tokens', '11', '--completion-tokens', '5']);
  const server = new FaultServer(t);
  const scripts = TARGETS.flatMap(({ model, form }) =>
    ROWS.flatMap(({ name, script }) =>
      [1, 2].map((count): [string, FaultScript] => [`${slugsOf(model.id, name)}-${count}`, script(form)]),
    ),
  );
  const port = await server.scripted(new Map(scripts));
  const healthy = { url: mock.url, priority: 2 };
  const models = TARGETS.flatMap(({ model }) =>
    ROWS.flatMap(({ name }) => {
      const slug = slugsOf(model.id, name);
      return [1, 2].map((count) => {
        const id = `${slug}-${count}`;
        const { upstreams } = modelAt(model, `http://127.0.0.1:${port}/${id}`, {
          ...FAULT_TIMEOUTS,
          breaker_failures: 0,
        }) as { upstreams: object[] };
        return {
          id,
          price: TEST_PRICE,
          max_output_tokens: 1_000,
          upstreams: count === 1 ? upstreams : [...upstreams, healthy],
        };
      });
    }),
  );
  const gateway = await startGateway(t, {
    config: {
      models,
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
    },
    env: PROVIDER_ENV,
  });
  for (const { model } of TARGETS)
    await t.test(model.id, async (t) => {
      await checkCells(t, cellsAt(model), (cell) => checkCell(t, gateway, server, cell));
    });

  await t.test('nothing stays behind', async (t) => {
    await checkNothingStays(t, gateway, server, SECRET);
  });
  t.equal(await gateway.stop(), 0);
});
