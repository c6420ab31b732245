/**
 * Assembles WebAssembly from its text form, as much of it as src/ledger/quota-module.ts uses: functions of
 * named parameters and locals, folded instructions, one imported shared memory. V8 validates what comes out.
 * src/ledger/quota-batch.ts and layout.ts call it. Any thread. The compiler has the types of WebAssembly only
 * with those of browsers, so they are declared here.
 *
 * Must hold: an unknown instruction, type or name throws, and nothing of the text is left out. Further test:
 * test/unit/ledger/quota-batch.test.ts, which runs the module of the ledger.
 */
import { addressesLeft } from './process-limit.js';
import { invariant } from './errors.js';

/** A memory of WebAssembly, or a plain object if there is none to be had (`createSharedMemory`). */
export interface SharedMemory {
  readonly buffer: SharedArrayBuffer;
}

type Functions = Readonly<Record<string, (...numbers: number[]) => number>>;

const { Memory, Module, Instance } = (
  globalThis as unknown as {
    readonly WebAssembly: {
      readonly Memory: new (pages: { initial: number; maximum: number; shared: true }) => SharedMemory;
      readonly Module: new (bytes: Uint8Array) => object;
      readonly Instance: new (module: object, imports: object) => { readonly exports: Functions };
    };
  }
).WebAssembly;

const PAGE_BYTES = 65_536;
const PAGES_MAX = 65_536;
/** What V8 of Node 20 and 22 reserves for a memory of WebAssembly. */
const RESERVED_BYTES = 10 * 1024 ** 3;
/** What a gateway needs beside: 8 GiB for leases of several processes, and some 6 of Node's for threads. */
const OTHER_BYTES = 14 * 1024 ** 3;

/**
 * Memory of fixed size that threads share; the kernel provides a page at the first touch. If the limit of
 * addresses (`ulimit -v`) leaves too few for it and for what a gateway opens later, the result has a plain
 * buffer of the same length, over which no module can be instantiated (`canInstantiate`).
 */
export function createSharedMemory(bytes: number): SharedMemory {
  const pages = Math.ceil(bytes / PAGE_BYTES);
  try {
    if (addressesLeft() < RESERVED_BYTES + OTHER_BYTES) throw new RangeError('too few addresses');
    return new Memory({ initial: pages, maximum: pages, shared: true });
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { buffer: new SharedArrayBuffer(pages * PAGE_BYTES) };
  }
}

/** Whether the memory is one of WebAssembly, in whatever thread. */
export function canInstantiate(memory: SharedMemory): boolean {
  return memory instanceof Memory;
}

/** Assembles a module, which each thread should do once. */
export function compile(text: string): object {
  return new Module(assemble(text));
}

/** The exported functions of a module over that memory, of which `canInstantiate` is true. */
export function instantiate(module: object, memory: SharedMemory): Functions {
  return new Instance(module, { js: { memory } }).exports;
}

const TYPES: Record<string, number> = { i32: 0x7f, i64: 0x7e, f64: 0x7c };
const NO_RESULT = 0x40;
const END = 0x0b;

/** Opcodes of instructions that take operands from the stack alone. */
const PLAIN: Record<string, number> = {
  return: 0x0f,
  drop: 0x1a,
  'i32.eqz': 0x45,
  'i32.ne': 0x47,
  'i32.lt_s': 0x48,
  'i32.lt_u': 0x49,
  'i32.gt_s': 0x4a,
  'i64.eq': 0x51,
  'i64.ne': 0x52,
  'i64.lt_s': 0x53,
  'i64.gt_s': 0x55,
  'i64.ge_s': 0x59,
  'i32.add': 0x6a,
  'i32.sub': 0x6b,
  'i32.and': 0x71,
  'i32.or': 0x72,
  'i64.add': 0x7c,
  'i64.sub': 0x7d,
  'i64.and': 0x83,
  'i64.shr_u': 0x88,
  'i32.wrap_i64': 0xa7,
  'f64.convert_i64_s': 0xb9,
};
/** Opcodes of instructions on memory, and the power of two that their addresses are a multiple of. */
const ON_MEMORY: Record<string, readonly [opcode: readonly number[], alignment: number]> = {
  'i32.load': [[0x28], 2],
  'f64.load': [[0x2b], 3],
  'i32.store': [[0x36], 2],
  'f64.store': [[0x39], 3],
  'i32.atomic.load': [[0xfe, 0x10], 2],
  'i64.atomic.load': [[0xfe, 0x11], 3],
  'i64.atomic.rmw.add': [[0xfe, 0x1f], 3],
  'i64.atomic.rmw.sub': [[0xfe, 0x26], 3],
  'i64.atomic.rmw.cmpxchg': [[0xfe, 0x49], 3],
};

