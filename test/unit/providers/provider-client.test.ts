/** Calls through a provider's protocol: cuts, pauses, errors, and requests that cannot be said in it. */
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { UPSTREAM_MESSAGE_CHARS_MAX, WHOLE_RESPONSES_BYTES_MAX } from '#src/core/limits.js';
import type { ProviderName } from '#src/core/provider-names.js';
import { ChunkWriter, completionOf } from '#src/providers/chat-writer.js';
import type { HttpHandler } from '#src/http1/http-client.js';
import {
  FieldError,
  ProviderError,
  type Credential,
  type Credentials,
  type Provider,
  type ProviderCall,
  type ProviderSettings,
} from '#src/providers/provider.js';
import { ProviderClient } from '#src/providers/provider-client.js';
import { TranslatedCall } from '#src/providers/translated-call.js';
import { connectionFailure } from '#src/upstream/error-mapping.js';
import type { UpstreamTarget } from '#src/upstream/target.js';
import { answerOf, FakeDownstream, USAGE, type Script } from '../../fixtures/upstream-server.js';
import { answering, failing, turn, world, type World } from '../../fixtures/upstream-world.js';
import { eventually } from '../../support/gateway.js';

/**
 * A protocol of lines: `+text` is text, `!529 7` an error that asks for a wait of 7 seconds, `?` a line that
 * is not understood.
 */
const LINES: Provider = {
  write({ body, model }) {
    if ('seed' in body) throw new FieldError('seed', 'is not supported by Lines');
    if ('bug' in body) throw new TypeError('a defect');
    return { path: `/lines/${model}`, body: JSON.stringify(body) };
  },
  headers({ body, credential }) {
    if ('unsigned' in body) throw new Error('no signature');
    return ['x-lines-key', credential?.kind === 'key' ? credential.key : ''];
  },
  readResponse(body, call) {
    const content = textOfLines(body.toString());
    return completionOf({
      id: 'lines-1',
      created: 1,
      model: call.model,
      choices: [{ index: 0, message: { role: 'assistant', content }, finishReason: 'stop' }],
      usage: undefined,
    });
  },
  openStream(call) {
    const chunks = new ChunkWriter('lines-1', call.model, 1);
    let rest = '';
    return {
      push(bytes) {
        const lines = (rest + Buffer.from(bytes).toString()).split('\n');
        rest = lines.pop()!;
        return lines.map((line) => chunks.text(textOfLines(`${line}\n`))).join('');
      },
      end() {
        if (rest !== '') throw ProviderError.invalid('half a line');
        return chunks.finish('stop') + chunks.done();
      },
    };
  },
  readError: (status, _header, body) => {
    if (body === 'bug') throw new TypeError('a defect');
    return { status: status === 418 ? 400 : status, message: body };
  },
};

function textOfLines(text: string): string {
  return text.replace(/^(.)(.*)\n/gm, (_line, mark: string, said: string) => {
    if (mark === '+') return said;
    if (mark !== '!') throw mark === '?' ? new TypeError('a defect') : ProviderError.invalid('an odd line');
    const [status, seconds] = said.split(' ');
    throw new ProviderError({
      status: Number(status),
      message: 'secret words',
      retryAfterSeconds: seconds === undefined ? undefined : Number(seconds),
    });
  });
}

const settings = (name: ProviderName): ProviderSettings => ({
  name,
  basePath: '',
  host: 'h',
  apiVersion: '1',
  betas: [],
  region: '',
  project: '',
  dropUnsupported: false,
  outputTokensMax: 100,
  credential: undefined,
});
const SPEAKS_LINES = { provider: settings('anthropic') };

const lines = (
  test: Test,
  scripts: readonly (Script | Partial<UpstreamTarget>)[],
  changes: Partial<UpstreamTarget> = SPEAKS_LINES,
): Promise<World> => world(test, scripts, undefined, changes, undefined, { anthropic: LINES });
const bodyWith = (members: object): { body: string } => ({
  body: JSON.stringify({ model: 'm', messages: [], ...members }),
});
const STREAMED = { stream: true, ...bodyWith({ stream: true }) };

void t.test('whole and streamed, with the path and headers of the provider', async (t) => {
  const { run, upstreams } = await lines(t, [answering('+hello\n+ you\n', 'text/plain')]);
  t.match(JSON.parse((await run()).text), { choices: [{ message: { content: 'hello you' } }] });
  const [request] = upstreams[0]!.requests;
  t.equal(request!.path, '/lines/m');
  t.equal(request!.headers['x-lines-key'], 'sk-provider-secret');
  t.equal(request!.headers.authorization, undefined);
  const streamed = await run(STREAMED);
  t.match(streamed.text, /"hello".*" you".*"stop".*\[DONE\]/s);
});

