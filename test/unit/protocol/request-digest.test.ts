import t from 'tap';
import { readChatBytes, readLargeChatBytes } from '#src/protocol/request-bytes.js';
import { requestDigestOf } from '#src/protocol/request-digest.js';
import { randomOf } from '../../support/random.js';

const FACTS = 'chat m r  false';

function digestOf(body: string, facts = FACTS): string {
  const read = readChatBytes(Buffer.from(body));
  if (!read.ok) throw new Error(read.error.message);
  return requestDigestOf(read.call, facts);
}

const MESSAGES = '"messages":[{"role":"user","content":"a \\" b \\\\\\" c"}]';
const BASE = `{"model":"m",${MESSAGES},"temperature":1.0,"tools":[]}`;

void t.test('what decides on no response does not count', (t) => {
  const digest = digestOf(BASE);
  t.match(digest, /^[0-9a-f]{64}$/);
  for (const same of [
    `{"tools":[],"temperature":1.0,${MESSAGES},"model":"m"}`,
    `{"tools":[],"temperature":1.0,${MESSAGES},"model":"alias"}`,
    ` {\n"model" :\t"m", "messages" : [ { "role" : "user" ,"content":"a \\" b \\\\\\" c" } ] ,"temperature":1.0,"tools":[ ]}\r\n`,
    `{"user":"someone","model":"m",${MESSAGES},"temperature":1.0,"tools":[]}`,
    `{"model":"m",${MESSAGES},"temperature":1.0,"tools":[],"prompt_cache_key":"k","safety_identifier":"s"}`,
  ])
    t.equal(digestOf(same), digest, same);
  t.end();
});

void t.test('everything else does', (t) => {
  const digests = [
    digestOf(BASE),
    digestOf(BASE, 'chat m r  true'),
    digestOf(BASE.replace('1.0', '1')),
    digestOf(BASE.replace('a \\"', 'a  \\"')),
    digestOf(
      `{"model":"m","messages":[{"content":"a \\" b \\\\\\" c","role":"user"}],"temperature":1.0,"tools":[]}`,
    ),
    digestOf(BASE.replace('"tools":[]', '"tools":[],"stream":true')),
    digestOf(BASE.replace('"tools":[]', '"tools":[],"stream":false')),
    // Some upstreams have further options, of which events show: padding, or their usage so far.
    ...['{}', '{"include_obfuscation":false}', '{"continuous_usage_stats":true}'].map((options) =>
      digestOf(BASE.replace('"tools":[]', `"stream":true,"stream_options":${options}`)),
    ),
    digestOf(BASE.replace(',"tools":[]', '')),
    digestOf(BASE.replace('a \\"', 'ä \\"')),
    digestOf(BASE.replace('1.0', '1.0,"seed":12345678901234567890')),
    digestOf(BASE.replace('1.0', '1.0,"seed":12345678901234567891')),
  ];
  t.equal(new Set(digests).size, digests.length);
  t.end();
});

void t.test('long bodies and other alphabets as short ones', (t) => {
  const long = `{"model":"m","messages":[{"role":"user","content":"${'é'.repeat(20_000)}"}],"top_p":1}`;
  const spaced = `{"top_p": 1, "messages": [{"role": "user", "content":"${'é'.repeat(20_000)}"}], "model": "m"}`;
  t.equal(digestOf(long), digestOf(spaced));
  const large = readLargeChatBytes([Buffer.from(long)]);
  t.equal(large.ok && requestDigestOf(large.call, FACTS), digestOf(long));
  for (const text of ['漢字', '😀', '\\u00e9', 'x']) {
    const body = (space: string) => `{"model":${space}"m","messages":[{"role":"user","content":"${text}"}]}`;
    t.equal(digestOf(body('')), digestOf(body('  ')));
  }
  t.not(digestOf(long), digestOf(long.replace('éé"', 'é"')));
  t.end();
});

void t.test('bodies of one meaning have one digest, others have others', (t) => {
  const random = randomOf(20);
  const byText = new Map<string, string>();
  for (let round = 0; round < 2_000; round++) {
    const below = (count: number): number => Math.floor(random() * count);
    const members = Array.from({ length: below(5) }, (_, at): [string, string] => [
      `x${at}`,
      ['1', '1.0', '"a,b"', '{"b":1,"a":[2]}', '[{},"}"]', 'null', '"\\\\"', '"{"'][below(8)]!,
    ]);
    const canonical = members.map(([name, value]) => `"${name}":${value}`).join(',');
    const parts = [...members.map(([name, value]) => `"${name}":${value}`), '"model":"m"', MESSAGES];
    for (let at = parts.length - 1; at > 0; at--) {
      const other = below(at + 1);
      [parts[at], parts[other]] = [parts[other]!, parts[at]!];
    }
    const digest = digestOf(`{${parts.join(below(2) === 0 ? ',' : ' ,\n')}}`);
    const known = byText.get(canonical);
    if (known === undefined) byText.set(canonical, digest);
    else if (known !== digest) t.fail(canonical);
  }
  t.equal(new Set(byText.values()).size, byText.size);
  t.end();
});

void t.test('a string without an end does not keep the thread for ever', (t) => {
  for (const body of ['{"a', '{"model":"m","a":"b', '{"a":"b\\\\\\"}', '"'])
    t.throws(() => requestDigestOf({ body, bodyIsAscii: true, largeBody: undefined }, ''), /string/, body);
  t.end();
});
