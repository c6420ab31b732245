/**
 * Wrong input for the admin interface, made from a route's own operation in the OpenAPI document: whatever a
 * schema names is left out, mistyped and stuffed, and a route or field that is new is among them without a
 * word here.
 */

export interface Schema {
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
}

export interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query';
  readonly schema: Schema;
}

export interface Operation {
  readonly parameters: readonly Parameter[];
  readonly requestBody?: { readonly content: { readonly 'application/json': { readonly schema: Schema } } };
}

/** A request that must be refused. */
export interface Hostile {
  readonly what: string;
  readonly query?: string;
  /** Text or bytes are sent as they are. */
  readonly body?: unknown;
  /** What the message must have in it: the name of the field at fault. */
  readonly names?: string;
}

type Json = Readonly<Record<string, unknown>>;

const LONG = 'x'.repeat(10 * 1024);
/** Half of a surrogate pair, which JSON can write and UTF-8 cannot. */
const HALF = '\ud83d';
/** Text that no field takes. */
const BAD_TEXTS: readonly (readonly [string, string])[] = [
  ['NUL', 'a\0b'],
  ['escape', '\u001b[2J'],
  ['writing turned round', 'a\u202eb'],
  ['a mark of direction', 'a\u200fb'],
  ['line separator', 'a\u2028b'],
  ['half a surrogate pair', `a${HALF}`],
  ['10 KB', LONG],
];
/** A value of each JSON type; those that are not a field's own are wrong there. */
const OF_TYPES: Json = { null: null, integer: 7, string: 'x', boolean: true, array: [], object: {} };

/** As deep as 64 KiB allow. */
const DEEP_ARRAYS = '['.repeat(30_000) + ']'.repeat(30_000);
const DEEP_OBJECTS = `${'{"a":'.repeat(10_000)}0${'}'.repeat(10_000)}`;
/** Stands for the arrays in a body that is not text yet: nothing can write them as JSON. */
const DEEP_MARK = '<deep>';

/** What is sent for a body. */
export function bytesOf(body: unknown): string | Uint8Array {
  if (typeof body === 'string' || body instanceof Uint8Array) return body;
  return JSON.stringify(body).replace(`"${DEEP_MARK}"`, DEEP_ARRAYS);
}

/** What is wrong with any body, whatever its schema. `good` is one that would be done. */
export function hostileBodies(good: Json): Hostile[] {
  return [
    { what: 'not JSON', body: '{"name":', names: 'body' },
    { what: 'two values', body: `${JSON.stringify(good)}{}`, names: 'body' },
    { what: 'a comment', body: `${JSON.stringify(good)}//`, names: 'body' },
    { what: 'not UTF-8', body: Buffer.from([0x7b, 0xff, 0xfe, 0x7d]), names: 'body' },
    { what: 'UTF-16', body: Buffer.from(JSON.stringify(good), 'utf16le'), names: 'body' },
    ...['null', '7', '"x"', '[]', 'true'].map((body) => ({ what: `the body ${body}`, body, names: 'body' })),
    { what: 'deep arrays', body: DEEP_ARRAYS, names: 'body' },
    { what: 'deep objects', body: DEEP_OBJECTS, names: 'a' },
    { what: 'unknown field', body: { ...good, colour: 'red' }, names: 'colour' },
    // Assigned in an object literal it would be the prototype.
    { what: '__proto__', body: withMember(good, '"__proto__":{"admin":true}'), names: '__proto__' },
    { what: 'constructor', body: { ...good, constructor: { prototype: {} } }, names: 'constructor' },
    { what: 'a name of 10 KB', body: { ...good, [LONG]: 1 }, names: 'xxx' },
    { what: 'a name with NUL', body: { ...good, '\0': 1 }, names: 'unknown field' },
    { what: 'a name of half a pair', body: { ...good, [HALF]: 1 }, names: 'unknown field' },
  ];
}