void t.test('a stream may be cut anywhere', async (t) => {
  const text = '+hello\n+ you\n';
  const { run } = await lines(t, [
    async (_request, response) => {
      response.writeHead(200);
      for (const byte of text) {
        response.write(byte);
        await turn();
      }
      response.end();
    },
  ]);
  t.match((await run(STREAMED)).text, /"hello".*" you".*"stop".*\[DONE\]/s);
});

void t.test('a stream of which nothing is translated has failed', async (t) => {
  const silent: Provider = { ...LINES, openStream: () => ({ push: () => '', end: () => '' }) };
  const { run } = await world(t, [answering('', 'text/plain')], undefined, SPEAKS_LINES, undefined, {
    anthropic: silent,
  });
  t.match((await run(STREAMED)).error, { code: 'provider_unavailable' });
});

void t.test('an error inside a response: before its first byte another upstream is asked', async (t) => {
  const good = answering('+good\n', 'text/plain');
  for (const first of ['!529 7\n', '?\n', 'x\n', '+cut']) {
    const { run, log } = await lines(t, [answering(first, 'text/plain'), good]);
    t.match((await run(STREAMED)).text, /"good"/, first);
    if (first !== '+cut') t.match((await run()).text, /"good"/, `${first} whole`);
    t.notMatch(JSON.stringify(log.lines), /secret words/);
  }
  const alone = await lines(t, [answering('!529 7\n', 'text/plain')]);
  t.match((await alone.run(STREAMED)).error, { code: 'provider_unavailable', retryAfterSeconds: 7 });
});

void t.test('an error inside a response: after the first byte the call ends', async (t) => {
  for (const later of ['!529\n', '?\n', 'x\n']) {
    const { run, upstreams } = await lines(t, [
      async (_request, response) => {
        response.writeHead(200);
        response.write('+hello\n');
        await sleep(20);
        response.end(later);
      },
      answering('+good\n', 'text/plain'),
    ]);
    const { text, error } = await run(STREAMED);
    t.match(text, /"hello"/);
    t.equal(error?.code, 'provider_unavailable', later);
    t.equal(upstreams[1]!.requests.length, 0);
  }
});

void t.test('failures have their kinds', (t) => {
  const kindOf = (code: string, status?: number): string =>
    connectionFailure({
      code,
      message: '',
      repeatable: false,
      ...(status !== undefined && { reported: { status, retryAfterSeconds: undefined } }),
    }).kind;
  t.equal(kindOf('ERROR_IN_RESPONSE', 529), 'status');
  t.equal(kindOf('ERROR_IN_RESPONSE', 429), 'rate_limited');
  t.equal(kindOf('ERROR_IN_RESPONSE', 401), 'credentials');
  t.equal(kindOf('RESPONSE_INVALID'), 'invalid_answer');
  t.equal(kindOf('FIELD_UNSUPPORTED'), 'rejected');
  t.equal(kindOf('NO_CREDENTIAL'), 'credentials');
  t.end();
});

void t.test('what one upstream cannot say, another may', async (t) => {
  const good = answering(answerOf(USAGE));
  const request = bodyWith({ seed: 1 });
  const both = await lines(t, [{ origin: 'http://127.0.0.1:1' }, good], {});
  t.equal((await both.run(request)).error, undefined, 'without translation as today');

  const speaks = { origin: 'http://127.0.0.1:1', ...SPEAKS_LINES };
  const mixed = await lines(t, [speaks, good], {});
  const { text } = await mixed.run(request);
  t.match(text, /hi there/);
  t.equal(mixed.log.lines.length, 0, 'it is no failure of the upstream');

  const none = await lines(t, [speaks, speaks], {});
  t.strictSame((await none.run(request)).error, {
    code: 'invalid_parameters',
    message: 'seed is not supported by Lines',
  });

  const down = await lines(t, [speaks, failing(503)], {});
  t.equal((await down.run(request)).error?.code, 'provider_unavailable', 'the other one was down');
  const downFirst = await lines(t, [failing(503), speaks], {});
  t.equal((await downFirst.run(request)).error?.code, 'provider_unavailable');
});

void t.test('a defect of a translator is an error of this call alone', async (t) => {
  const { run } = await lines(t, [answering('+good\n', 'text/plain')]);
  t.equal((await run(bodyWith({ bug: 1 }))).error?.code, 'provider_unavailable');
  t.match((await run()).text, /good/);
  // Thrown into the socket's callback, it would end the thread.
  for (const status of [400, 418, 503]) {
    const failing = await lines(t, [answering('bug', 'text/plain', status)]);
    const { error } = await failing.run();
    t.equal(error?.code, 'provider_unavailable', `an error with status ${status}`);
    t.notMatch(error?.message, /defect/);
  }
});

