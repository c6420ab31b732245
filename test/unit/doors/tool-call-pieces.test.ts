/** Pieces of tool calls: what each says, and which call it belongs to. */
import t from 'tap';
import {
  addPiece,
  beginsOtherToolCall,
  canSendToolCall,
  toolCallPieceOf,
  type ToolCallSoFar,
} from '#src/doors/tool-call-pieces.js';

const call = (id?: string, name?: string, json = ''): ToolCallSoFar => ({ id, name, json });

void t.test('what a piece says', (t) => {
  const NOTHING = { id: undefined, name: undefined, json: '', index: undefined };
  for (const [piece, expected] of [
    [{}, {}],
    [{ id: '', function: { name: '', arguments: '' } }, {}],
    [{ id: null, index: null, function: null }, {}],
    [{ id: 7, index: '1', function: { name: [], arguments: 3 } }, {}],
    [
      { id: 'a', index: 1, function: { name: 'f', arguments: '{"x"' } },
      { id: 'a', name: 'f', json: '{"x"', index: 1 },
    ],
    [{ index: -1 }, {}],
    [{ index: 0.5 }, {}],
    [{ custom: { name: 'c', input: 'text' } }, { name: 'c', json: 'text' }],
    [{ function: { arguments: { x: 1 } } }, { json: '{"x":1}' }],
  ] as const)
    t.strictSame(toolCallPieceOf(piece), { ...NOTHING, ...expected }, JSON.stringify(piece));
  t.end();
});

void t.test('whether a piece begins another call', (t) => {
  for (const [name, piece, so, expected] of [
    ['OpenAI, further arguments', { index: 0 }, call('a', 'f'), false],
    ['id and name repeated', { index: 0, id: 'a', function: { name: 'f' } }, call('a', 'f'), false],
    ['the name comes late', { index: 0, function: { name: 'f' } }, call('a'), false],
    ['each call at the index 0', { index: 0, id: 'b', function: { name: 'f' } }, call('a', 'f'), true],
    ['another id, but no name', { index: 0, id: 'b' }, call('a', 'f'), false],
    ['without an index, another id', { id: 'b' }, call('a', 'f'), true],
    ['without index and ids, another name', { function: { name: 'f' } }, call(undefined, 'f'), true],
    ['without index and ids, the first name', { function: { name: 'f' } }, call(), false],
    ['without index and ids, arguments', { function: { arguments: '1' } }, call(undefined, 'f'), false],
  ] as const)
    t.equal(beginsOtherToolCall(toolCallPieceOf(piece), so), expected, name);
  t.end();
});

void t.test('the first id and the first name stay, arguments are joined', (t) => {
  const open = call();
  for (const piece of [
    { id: 'a', function: { arguments: '{' } },
    { function: { name: 'f' } },
    { id: 'b', function: { name: 'g', arguments: '}' } },
  ])
    addPiece(open, toolCallPieceOf(piece));
  t.strictSame(open, call('a', 'f', '{}'));
  t.end();
});

void t.test('a call is sent with its name, and with its id unless the server has none', (t) => {
  t.equal(canSendToolCall(call('a')), false);
  t.equal(canSendToolCall(call(undefined, 'f')), false, 'the id may still come');
  t.equal(canSendToolCall(call('a', 'f')), true);
  t.equal(canSendToolCall(call(undefined, 'f', '{')), true);
  t.end();
});