/** What is wrong with each field of `schema`, at any depth of `good`, which gives all that are required. */
export function hostileFields(schema: Schema, good: unknown, path = ''): Hostile[] {
  if (schema.type === 'array') {
    const [first] = good as readonly unknown[];
    return hostileFields(schema.items!, first, `${path}[0]`).map((hostile) => ({
      ...hostile,
      body: [hostile.body],
    }));
  }
  return Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const value = (good as Json)[name];
    const rest = Object.fromEntries(Object.entries(good as Json).filter(([other]) => other !== name));
    const at = path === '' ? name : `${path}.${name}`;
    const put = (wrong: unknown): object => ({ ...rest, [name]: wrong });
    const inner = value === undefined ? [] : hostileFields(field, value, at);
    return [
      ...(schema.required?.includes(name) === true
        ? [
            { what: `${at} missing`, body: rest, names: at },
            ...(field.type === 'string' ? [{ what: `${at} empty`, body: put(''), names: at }] : []),
          ]
        : []),
      ...wrongValues(field).map(([what, wrong]) => ({ what: `${at}: ${what}`, body: put(wrong), names: at })),
      ...inner.map((hostile) => ({ ...hostile, body: put(hostile.body) })),
      { what: `${at} nested deeply`, body: put(DEEP_MARK), names: at },
    ];
  });
}

function wrongValues({ type, enum: words, anyOf }: Schema): (readonly [string, unknown])[] {
  // A value, or null.
  if (anyOf !== undefined) return wrongValues(anyOf[0]!).filter(([, value]) => value !== null);
  const mistyped = Object.entries(OF_TYPES).filter(([of]) => of !== type);
  const ofType: readonly (readonly [string, unknown])[] =
    type === 'integer'
      ? [1.5, -1, Number.MAX_SAFE_INTEGER + 1, 1e300].map((value) => [String(value), value])
      : type === 'string' && words === undefined
        ? BAD_TEXTS
        : [];
  return [...mistyped, ...ofType];
}

/** What is wrong with any query, and with each of its parameters. */
export function hostileQueries(parameters: readonly Parameter[]): Hostile[] {
  const own = parameters.filter((parameter) => parameter.in === 'query');
  return [
    { what: 'unknown parameter', query: 'colour=red', names: 'colour' },
    { what: '__proto__', query: '__proto__=1', names: '__proto__' },
    { what: 'broken percent-encoding of a name', query: '%zz=1', names: '%zz' },
    { what: 'a name that is not UTF-8', query: '%ff=1', names: '%ff' },
    { what: 'a name of 3 KB', query: `${LONG.slice(0, 3 * 1024)}=1`, names: 'query parameter' },
    ...own.flatMap(({ name, schema }) => [
      { what: `${name} twice`, query: `${name}=1&${name}=1`, names: name },
      { what: `${name} twice, once encoded`, query: `${name}=1&${encodedName(name)}=2`, names: name },
      { what: `${name} with half an escape`, query: `${name}=%e2%8`, names: name },
      { what: `${name} that is not UTF-8`, query: `${name}=%c3%28`, names: name },
      { what: `${name} with half a surrogate pair`, query: `${name}=%ed%a0%bd`, names: name },
      ...BAD_TEXTS.filter(([, text]) => !text.includes(HALF)).map(([what, text]) => ({
        what: `${name} with ${what}`,
        query: `${name}=${encodeURIComponent(text.slice(0, 3 * 1024))}`,
        names: name,
      })),
      ...(schema.type === 'string'
        ? []
        : ['', 'x', '1e3', '0x10', '-1', '1.5', '9'.repeat(20), '[]', 'TRUE'].map((text) => ({
            what: `${name}=${text}`,
            query: `${name}=${text}`,
            names: name,
          }))),
    ]),
  ];
}

function encodedName(name: string): string {
  return `%${name.charCodeAt(0).toString(16)}${name.slice(1)}`;
}

/** `good` as text with one member more. */
function withMember(good: Json, member: string): string {
  return `{${[JSON.stringify(good).slice(1, -1), member].filter(Boolean).join(',')}}`;
}
