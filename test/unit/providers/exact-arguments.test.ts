/** Arguments of tools keep the digits of long integers, to each provider and back. */
import t from 'tap';
import { FieldError } from '#src/providers/provider.js';
import { PROVIDERS } from '#src/providers/providers.js';
import { joinedChat } from '../../support/chat-joiner.js';
import { callOf, FORMS, requestOf } from '../../support/provider-forms.js';
import { chunksOf } from '../../support/sse.js';

const ARGS = '{"id":12345678901234567890,"ids":[-9007199254740993,1]}';
/** Stands for the integers until the text is made: a number would lose their digits here already. */
const PLACES = { id: '@12345678901234567890@', ids: ['@-9007199254740993@', 1] };
const filled = (text: string): string => text.replace(/\\*"@(-?\d+)@\\*"/g, '$1');

const REQUEST = {
  messages: [
    { role: 'user', content: 'Find it' },
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'find', arguments: ARGS } }],
    },
    { role: 'tool', tool_call_id: 'call_1', content: '{"found":98765432109876543210}' },
  ],
  tools: [{ type: 'function', function: { name: 'find', parameters: { type: 'object' } } }],
};

for (const form of FORMS) {
  const { name, provider, dialect } = form;
  void t.test(name, (t) => {
    const translator = PROVIDERS[provider]!;
    const { body } = translator.write(callOf(form, REQUEST));
    t.match(body, new RegExp(`:${ARGS.replace(/[[\]]/g, '\\$&')}`), 'in the request');
    t.match(body, /[: "]98765432109876543210[,} "\\]/, 'and in a result');

    const answer = {
      name: 'a tool',
      blocks: [{ kind: 'tool', id: 'toolu_01A', name: 'find', args: PLACES } as const],
      stop: dialect.stops[2],
      usage: Object.values(dialect.usages)[0]!,
    };
    const argsIn = (message: unknown): string =>
      (message as { tool_calls: [{ function: { arguments: string } }] }).tool_calls[0].function.arguments;
    const whole = translator.readResponse(
      Buffer.from(filled(JSON.stringify(dialect.whole(answer)))),
      callOf(form, REQUEST),
    );
    const { choices } = JSON.parse(whole.text) as { choices: [{ message: unknown }] };
    t.equal(argsIn(choices[0].message), ARGS, 'in a whole answer');
    // Where a stream brings arguments as text in pieces, they are never parsed.
    if (dialect.streamType !== 'text/event-stream' || name.includes('Claude') || provider === 'anthropic') {
      t.end();
      return;
    }
    const stream = translator.openStream(callOf(form, { ...REQUEST, stream: true }));
    const events = stream.push(Buffer.from(filled(dialect.stream(answer).toString()))) + stream.end();
    t.equal(argsIn(joinedChat(chunksOf(events)).message), ARGS, 'in a stream');
    t.end();
  });
}

void t.test('arguments that are nested too deeply to be written are the request’s fault', (t) => {
  const levels = 200_000;
  const deep = `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`;
  const [asked, called, result] = REQUEST.messages;
  const toolCall = { ...called!.tool_calls![0]!, function: { name: 'find', arguments: deep } };
  const messages = [asked, { ...called, tool_calls: [toolCall] }, result];
  for (const form of FORMS)
    t.throws(
      () => requestOf(PROVIDERS[form.provider]!, callOf(form, { ...REQUEST, messages })),
      new FieldError('messages[1].tool_calls[0].function.arguments', 'must be nested at most 64 levels deep'),
      form.name,
    );
  t.end();
});
