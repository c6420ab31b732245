/** Why chat completions of different servers have ended, and what the doors make of it. */
import t from 'tap';
import type { Dialect, DoorCall } from '#src/doors/door.js';
import { finishReasonAfter, isCutBy } from '#src/doors/finish-reason.js';
import { MESSAGES_DIALECT } from '#src/doors/messages/messages-dialect.js';
import { RESPONSES_DIALECT } from '#src/doors/responses/responses-dialect.js';

type Members = Record<string, unknown>;

const CALL: DoorCall = { requestId: 'req_a-1', model: 'm', stream: true, body: {}, nowMs: 0 };
/** By the reasons of the chunks of one stream. */
const ENDS: readonly (readonly [reasons: readonly unknown[], messages: string, responses: string])[] = [
  [[null, 'stop'], 'end_turn', 'completed'],
  [[null], 'end_turn', 'completed'],
  [[null, 'length'], 'max_tokens', 'incomplete'],
  [[null, 'model_length'], 'max_tokens', 'incomplete'],
  [[null, 'insufficient_system_resource'], 'max_tokens', 'incomplete'],
  [[null, 'error'], 'max_tokens', 'incomplete'],
  [[null, 'abort'], 'max_tokens', 'incomplete'],
  [[null, 'repetition'], 'max_tokens', 'incomplete'],
  [[null, 'content_filter'], 'refusal', 'incomplete'],
  [[undefined, 'length', null], 'max_tokens', 'incomplete'],
  [['', 'length', ''], 'max_tokens', 'incomplete'],
  [['', 'stop', ''], 'end_turn', 'completed'],
];

/** The events of a stream, parsed. */
const eventsOf = (text: string): Members[] =>
  [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!) as Members);

void t.test('a response that was cut is no whole one, at either door, streamed or not', (t) => {
  for (const [reasons, stopReason, status] of ENDS) {
    const title = reasons.map(String).join();
    const chunks = reasons.map((reason) => ({
      choices: [{ index: 0, delta: { content: 'a' }, finish_reason: reason }],
    }));
    const streamOf = ({ translator }: Dialect): Members[] => {
      const stream = translator!.openStream(CALL);
      return eventsOf(chunks.map((chunk) => stream.push(chunk)).join('') + stream.end());
    };
    t.match(streamOf(MESSAGES_DIALECT).at(-2), { delta: { stop_reason: stopReason } }, title);
    t.match(streamOf(RESPONSES_DIALECT).at(-1), { type: `response.${status}`, response: { status } }, title);
    const reason = reasons.findLast((one) => one !== '' && one !== null && one !== undefined) ?? null;
    const whole = { choices: [{ index: 0, message: { content: 'a' }, finish_reason: reason }] };
    const call = { ...CALL, stream: false };
    t.match(
      JSON.parse(MESSAGES_DIALECT.translator!.fromChat(whole, call)),
      { stop_reason: stopReason },
      title,
    );
    t.match(JSON.parse(RESPONSES_DIALECT.translator!.fromChat(whole, call)), { status }, title);
  }
  t.end();
});

void t.test('a reason stays until another one comes', (t) => {
  t.equal(finishReasonAfter({}, undefined), undefined);
  t.equal(finishReasonAfter({ finish_reason: '' }, undefined), undefined);
  for (const none of ['', null, undefined])
    t.equal(finishReasonAfter({ finish_reason: none }, 'length'), 'length');
  t.equal(finishReasonAfter({ finish_reason: 'stop' }, 'tool_calls'), 'stop');
  for (const whole of ['stop', 'tool_calls', '', null, undefined, 'constructor']) t.notOk(isCutBy(whole));
  t.end();
});
