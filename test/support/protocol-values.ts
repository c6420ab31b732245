/** Random chat requests, valid or nearly so, from a seed. */

import { pick, type Random } from './random.js';

/** Every kind of JSON value, with the edges of the rules among the numbers. */
export function anyValue(next: Random, depth = 0): unknown {
  const numbers = [0, -0, 1, 2, 2.0001, -0.1, -1, 0.5, 1.5, 128, 129, 1e12, 1e300];
  const strings = ['', 'x', 'user', 'tool', 'm', '"\\', '€😀', '{"a":1}', 'true'];
  const kinds: (() => unknown)[] = [
    () => pick(next, numbers),
    () => pick(next, strings),
    () => next() < 0.5,
    () => null,
    () => [],
    () => ({}),
    () => Array.from({ length: 2 }, () => (depth > 2 ? 0 : anyValue(next, depth + 1))),
    () => ({ type: anyValue(next, 3), [pick(next, strings)]: depth > 2 ? 0 : anyValue(next, depth + 1) }),
  ];
  return pick(next, kinds)();
}

/** `value` mostly, anything else now and then. */
function mostly(next: Random, value: () => unknown): unknown {
  return next() < 0.95 ? value() : anyValue(next);
}

function message(next: Random): unknown {
  const fields: Record<string, unknown> = {
    role: mostly(next, () => pick(next, ['system', 'developer', 'user', 'assistant', 'tool', 'function'])),
  };
  const part = (): unknown => ({ type: mostly(next, () => 'text'), text: anyValue(next) });
  const kind = next();
  if (kind < 0.5) fields.content = mostly(next, () => 'a text with "quotes", } and \\');
  else if (kind < 0.75) fields.content = mostly(next, () => [mostly(next, part), mostly(next, part)]);
  else {
    if (next() < 0.5) fields.content = mostly(next, () => null);
    fields.tool_calls = mostly(next, () => [anyValue(next)]);
  }
  return fields;
}

/** A request of which about half are valid; its members come in any order. */
export function chatRequest(next: Random): Record<string, unknown> {
  const members: [string, () => unknown, number][] = [
    ['model', () => pick(next, ['m', 'gpt "x"', '€']), 0.99],
    [
      'messages',
      () => Array.from({ length: 1 + Math.floor(next() * 3) }, () => mostly(next, () => message(next))),
      0.99,
    ],
    ['max_tokens', () => pick(next, [0, 1, 1e12, null]), 0.3],
    ['max_completion_tokens', () => pick(next, [0, 1, 1e12, null]), 0.3],
    ['temperature', () => pick(next, [0, 1, 2, null]), 0.3],
    ['top_p', () => pick(next, [0, 0.5, 1, null]), 0.3],
    ['n', () => pick(next, [1, 128, null]), 0.3],
    ['stream', () => pick(next, [true, true, false, null]), 0.6],
    [
      'stream_options',
      () => pick(next, [{}, { include_usage: true }, { a: '}', include_usage: false }, null]),
      0.4,
    ],
    ['tools', () => anyValue(next), 0.3],
    ['__proto__', () => anyValue(next), 0.1],
    ['7', () => anyValue(next), 0.1],
  ];
  const given = members.filter(([, , chance]) => next() < chance).sort(() => next() - 0.5);
  return Object.fromEntries(given.map(([name, value]) => [name, mostly(next, value)]));
}
