/** Bodies of a wanted length that cost whoever reads them carelessly many times their length. */
import { TEST_MODEL } from './gateway.js';

export const BODY_KINDS = [
  'plain',
  'nested',
  'keys',
  'numbers',
  'escapes',
  'messages',
  'model',
  'poor',
  'paid',
] as const;
export type BodyKind = (typeof BODY_KINDS)[number];

const MESSAGES = '"messages":[{"role":"user","content":"Hello"}]';

/** What fills a body: a start, what is repeated, and an end. */
function fillingOf(kind: BodyKind): readonly [string, (index: number) => string, string] {
  switch (kind) {
    case 'nested':
      return [`${MESSAGES},"x":[`, () => '[[[[[[[[[[]]]]]]]]]],', '0]'];
    case 'keys':
      return [`${MESSAGES},"x":{`, (index) => `"k${index}":1,`, '"k":1}'];
    case 'numbers':
      return [`${MESSAGES},"x":[`, () => '1,', '1]'];
    case 'escapes':
      return ['"messages":[{"role":"user","content":"', () => '\\u00e9\\n', '"}]'];
    case 'messages':
      return ['"messages":[', () => '{"role":"user","content":""},', '{"role":"user","content":""}]'];
    default:
      return ['"messages":[{"role":"user","content":"', () => 'plain text ', '"}]'];
  }
}

/** `bytes` long, all of it ASCII, and valid JSON. */
export function hostileBody(kind: BodyKind, bytes: number): Buffer {
  const model = kind === 'model' ? 'no-such-model' : TEST_MODEL;
  const [start, unit, end] = fillingOf(kind);
  const head = `{"model":"${model}","max_tokens":1,${start}`;
  const body = Buffer.alloc(bytes, ' ');
  let at = body.write(head, 'latin1');
  for (let index = 0; ; index++) {
    const text = unit(index);
    if (at + text.length + end.length + 1 > bytes) break;
    at += body.write(text, at, 'latin1');
  }
  body.write(`${end}}`, at, 'latin1');
  return body;
}