void t.test('statuses: the provider says what they mean, but pages and redirects pass', async (t) => {
  const asked = async (script: Script) => {
    const { run, log } = await lines(t, [script]);
    return { error: (await run()).error, line: log.lines.at(-1) };
  };
  t.strictSame((await asked(answering('no sk-provider-secret', 'text/plain', 418))).error, {
    code: 'invalid_parameters',
    message: 'no ***',
  });
  const busy = await asked(answering('later', 'text/plain', 503, { 'retry-after': '9' }));
  t.equal(busy.error?.retryAfterSeconds, 9, "the header's, if the provider's body says nothing");
  const nothing = await asked(answering('later', 'text/plain', 503, { 'retry-after': '' }));
  t.equal(nothing.error?.retryAfterSeconds, undefined, 'an empty header asks for no wait');
  const page = await asked(answering('<html>', 'text/html'));
  t.match(page.line?.message, /no chat interface at its address/);
  const moved = await asked(answering('', 'text/plain', 302));
  t.match(moved.line?.message, /no chat interface at its address/);
  const cut = await asked((_request, response) => {
    response.writeHead(418, { 'content-length': '99' });
    response.write('half', () => setTimeout(() => response.destroy(), 20));
  });
  t.strictSame(cut.error, { code: 'invalid_parameters', message: 'half' }, 'a cut error');
});

void t.test('of a long message only what a caller may get is cleaned', (t) => {
  const cleaned: string[] = [];
  const told: string[] = [];
  const credentials: Credentials = {
    credentialAt: () => undefined,
    rejected: () => undefined,
    withoutSecrets: (_credential, text) => (cleaned.push(text), 'clean'),
  };
  const bearer = { kind: 'bearer', token: 'ya29.token-0123456789' } as const;
  const call: ProviderCall = {
    ...{ settings: settings('anthropic'), body: {}, stream: false, requestId: 'r', nowMs: 0, model: 'm' },
    credential: bearer,
  };
  const handler: HttpHandler = {
    onStart: (status) => told.push(`start ${status}`),
    onData: (chunk) => told.push(Buffer.from(chunk).toString()),
    onEnd: () => told.push('end'),
    onError: ({ code }) => told.push(code),
  };
  const translated = new TranslatedCall(LINES, LINES, call, credentials, handler);
  translated.onStart(400, () => undefined);
  translated.onData(Buffer.from(`  ${'YWJjZGVmZ2hpag '.repeat(4_000)}`));
  translated.onEnd();
  t.same(
    cleaned.map(({ length }) => length),
    [UPSTREAM_MESSAGE_CHARS_MAX],
  );
  t.match(told, ['start 400', /"message":"clean"/, 'end']);
  t.end();
});

void t.test(
  'a call to Azure with a token of Entra: successes pass, errors are held back and cleaned',
  (t) => {
    const ENTRA: Credential = { kind: 'bearer', token: 'eyJ-secret' };
    let current: Credential | undefined = ENTRA;
    const run = (status: number, chunks: readonly string[], end: (to: HttpHandler) => void): unknown => {
      const told: string[] = [];
      const credentials: Credentials = {
        credentialAt: () => current,
        rejected: (position) => void told.push(`rejected ${position}`),
        withoutSecrets: (_credential, text) => text.replaceAll('eyJ-secret', '…'),
      };
      const ofHttp: { handler?: HttpHandler } = {};
      const http = {
        start(
          _target: unknown,
          _body: unknown,
          _id: string,
          to: HttpHandler,
          headers: string[],
          path: string,
        ) {
          ofHttp.handler = to;
          told.push(`${path} ${headers.join(' ')}`);
          return { abort: () => void told.push('abort') };
        },
      };
      const client = new ProviderClient(http as never, new SystemClock(), credentials, {});
      client.start(
        { provider: { ...settings('azure'), credential: 3 }, model: 'm' } as never,
        '{"stream":true}',
        'r',
        {
          onStart: (given) => void told.push(`start ${given}`),
          onData: (chunk) => void told.push(Buffer.from(chunk).toString()),
          onEnd: () => void told.push('end'),
          onError: ({ code }) => void told.push(code),
        },
        ['traceparent', 't'],
        '/openai',
      );
      const { handler } = ofHttp;
      if (handler === undefined) return told;
      handler.onStart(status, () => undefined);
      for (const chunk of chunks) handler.onData(Buffer.from(chunk));
      end(handler);
      return told.slice(1);
    };
    const ends = (to: HttpHandler): void => to.onEnd();
    const breaks = (to: HttpHandler): void => to.onError({ code: 'RESET', message: '', repeatable: false });
    const error = (message: string): string =>
      `{"error":{"message":"${message}","type":"provider_error","code":null}}`;
    t.same(run(200, ['a', 'eyJ-secret'], ends), ['start 200', 'a', 'eyJ-secret', 'end']);
    t.same(run(200, ['a'], breaks), ['start 200', 'a', 'RESET']);
    const cut = ['{"error":{"message":"no eyJ-', 'secret here"}}'];
    t.same(run(401, cut, ends), ['rejected 3', 'start 401', error('no … here'), 'end']);
    t.same(
      run(403, cut, ends),
      ['start 403', error('no … here'), 'end'],
      'a 403 says nothing of the credential',
    );
    t.same(run(400, cut, breaks), ['start 400', error('no … here'), 'end'], 'what has come says more');
    t.same(
      run(500, ['x'.repeat(64 * 1024), 'x'], () => undefined),
      ['abort', 'start 500', 'end'],
    );
    t.same(run(404, [], ends), ['start 404', 'end'], 'no error, so it counts against the breaker');
    t.same(run(404, ['{"error":{"code":"x"}}'], ends), [
      'start 404',
      '{"error":{"message":"","type":"provider_error","code":"x"}}',
      'end',
    ]);
    current = undefined;
    t.same(run(200, [], ends), [], 'nothing is sent without a credential');
    t.end();
  },
);

