/**
 * A body is parsed in one turn of a counter thread, so no body may cost more than a turn, whatever is in it:
 * at each door, at and beyond the bounds of values, members and names.
 */
import t from 'tap';
import { BODY_OTHER_NAMES_MAX, BODY_TREE_MEMBERS_MAX, COUNTER_SLICE_MS } from '#src/core/limits.js';
import { DOORS } from '#src/doors/doors.js';

const BYTES_MAX = 10 * 1024 * 1024;
/** The shortest is taken: what a body costs and not what else the machine does. */
const TRIES = 4;

const TEXTS: Readonly<Record<string, string>> = {
  chat: '"messages":[{"role":"user","content":"a"}]',
  messages: '"max_tokens":1,"messages":[{"role":"user","content":"a"}]',
  count_tokens: '"messages":[{"role":"user","content":"a"}]',
  responses: '"input":"a"',
  completions: '"prompt":"a"',
  embeddings: '"input":"a"',
  moderations: '"input":"a"',
  rerank: '"query":"a","documents":["a"]',
};

interface Filling {
  readonly start: string;
  readonly unit: (index: number) => string;
  readonly end: string;
}

const space = Buffer.allocUnsafe(BYTES_MAX);

/** It is in the memory of the one before. */
function bodyOf({ start, unit, end }: Filling, count: number): Buffer {
  const bytesMax = BYTES_MAX - Buffer.byteLength(end);
  let bytes = space.write(start);
  for (let index = 0; index < count; index++) {
    const piece = unit(index);
    // A character of a string has at most three bytes.
    if (bytes + 3 * piece.length > bytesMax && bytes + Buffer.byteLength(piece) > bytesMax) break;
    bytes += space.write(piece, bytes);
  }
  return space.subarray(0, bytes + space.write(end, bytes));
}

function fillings(door: string): Readonly<Record<string, Filling>> {
  const head = `{"model":"m",`;
  const any = `${head}${TEXTS[door]!},"x":`;
  const list = (items: string, unit: (index: number) => string, end: string): Filling => ({
    start: `${head}${door === 'messages' ? '"max_tokens":1,' : ''}"${items}":[`,
    unit: (index) => `${unit(index)},`,
    end: `${end}]}`,
  });
  const common = {
    'one object of many names': {
      start: `${any}{`,
      unit: (index: number) => `"k${index}":1,`,
      end: '"z":0}}',
    },
    'numbers for names': {
      start: `${any}{`,
      unit: (index: number) => `"${index * 7919}":1,`,
      end: '"z":0}}',
    },
    'objects of their own': { start: `${any}[`, unit: (index: number) => `{"k${index}":1},`, end: '0]}' },
    'empty arrays': { start: `${any}[`, unit: () => '[],', end: '0]}' },
    'long numbers': { start: `${any}[`, unit: () => '1.234567890123456789e-300,', end: '0]}' },
    escapes: { start: `${any}"`, unit: () => '\\u00e9\\n', end: '"}' },
  };
  const user = '{"role":"user","content":"a"}';
  const part = '{"type":"text","text":"a"}';
  const names = Array.from({ length: 990 }, (_, index) => `"ö${index}":1`).join(',');
  switch (door) {
    case 'chat':
    case 'messages':
    case 'count_tokens':
      return {
        ...common,
        messages: list('messages', () => user, user),
        parts: list('messages', () => part, part),
        'parts of one message': {
          ...list('messages', () => part, part),
          start: `${head}${TEXTS.messages!.replace('"a"}]', '[')}`,
          end: `${part}]}]}`,
        },
        'names not known': list('messages', (index) => `{"role":"user","é${index}":1,"content":"a"}`, user),
        'many names not known': list('messages', () => `{"role":"user",${names},"content":"a"}`, user),
        tools: {
          ...list('tools', () => '{"name":"a"}', '{"name":"b"}'),
          start: `${head}${TEXTS[door]!},"tools":[`,
        },
      };
    case 'responses': {
      const item = '{"type":"message","role":"user","content":"a"}';
      return {
        ...common,
        items: list('input', () => item, item),
        parts: list('input', () => `{"role":"user","content":[{"type":"input_text","text":"a"}]}`, item),
        tools: {
          start: `${any.slice(0, -'"x":'.length)}"tools":[`,
          unit: () => '{"type":"function","name":"a"},',
          end: '{"type":"function","name":"b"}]}',
        },
      };
    }
    case 'embeddings':
      return {
        ...common,
        tokens: list('input', () => '1234', '1'),
        'texts of tokens': list('input', () => `[${'1,'.repeat(240)}1]`, '[1]'),
      };
    default:
      return common;
  }
}

t.setTimeout(120_000);
for (const door of DOORS)
  void t.test(`no body at ${door.name} takes more than a turn`, { timeout: 60_000 }, (t) => {
    for (const [kind, filling] of Object.entries(fillings(door.name)))
      for (const count of [BODY_OTHER_NAMES_MAX - 1_000, BODY_TREE_MEMBERS_MAX - 1_000, 490_000]) {
        const body = bodyOf(filling, count);
        let leastMs = Infinity;
        let outcome = '';
        for (let turn = 0; turn < TRIES && !(leastMs < COUNTER_SLICE_MS); turn++) {
          const startMs = performance.now();
          const before = process.cpuUsage();
          const read = door.readPieces([body]);
          // Wall time has what others on the machine take, CPU time what V8's other threads take.
          const { user, system } = process.cpuUsage(before);
          leastMs = Math.min(leastMs, performance.now() - startMs, (user + system) / 1_000);
          outcome = read.ok ? 'taken' : read.error.message.slice(0, 80);
        }
        t.ok(leastMs < COUNTER_SLICE_MS, `${kind}, ${count}: ${leastMs.toFixed(0)} ms, ${outcome}`);
      }
    t.end();
  });
