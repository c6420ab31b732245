/**
 * Names of members: at each level that is read, each known name in each of its other forms is refused, or
 * taken where it is the name itself written with escapes; and so is a name that was given twice.
 */
import { getHeapStatistics } from 'node:v8';
import t from 'tap';
import { BODY_MEMBERS_MAX } from '#src/core/limits.js';
import {
  foldedName,
  MESSAGE,
  PART,
  REQUEST,
  spellingOf,
  STREAM_OPTIONS,
  Level,
  uncheckedMembers,
} from '#src/protocol/known-members.js';
import { MemberReader } from '#src/protocol/member-reader.js';
import { collect } from '../../support/collections.js';
import { readText } from '../../support/read-text.js';

/** A level, where it stands, and a request with `members` in an object of it, which has none of its own. */
interface Place {
  readonly level: Level;
  readonly path: string;
  readonly own: readonly string[];
  readonly body: (members: string) => string;
}

const inRequest = (member: string): string =>
  `{"model":"m","messages":[{"role":"user","content":"x"}]${member && `,${member}`}}`;
const inMessage = (member: string): string =>
  `{"model":"m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"x",${member}}]}`;
const inPart = (member: string): string =>
  `{"model":"m","messages":[{"role":"user","content":[{"type":"text"},{"type":"text"${member && `,${member}`}}]}]}`;

function placesOf(): Place[] {
  const places: Place[] = [
    { level: REQUEST, path: '', own: ['model', 'messages'], body: inRequest },
    {
      level: MESSAGE,
      path: 'messages[1].',
      own: ['role', 'content'],
      body: (members) => inMessage(members || '"x":1'),
    },
    { level: PART, path: 'messages[0].content[1].', own: ['type'], body: inPart },
    {
      level: STREAM_OPTIONS,
      path: 'stream_options.',
      own: [],
      body: (members) => inRequest(`"stream_options":{${members}}`),
    },
  ];
  // What the tables have within, as an object and as an item of an array.
  for (const place of places) {
    place.level.inner.forEach((level, index) => {
      if (level === undefined) return;
      const name = place.level.names[index]!;
      const within = `${place.path}${name}`;
      places.push(
        { level, path: `${within}.`, own: [], body: (members) => place.body(`"${name}":{${members}}`) },
        {
          level,
          path: `${within}[2].`,
          own: [],
          body: (members) => place.body(`"${name}":[{},1,{${members}}]`),
        },
      );
    });
  }
  return places;
}

const PLACES = placesOf();
const escaped = (name: string, at: number): string =>
  `${name.slice(0, at)}\\u${name.charCodeAt(at).toString(16).padStart(4, '0')}${name.slice(at + 1)}`;

/** Other writings that fold onto `name`. */
function foldsOf(name: string): string[] {
  const folds = [name.toUpperCase(), name[0]!.toUpperCase() + name.slice(1)];
  for (let at = 0; at < name.length; at++) {
    const put = (other: string): string => name.slice(0, at) + other + name.slice(at + 1);
    const upper = name[at]!.toUpperCase();
    if (upper !== name[at]) folds.push(put(upper), escaped(put(upper), at), escaped(put(upper), 0));
    if (name[at] === 'k') folds.push(put('\u212a'), put('\\u212A'));
    if (name[at] === 's') folds.push(put('\u017f'), put('\\u017f'));
    if (name[at] === 'i') folds.push(put('\u0130'), put('\u0131'));
  }
  return [...new Set(folds)].filter((fold) => fold !== name);
}

function refusal(body: string): string {
  const read = readText(body);
  return read.ok ? 'taken' : read.error.message;
}

/** A value that is no reason of its own to refuse. */
const valueOf = (level: Level, name: string): string =>
  level === MESSAGE && name === 'tool_calls' ? '[]' : 'null';

void t.test('a pass over a body that goes on after another has begun is a bug that throws', (t) => {
  const level = new Level(uncheckedMembers('a'));
  const [first, second] = ['{"a":1}', '{"a":2}'].map((body) => new MemberReader(Buffer.from(body)));
  t.throws(() => first!.openLevel(level), /a pass over a body/, 'before `openBody`');
  first!.openBody();
  second!.openBody();
  t.throws(() => first!.openLevel(level), /a pass over a body/);
  t.ok(second!.openLevel(level));
  t.end();
});

void t.test('a name that folds onto a known one is refused, in each of its forms', (t) => {
  let cases = 0;
  for (const { level, path, body } of PLACES) {
    for (const name of level.names) {
      for (const fold of foldsOf(name)) {
        cases++;
        const message = refusal(body(`"${fold}":null`));
        const written = JSON.parse(`"${fold}"`) as string;
        if (message !== `${path}${written.slice(0, 40)} must be written as ${spellingOf(name)}`)
          t.fail(`${path}${fold}: ${message}`);
      }
    }
  }
  t.ok(cases > 5_000, `${cases} cases at ${PLACES.length} places`);
  t.end();
});