void t.test('a request that cannot be signed is never sent', async (t) => {
  const { call, upstreams } = await lines(t, [answering('+good\n', 'text/plain')]);
  const { downstream } = call(bodyWith({ unsigned: 1 }));
  await downstream.ended;
  t.equal(downstream.error?.code, 'provider_unavailable');
  t.equal(upstreams[0]!.requests.length, 0);
});

void t.test('a slow reader holds the provider back', async (t) => {
  let sentBytes = 0;
  let open = true;
  const { call } = await lines(t, [
    (_request, response) => {
      response.writeHead(200);
      const line = `+${'x'.repeat(65_000)}\n`;
      const write = (): void => {
        for (let isTaken = true; open && isTaken; sentBytes += line.length) isTaken = response.write(line);
        if (open) response.once('drain', write);
      };
      response.on('close', () => (open = false));
      write();
    },
  ]);
  const downstream = new FakeDownstream();
  downstream.open = false;
  const { session } = call(STREAMED, downstream);
  // A provider that is not held back sends on, and this never ends.
  await eventually('no more is sent', async () => {
    const sentSoFar = sentBytes;
    await sleep(200);
    return sentBytes > 0 && sentBytes === sentSoFar ? true : undefined;
  });
  const cameBytes = (): number => downstream.pieces.reduce((sum, piece) => sum + piece.length, 0);
  const heldBytes = cameBytes();
  t.ok(heldBytes < 1024 * 1024, `${heldBytes} bytes came`);
  downstream.open = true;
  session.onCredit();
  await eventually('the rest', () => (cameBytes() > heldBytes ? true : undefined));
  session.onCancel();
  await downstream.ended;
});

void t.test('whole responses count in the budget while they are kept', async (t) => {
  const line = `+${'x'.repeat(999_998)}\n`;
  const lineCount = 15;
  let open = 0;
  const { call, run } = await lines(t, [
    (request, response) => {
      response.writeHead(200);
      if (request.url === '/lines/m' && open < 100) {
        open++;
        // Kept without an end.
        response.write(line.repeat(lineCount));
      } else response.end('+good\n');
    },
  ]);
  const callCount = Math.ceil(WHOLE_RESPONSES_BYTES_MAX / (line.length * lineCount)) + 1;
  const calls = Array.from({ length: callCount }, () => call());
  await Promise.race(calls.map(({ downstream }) => downstream.ended));
  const rejected = calls.filter(({ downstream }) => downstream.error?.code === 'overloaded');
  t.ok(rejected.length >= 1, 'a response found no room');
  for (const { session } of calls) session.onCancel();
  await Promise.all(calls.map(({ downstream }) => downstream.ended));
  open = 100;
  t.match((await run()).text, /good/, 'and all room is given back');
});

void t.test('a response that is too long is not kept', async (t) => {
  const { run } = await lines(t, [
    (_request, response) => {
      response.writeHead(200);
      const write = (): void => {
        while (response.write(`+${'x'.repeat(99_998)}\n`));
        response.once('drain', write);
      };
      write();
    },
  ]);
  const { error } = await run();
  t.equal(error?.code, 'provider_unavailable');
});