type Node = string | Node[];

interface Func {
  readonly name: string;
  exported: string | undefined;
  readonly params: number[];
  readonly results: number[];
  readonly locals: number[];
  /** Parameters, then locals. */
  readonly names: string[];
  readonly body: Node[];
}

/**
 * The bytes of a module that consists of functions; `(func $name (export "name")? (param …)* …)`. Its
 * sections are 1 types, 2 imports, 3 functions (the type of each), 7 exports, 10 code.
 */
function assemble(text: string): Uint8Array {
  const funcs = parse(text).map(funcOf);
  const names = funcs.map(({ name }) => name);
  const exports = funcs.flatMap(({ exported }, index) =>
    exported === undefined ? [] : [[...nameBytes(exported), 0, ...unsigned(index)]],
  );
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(
      1,
      funcs.map((func) => [0x60, ...vector(func.params), ...vector(func.results)]),
    ),
    // The memory: shared (1), and with a maximum (2).
    ...section(2, [
      [...nameBytes('js'), ...nameBytes('memory'), 2, 3, ...unsigned(1), ...unsigned(PAGES_MAX)],
    ]),
    ...section(
      3,
      funcs.map((_, index) => unsigned(index)),
    ),
    ...section(7, exports),
    ...section(
      10,
      funcs.map((func) => codeOf(func, names)),
    ),
  ]);
}

function section(id: number, items: number[][]): number[] {
  const bytes = [...unsigned(items.length), ...items.flat()];
  return [id, ...unsigned(bytes.length), ...bytes];
}

/**
 * The locals and instructions of a function. `funcs`: the names of all functions, in order. Opcodes: chapter
 * "Binary Format" of the WebAssembly specification.
 */
