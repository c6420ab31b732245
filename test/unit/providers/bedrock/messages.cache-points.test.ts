/**
 * Where cache points of Converse may stand. Bedrock answers 400 to one that has no block before it in its
 * message ("There is nothing available to cache"), to one right after reasoning ("Cache point cannot be
 * inserted after reasoning block"), and to one right after a document that is no PDF
 * (strands-agents/harness-sdk 1966, 3677; anomalyco/opencode 36517). A second one at the same place uses up
 * one of the four that a request may have.
 */
import t from 'tap';
import { bodyOf } from '#src/providers/bedrock/request.js';
import { bedrockCall } from '../../../support/bedrock.js';

type Members = Record<string, unknown>;
const MARK = { cache_control: { type: 'ephemeral' } };
const HOUR = { cache_control: { type: 'ephemeral', ttl: '1h' } };
const POINT = { cachePoint: { type: 'default' } };
const HOUR_POINT = { cachePoint: { type: 'default', ttl: '1h' } };
const ASK = { role: 'user', content: 'go' };
const CALL = { id: 'c1', type: 'function', function: { name: 'f', arguments: '{}' } };
const USE = { toolUse: { toolUseId: 'c1', name: 'f', input: {} } };
const TOOLS = [{ type: 'function', function: { name: 'f' } }];
const THOUGHT = { type: 'thinking', thinking: 'hm', signature: 'c2ln' };
const REASONING = { reasoningContent: { reasoningText: { text: 'hm', signature: 'c2ln' } } };

function written(messages: unknown[], body: Members = {}): { role: string; content: Members[] }[] {
  const text = bodyOf(bedrockCall({ messages, tools: TOOLS, ...body }));
  return (JSON.parse(text) as { messages: { role: string; content: Members[] }[] }).messages;
}

const KINDS = ['text', 'blank', 'pdf', 'md'] as const;
type Kind = (typeof KINDS)[number];

function part(kind: Kind, marked: boolean): Members {
  const mark = marked ? MARK : {};
  if (kind === 'text' || kind === 'blank')
    return { type: 'text', text: kind === 'text' ? 'a' : ' ', ...mark };
  const file_data = `data:${kind === 'pdf' ? 'application/pdf' : 'text/markdown'};base64,AAAA`;
  return { type: 'file', file: { file_data }, ...mark };
}

/** Whether Bedrock takes a cache point right after the block. */
function mayBeMarked(block: Members): boolean {
  const { document } = block as { document?: { format: string } };
  return !('cachePoint' in block || 'reasoningContent' in block) && (document?.format ?? 'pdf') === 'pdf';
}

/** All lists of up to three parts, each with a mark or without. */
function* partLists(): Generator<[Kind, boolean][]> {
  const parts = KINDS.flatMap((kind): [Kind, boolean][] => [
    [kind, false],
    [kind, true],
  ]);
  let lists: [Kind, boolean][][] = [[]];
  for (let length = 1; length <= 3; length++) {
    lists = lists.flatMap((list) => parts.map((part) => [...list, part]));
    yield* lists;
  }
}

void t.test(
  'each cache point is after a block that Bedrock caches, and there is one where one is asked for',
  (t) => {
    let count = 0;
    const faults: unknown[] = [];
    for (const list of partLists()) {
      const content = list.map(([kind, marked]) => part(kind, marked));
      const isBlank = list.every(([kind]) => kind === 'blank');
      for (const [messageMark, bodyMark] of [
        [{}, {}],
        [MARK, {}],
        [{}, MARK],
        [MARK, MARK],
      ] as const) {
        const user = [{ role: 'user', content, ...messageMark }];
        const others: unknown[][] = [
          [ASK, { role: 'assistant', content, ...messageMark }, ASK],
          [ASK, { role: 'assistant', content, thinking_blocks: [THOUGHT], ...messageMark }, ASK],
          [ASK, { role: 'assistant', content: 'x' }, { role: 'system', content, ...messageMark }, ASK],
          [
            ASK,
            { role: 'assistant', tool_calls: [CALL] },
            { role: 'tool', tool_call_id: 'c1', content, ...messageMark },
          ],
        ];
        // A user's message must not be blank. The others are tried with up to two parts, which saves seconds.
        const conversations = [...(isBlank ? [] : [user]), ...(list.length < 3 ? others : [])];
        for (const messages of conversations) {
          const turns = written(messages, bodyMark);
          for (const { content: blocks } of turns)
            blocks.forEach((block, index) => {
              if (!('cachePoint' in block)) return;
              if (index === 0 || !mayBeMarked(blocks[index - 1]!))
                faults.push({ misplaced: index, messages, bodyMark, blocks });
            });
          const endsCacheable = (end: number): boolean => {
            const sent = list.slice(0, end).filter(([kind]) => kind !== 'blank');
            return sent.length > 0 && sent.at(-1)![0] !== 'md';
          };
          const isAsked =
            list.some(([, marked], index) => marked && endsCacheable(index + 1)) ||
            (endsCacheable(list.length) && (messageMark === MARK || bodyMark === MARK));
          const points = turns
            .flatMap(({ content: blocks }) => blocks)
            .filter((block) => 'cachePoint' in block);
          if (messages === user && isAsked !== points.length > 0)
            faults.push({ isAsked, messages, bodyMark, turns });
          count++;
        }
      }
    }
    t.ok(count > 3_000, `${count} conversations`);
    t.equal(faults.length, 0, JSON.stringify(faults[0]));
    t.end();
  },
);

void t.test(
  'marks of a part, its message and the request at one place are one cache point, the last',
  (t) => {
    const text = { type: 'text', text: 'a' };
    t.same(written([{ role: 'user', content: [{ ...text, ...MARK }], ...HOUR }])[0]!.content, [
      { text: 'a' },
      HOUR_POINT,
    ]);
    t.same(written([{ role: 'user', content: [{ ...text, ...HOUR }], ...HOUR }], MARK)[0]!.content, [
      { text: 'a' },
      POINT,
    ]);
    const result = { role: 'tool', tool_call_id: 'c1', content: [{ ...text, ...MARK }], ...MARK };
    t.same(written([ASK, { role: 'assistant', tool_calls: [CALL] }, result], MARK)[2]!.content, [
      { toolResult: { toolUseId: 'c1', content: [{ text: 'a' }] } },
      POINT,
    ]);
    t.end();
  },
);

void t.test('thinking alone has no cache point, and a call after it has one', (t) => {
  const turn = { role: 'assistant', content: null, thinking_blocks: [THOUGHT], ...MARK };
  t.same(written([ASK, turn, ASK])[1]!.content, [REASONING]);
  t.same(written([ASK, { ...turn, tool_calls: [CALL] }])[1]!.content, [REASONING, USE, POINT]);
  t.same(written([ASK, turn], MARK)[1]!.content, [REASONING]);
  t.end();
});

void t.test('a prefill ends without white space before its cache points too', (t) => {
  for (const [message, body] of [
    [{ content: [{ type: 'text', text: 'so \n', ...MARK }] }, {}],
    [{ content: 'so \n', ...MARK }, {}],
    [{ content: 'so \n' }, MARK],
    [{ content: [{ type: 'text', text: 'so \n', ...MARK }], ...MARK }, MARK],
  ])
    t.same(written([ASK, { role: 'assistant', ...message }], body)[1]!.content, [{ text: 'so' }, POINT]);
  t.end();
});