void t.test('a name that was given twice is refused, however it is written', (t) => {
  let cases = 0;
  for (const { level, path, own, body } of PLACES) {
    for (const name of [...level.names, 'x', 'ünknown', '__proto__', '7', '']) {
      const writings = name === '' ? [''] : [name, escaped(name, 0), escaped(name, name.length - 1)];
      for (const writing of writings) {
        for (const other of own.includes(name) ? [undefined] : writings) {
          cases++;
          const value = valueOf(level, name);
          const members =
            other === undefined ? `"${writing}":null` : `"${writing}":${value},"z":1,"${other}":null`;
          const message = refusal(body(members));
          if (message !== `${path}${name} must be given once, in whatever case`)
            t.fail(`${path}${members}: ${message}`);
          if (other === undefined) continue;
          const once = refusal(body(`"${writing}":${value},"z":1`));
          if (once !== 'taken' && !once.includes(`${name} must be`)) t.fail(`${path}${writing}: ${once}`);
        }
      }
    }
    for (const [first, second] of [
      ['extra', 'Extra'],
      ['ключ', 'КЛЮЧ'],
      ['\u212a', 'k'],
    ] as const) {
      const message = refusal(body(`"${first}":1,"y":1,"${second}":2`));
      if (message !== `${path}${second} must be given once, in whatever case`)
        t.fail(`${path}${first}: ${message}`);
    }
  }
  t.ok(cases > 1_000, `${cases} cases`);
  t.end();
});

void t.test('what is not read may have names of any kind', (t) => {
  for (const member of [
    '"x":{"model":1,"Model":2,"model":3}',
    '"metadata":{"a":1,"A":2}',
    '"logit_bias":{"1":1,"1":2}',
  ]) {
    t.equal(refusal(inRequest(member)), 'taken', member);
  }
  const schema = '{"type":"object","properties":{"Name":{},"name":{},"Type":{}}}';
  t.equal(
    refusal(inRequest(`"tools":[{"type":"function","function":{"name":"f","parameters":${schema}}}]`)),
    'taken',
  );
  t.end();
});

void t.test('names that resemble known ones and are others', (t) => {
  const others = [
    'modell',
    'mode',
    'm',
    'model ',
    ' model',
    'max-tokens',
    'maxtokens',
    'max_token\u0455',
    'st\u0433eam',
    'ｍodel',
  ];
  for (const name of others) t.equal(refusal(inRequest(`"${name}":{}`)), 'taken', name);
  t.end();
});

void t.test('a name with NUL is refused where names are read', (t) => {
  t.equal(refusal(inRequest('"model\\u0000":1')), 'a name in the request must not have NUL');
  t.equal(refusal(inMessage('"role\\u0000x":1')), 'a name in messages[1] must not have NUL');
  t.equal(refusal(inRequest('"x":{"\\u0000":"\\u0000"}')), 'taken');
  t.end();
});

void t.test('as many members as allowed, and one more', (t) => {
  for (const { path, body } of PLACES) {
    const members = (count: number): string =>
      Array.from({ length: count }, (_, index) => `"x${index}":1`).join(',');
    const taken = refusal(body(members(BODY_MEMBERS_MAX)));
    if (taken !== 'taken' && !taken.includes(' must be ')) t.fail(`${path}: ${taken}`);
    const where = path === '' ? 'the request body' : path.slice(0, -1);
    t.equal(
      refusal(body(members(BODY_MEMBERS_MAX + 1))),
      `${where} must have at most ${BODY_MEMBERS_MAX} members`,
    );
  }
  t.end();
});

void t.test('folding', (t) => {
  for (const [name, folded] of [
    ['MODEL', 'model'],
    ['to\u212aens', 'tokens'],
    ['\u017ftream', 'stream'],
    ['l\u0130mit', 'limit'],
    ['l\u0131mit', 'limit'],
    ['max_tokens', 'max_tokens'],
    ['', ''],
  ] as const)
    t.equal(foldedName(name), folded);
  // Each letter of Unicode that simple folding takes for an ASCII letter, by the engine's own tables.
  for (let code = 128; code < 0x11_0000; code++) {
    if (code >= 0xd800 && code < 0xe000) continue;
    const char = String.fromCodePoint(code);
    if (/^[a-z]$/iu.test(char) && !/^[a-z]$/.test(foldedName(char))) t.fail(code.toString(16));
  }
  t.end();
});

void t.test('a level takes no name that it would never find', (t) => {
  for (const name of ['Model', 'max-tokens', 'größe', '\u212aey', ''])
    t.throws(() => new Level({ [name]: undefined }), /lower case/, name);
  t.throws(() => new Level({ url: undefined }, { uri: 'storage_url' }), /stored/);
  t.doesNotThrow(() => new Level({ url_2: undefined }, { url_2: 'storage_url' }));
  t.end();
});

void t.test('no name of a body stays in memory once the next body is read', (t) => {
  const readLongNames = (): void => {
    const name = 'x'.repeat(256 * 1024);
    for (const { body } of placesOf()) readText(body(`"${name}":1`));
  };
  t.ok(readText(inRequest('')).ok);
  collect();
  const beforeBytes = getHeapStatistics().used_heap_size;
  readLongNames();
  t.ok(readText(inRequest('')).ok);
  collect();
  const grownBytes = getHeapStatistics().used_heap_size - beforeBytes;
  t.ok(grownBytes < 128 * 1024, `${grownBytes} bytes more`);
  t.end();
});
