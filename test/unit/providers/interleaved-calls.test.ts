/** Calls of several callers through one translator: none sees anything of another. */
import t from 'tap';
import { PROVIDERS } from '#src/providers/providers.js';
import { callOf, FORMS, type Form } from '../../support/provider-forms.js';

const CALLERS = ['anna', 'bert', 'cleo'] as const;

/** A request with texts, a tool and its arguments that name the caller. */
const requestOf = (caller: string, stream: boolean) => ({
  stream,
  messages: [
    { role: 'system', content: `You serve ${caller}` },
    { role: 'user', content: `I am ${caller}, ${caller.repeat(20)}` },
    {
      role: 'assistant',
      content: null,
      tool_calls: [
        {
          id: `call_${caller}`,
          type: 'function',
          function: { name: caller, arguments: `{"who":"${caller}"}` },
        },
      ],
    },
    { role: 'tool', tool_call_id: `call_${caller}`, content: `${caller} was found` },
  ],
  tools: [{ type: 'function', function: { name: caller, parameters: { type: 'object' } } }],
  user: caller,
});

const answerOf = ({ dialect }: Form, caller: string) => ({
  name: caller,
  blocks: [
    { kind: 'text', text: `Hello ${caller}, how are you, ${caller}?` } as const,
    { kind: 'tool', id: `toolu_${caller}`, name: caller, args: { who: caller } } as const,
  ],
  stop: dialect.stops[2],
  usage: Object.values(dialect.usages)[0]!,
});

/** Ids and times that a translator makes anew for each response. */
const withoutMade = (text: string): string =>
  text.replace(/"created":\d+/g, '"created":0').replace(/"(chatcmpl|call)[-_][0-9a-f-]{8,}"/g, '"$1"');

for (const form of FORMS) {
  const translator = PROVIDERS[form.provider]!;
  void t.test(`${form.name}: requests in any order are what each is alone`, (t) => {
    const written = (caller: string, stream: boolean) =>
      translator.write(callOf(form, requestOf(caller, stream)));
    const alone = new Map(CALLERS.map((caller) => [caller, written(caller, false)]));
    for (const caller of [...CALLERS, ...CALLERS.toReversed(), ...CALLERS]) {
      written(caller === 'anna' ? 'bert' : 'anna', true);
      const request = written(caller, false);
      t.same(request, alone.get(caller));
      for (const other of CALLERS)
        if (other !== caller) t.notMatch(request.body, other, `nothing of ${other} is in it`);
    }
    t.end();
  });

  void t.test(`${form.name}: responses in any order are what each is alone`, (t) => {
    const read = (caller: string): string =>
      withoutMade(
        translator.readResponse(
          Buffer.from(JSON.stringify(form.dialect.whole(answerOf(form, caller)))),
          callOf(form, requestOf(caller, false)),
        ).text,
      );
    const alone = new Map(CALLERS.map((caller) => [caller, read(caller)]));
    for (const caller of [...CALLERS, ...CALLERS.toReversed()]) t.equal(read(caller), alone.get(caller));
    t.match(alone.get('anna'), 'Hello anna');
    t.end();
  });

  void t.test(`${form.name}: streams whose chunks alternate are what each is alone`, (t) => {
    const open = (caller: string) => translator.openStream(callOf(form, requestOf(caller, true)));
    const bytes = new Map(CALLERS.map((caller) => [caller, form.dialect.stream(answerOf(form, caller))]));
    const alone = new Map(
      CALLERS.map((caller) => {
        const stream = open(caller);
        return [caller, withoutMade(stream.push(bytes.get(caller)!) + stream.end())];
      }),
    );
    // Chunks that end within events, and of another length for each caller.
    for (const chunkBytes of [1, 7, 64, 1_000]) {
      const streams = CALLERS.map((caller, index) => ({
        caller,
        stream: open(caller),
        left: bytes.get(caller)!,
        chunkBytes: chunkBytes + index,
        text: '',
      }));
      while (streams.some(({ left }) => left.length > 0))
        for (const one of streams) {
          if (one.left.length === 0) continue;
          one.text += one.stream.push(one.left.subarray(0, one.chunkBytes));
          one.left = one.left.subarray(one.chunkBytes);
        }
      for (const one of streams) {
        const text = withoutMade(one.text + one.stream.end());
        t.equal(text, alone.get(one.caller), `${one.caller}, chunks of ${one.chunkBytes} bytes`);
        for (const other of CALLERS)
          if (other !== one.caller) t.notMatch(text, other, `nothing of ${other} is in it`);
      }
    }
    t.end();
  });
}