function codeOf(func: Func, funcs: readonly string[]): number[] {
  const locals = func.locals.flatMap((type) => [1, type]);
  /** The labels of the blocks around the current instruction, outermost first. */
  const labels: string[] = [];
  /** `br` names a block by how many blocks further out it is than the innermost. */
  const label = (name: Node): number[] =>
    unsigned(labels.length - 1 - labels.lastIndexOf(known(name, labels)));
  const local = (name: Node): number[] => unsigned(func.names.indexOf(known(name, func.names)));
  const all = (nodes: readonly Node[]): number[] => nodes.flatMap(encode);
  const block = (opcode: number, type: number, name: Node, body: readonly Node[]): number[] => {
    labels.push(name as string);
    const bytes = [opcode, type, ...all(body)];
    labels.pop();
    return bytes;
  };
  /** A folded instruction: its operands come before it. */
  function encode(node: Node): number[] {
    const [op, ...rest] = node as [string, ...Node[]];
    const [first, ...others] = rest;
    if (op === 'local.get') return [0x20, ...local(first!)];
    if (op === 'local.set') return [...all(others), 0x21, ...local(first!)];
    if (op === 'call') return [...all(others), 0x10, ...unsigned(funcs.indexOf(known(first, funcs)))];
    if (op === 'i32.const') return [0x41, ...signed(BigInt(first as string))];
    if (op === 'i64.const') return [0x42, ...signed(BigInt(first as string))];
    if (op === 'i64.trunc_sat_f64_s') return [...all(rest), 0xfc, 6];
    if (op === 'br') return [0x0c, ...label(first!)];
    if (op === 'br_if') return [...all(others), 0x0d, ...label(first!)];
    if (op === 'block') return [...block(0x02, NO_RESULT, first!, others), END];
    if (op === 'loop') return [...block(0x03, NO_RESULT, first!, others), END];
    // `(if (result TYPE)? CONDITION (then …) (else …)?)`. A branch opens a label, which no `br` names.
    if (op === 'if') {
      const result = (first![0] as string) === 'result' ? typeOf(first![1]!) : NO_RESULT;
      const [condition, [, ...then], otherwise] = (result === NO_RESULT ? rest : others) as [
        Node,
        Node[],
        Node[]?,
      ];
      const bytes = [...encode(condition), ...block(0x04, result, '', then)];
      if (otherwise === undefined) return [...bytes, END];
      // An `else` has no type of its own, so the byte of `block` for it is removed.
      return [...bytes, ...block(0x05, 0, '', otherwise.slice(1)).toSpliced(1, 1), END];
    }
    const onMemory = ON_MEMORY[op];
    if (onMemory !== undefined) {
      const isOffset = typeof first === 'string';
      const offset = isOffset ? Number(first.slice('offset='.length)) : 0;
      return [...all(isOffset ? others : rest), ...onMemory[0], onMemory[1], ...unsigned(offset)];
    }
    return [...all(rest), known(PLAIN[op], Object.values(PLAIN))];
  }
  const body = [...unsigned(func.locals.length), ...locals, ...all(func.body), END];
  return [...unsigned(body.length), ...body];
}

function funcOf(node: Node): Func {
  const [, name, ...rest] = node as [string, string, ...Node[]];
  const func: Func = { name, exported: undefined, params: [], results: [], locals: [], names: [], body: [] };
  for (const part of rest as string[][]) {
    if (part[0] === 'export') func.exported = part[1]!.slice(1, -1);
    else if (part[0] === 'result') func.results.push(typeOf(part[1]!));
    else if (part[0] === 'param' || part[0] === 'local') {
      func.names.push(part[1]!);
      func[part[0] === 'param' ? 'params' : 'locals'].push(typeOf(part[2]!));
    } else func.body.push(part);
  }
  return func;
}

/** The lists of a text; `;;` begins a comment. */
function parse(text: string): Node[] {
  const tokens = text.replaceAll(/;;.*/g, '').match(/[()]|[^\s()]+/g) ?? [];
  const open: Node[][] = [[]];
  for (const token of tokens) {
    if (token === '(') open.push([]);
    else if (token !== ')') open.at(-1)!.push(token);
    else {
      const list = open.pop()!;
      open.at(-1)!.push(list);
    }
  }
  invariant(open.length === 1, 'each bracket of a module is closed');
  return open[0]!;
}

/** Returns the item; throws if it is not among `items`. */
function known<Item>(item: Node | Item | undefined, items: readonly Item[]): Item {
  invariant(items.includes(item as Item), `a module has no ${String(item)}`);
  return item as Item;
}

function typeOf(name: Node): number {
  return known(TYPES[name as string], Object.values(TYPES));
}

function vector(bytes: readonly number[]): number[] {
  return [...unsigned(bytes.length), ...bytes];
}

function nameBytes(name: string): number[] {
  return vector([...Buffer.from(name)]);
}

/** LEB128: seven bits a byte, the lowest first. */
function unsigned(value: number): number[] {
  return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...unsigned(value >>> 7)];
}

function signed(value: bigint): number[] {
  const byte = Number(value & 0x7fn);
  const rest = value >> 7n;
  const isLast = rest === ((byte & 0x40) === 0 ? 0n : -1n);
  return isLast ? [byte] : [byte | 0x80, ...signed(rest)];
}
