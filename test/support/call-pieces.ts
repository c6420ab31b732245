/** Streamed tool calls as servers of OpenAI's kind send them, with the calls that they mean. */
interface PiecesOfServer {
  readonly server: string;
  /** For each chunk its `delta.tool_calls`. */
  readonly pieces: readonly (readonly object[])[];
  /** `id`: undefined if the server gives none. */
  readonly calls: readonly {
    readonly id: string | undefined;
    readonly name: string;
    readonly json: string;
  }[];
}

const piece = (members: object, name?: string | null, json?: string): object => ({
  ...members,
  function: { ...(name !== undefined && { name }), ...(json !== undefined && { arguments: json }) },
});
const CALLS = [
  { id: 'a', name: 'f', json: '{"a":1}' },
  { id: 'b', name: 'g', json: '{}' },
];
const UNNAMED = CALLS.map((call) => ({ ...call, id: undefined }));

export const CALL_PIECES: readonly PiecesOfServer[] = [
  {
    server: 'OpenAI',
    pieces: [
      [piece({ index: 0, id: 'a', type: 'function' }, 'f', '')],
      [piece({ index: 0 }, undefined, '{"a":')],
      [piece({ index: 0 }, undefined, '1}')],
      [piece({ index: 1, id: 'b', type: 'function' }, 'g', '')],
      [piece({ index: 1 }, undefined, '{}')],
    ],
    calls: CALLS,
  },
  {
    server: 'DashScope, DeepSeek: empty texts',
    pieces: [
      [piece({ index: 0, id: 'a' }, 'f', '{')],
      [piece({ index: 0, id: '' }, '', '"a":1')],
      [piece({ index: 0, id: '' }, '', '}')],
      [piece({ index: 1, id: 'b' }, 'g', '')],
      [piece({ index: 1, id: '' }, '', '{}')],
    ],
    calls: CALLS,
  },
  {
    server: 'SGLang: null',
    pieces: [
      [piece({ index: 0, id: 'a' }, 'f', '')],
      [piece({ index: 0, id: null }, null, '{"a":1}')],
      [piece({ index: 1, id: 'b' }, 'g', '')],
      [piece({ index: 1, id: null }, null, '{}')],
    ],
    calls: CALLS,
  },
  {
    server: 'without an index, the ids empty or null',
    pieces: [
      [piece({ id: 'a' }, 'f', '{"a"')],
      [piece({ id: null }, null, ':1')],
      [piece({ id: '', index: null }, '', '}')],
      [piece({ id: 'b' }, 'g', '{}')],
    ],
    calls: CALLS,
  },
  {
    server: 'lmdeploy: one index for all',
    pieces: [
      [piece({ index: 0, id: 'a' }, 'f', '')],
      [piece({ index: 0, id: '' }, null, '{"a":1}')],
      [piece({ index: 0, id: 'b' }, 'g', '')],
      [piece({ index: 0, id: '' }, null, '{}')],
    ],
    calls: CALLS,
  },
  {
    server: 'Command-A on vLLM, vmlx: the name comes late',
    pieces: [
      [piece({ index: 0, id: 'a' }, '', '')],
      [piece({ index: 0, id: 'a' }, 'f', '{"a":1}')],
      [piece({ index: 1, id: 'b' })],
      [piece({ index: 1 }, undefined, '{')],
      [piece({ index: 1 }, 'g', '}')],
    ],
    calls: CALLS,
  },
  {
    server: 'id and name in pieces of their own',
    pieces: [
      [piece({ index: 0 }, 'f')],
      [piece({ index: 0, id: 'a' })],
      [piece({ index: 0 }, undefined, '{"a":1}')],
      [piece({ index: 1, id: 'b' })],
      [piece({ index: 1 }, 'g', '{}')],
    ],
    calls: CALLS,
  },
  {
    server: 'an index below 0 for all',
    pieces: [
      [piece({ index: -1, id: 'a' }, 'f', '')],
      [piece({ index: -1 }, undefined, '{"a":')],
      [piece({ index: -1 }, undefined, '1}')],
      [piece({ index: -1, id: 'b' }, 'g', '{}')],
    ],
    calls: CALLS,
  },
  {
    server: 'whole calls without id and index',
    pieces: [[piece({}, 'f', '{"a":1}')], [piece({}, 'g', '{}')]],
    calls: UNNAMED,
  },
];
