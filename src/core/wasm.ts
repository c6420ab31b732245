/**
 * WebAssembly for the ledger: makes its shared memory (src/ledger/layout.ts calls it), and assembles a module
 * from its text form and runs it over that memory (src/ledger/quota-batch.ts). Any thread. TypeScript has the
 * types of WebAssembly only among those of browsers, so they are declared here.
 *
 * The assembler knows as much of the text form as src/ledger/quota-module.ts uses: functions with named
 * parameters and locals, folded instructions `(i32.add (local.get $a) (i32.const 1))`, and one imported
 * shared memory. V8 validates the bytes that come out. The numbers are those of chapter "Binary Format" of
 * the WebAssembly specification.
 *
 * Must hold: an unknown instruction, type or name throws, and nothing of the text is left out. An instruction
 * that quota-module.ts begins to use is added to the tables below, or to `encode`. Further test:
 * test/unit/ledger/quota-batch.test.ts, which runs the module of the ledger.
 */
import { addressesLeft } from './process-limit.js';
import { invariant } from './errors.js';

/** A memory of WebAssembly, or a plain object with a buffer if there are too few addresses for one. */
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

/** A page of WebAssembly, and the most pages that a memory may have. */
const PAGE_BYTES = 65_536;
const PAGES_MAX = 65_536;
/** Addresses that V8 of Node 20 and 22 reserves for a memory of WebAssembly. */
const RESERVED_BYTES = 10 * 1024 ** 3;
/** Addresses that a gateway needs besides: 8 GiB for leases of several processes, 6 for Node's threads. */
const OTHER_BYTES = 14 * 1024 ** 3;

/**
 * Returns memory of fixed size that threads share: `bytes`, rounded up to whole pages. Pages that were never
 * touched take no memory. If the limit of addresses (`ulimit -v`) leaves too few for it and for what a
 * gateway opens later, the result has a plain buffer of the same length, over which no module can run
 * (`canInstantiate`).
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

/** Whether a module can run over the memory: it is one of WebAssembly. Any thread may ask. */
export function canInstantiate(memory: SharedMemory): boolean {
  return memory instanceof Memory;
}

/** Returns the module of `text`; each thread needs one of its own. */
export function compile(text: string): object {
  return new Module(assemble(text));
}

/** Returns the exported functions of a module over `memory`, of which `canInstantiate` is true. */
export function instantiate(module: object, memory: SharedMemory): Functions {
  return new Instance(module, { js: { memory } }).exports;
}

const TYPES: Record<string, number> = { i32: 0x7f, i64: 0x7e, f64: 0x7c };
/** In place of the type of a block without a result. */
const NO_RESULT = 0x40;
/** Ends a block, and the body of a function. */
const END = 0x0b;
/** Numbers of the sections of a module. */
const SECTION = { types: 1, imports: 2, functions: 3, exports: 7, code: 10 } as const;

/** Opcodes of instructions that take operands from the stack alone. */
const STACK_OPCODES: Record<string, number> = {
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
/** Opcodes of instructions on memory. `alignment`: their addresses are multiples of 2 to that power. */
const MEMORY_OPCODES: Record<string, readonly [opcode: readonly number[], alignment: number]> = {
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

/** A word of the text, or a list in brackets. */
type Node = string | Node[];

interface ModuleFunction {
  readonly name: string;
  /** The name by which JavaScript calls it; undefined if only the module does. */
  exported: string | undefined;
  /** Types of the parameters, the results and the locals. */
  readonly params: number[];
  readonly results: number[];
  readonly locals: number[];
  /** Names of the parameters, then of the locals: instructions have the position in this list. */
  readonly names: string[];
  readonly body: Node[];
}

/** Returns the bytes of a module of functions `(func $name (export "name")? (param …)* …)`. */
function assemble(text: string): Uint8Array {
  const functions = parse(text).map(functionOf);
  const names = functions.map(({ name }) => name);
  // Each function has a type of its own, so both lists have the same indices.
  const types = functions.map(({ params, results }) => [0x60, ...vector(params), ...vector(results)]);
  const typeIndices = functions.map((_, index) => unsigned(index));
  // A memory (2), which is shared and has a maximum (3), of at least one page.
  const memory = [...nameBytes('js'), ...nameBytes('memory'), 2, 3, ...unsigned(1), ...unsigned(PAGES_MAX)];
  const exports = functions.flatMap(({ exported }, index) =>
    exported === undefined ? [] : [[...nameBytes(exported), 0, ...unsigned(index)]],
  );
  const code = functions.map((each) => codeOf(each, names));
  return Uint8Array.from([
    // `\0asm`, and version 1.
    ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(SECTION.types, types),
    ...section(SECTION.imports, [memory]),
    ...section(SECTION.functions, typeIndices),
    ...section(SECTION.exports, exports),
    ...section(SECTION.code, code),
  ]);
}

function section(id: number, items: number[][]): number[] {
  const bytes = [...unsigned(items.length), ...items.flat()];
  return [id, ...unsigned(bytes.length), ...bytes];
}

/** Returns the locals and instructions of a function. `functionNames`: of all functions, in their order. */
function codeOf({ locals, names, body }: ModuleFunction, functionNames: readonly string[]): number[] {
  /** The labels of the blocks around the current instruction, outermost first. */
  const labels: string[] = [];
  /** `br` names a block by how many blocks further out it is than the innermost. */
  const label = (name: Node): number[] =>
    unsigned(labels.length - 1 - labels.lastIndexOf(known(name, labels)));
  const local = (name: Node): number[] => unsigned(names.indexOf(known(name, names)));
  const callee = (name: Node): number[] => unsigned(functionNames.indexOf(known(name, functionNames)));
  const all = (nodes: readonly Node[]): number[] => nodes.flatMap(encode);
  const block = (opcode: number, type: number, name: Node, nodes: readonly Node[]): number[] => {
    labels.push(name as string);
    const bytes = [opcode, type, ...all(nodes)];
    labels.pop();
    return bytes;
  };
  /** Returns the bytes of a folded instruction: those of its operands, then its own. */
  function encode(node: Node): number[] {
    const [op, ...rest] = node as [string, ...Node[]];
    const [first, ...others] = rest;
    if (op === 'local.get') return [0x20, ...local(first!)];
    if (op === 'local.set') return [...all(others), 0x21, ...local(first!)];
    if (op === 'call') return [...all(others), 0x10, ...callee(first!)];
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
    const onMemory = MEMORY_OPCODES[op];
    if (onMemory !== undefined) {
      const isOffset = typeof first === 'string';
      const offset = isOffset ? Number(first.slice('offset='.length)) : 0;
      return [...all(isOffset ? others : rest), ...onMemory[0], onMemory[1], ...unsigned(offset)];
    }
    return [...all(rest), known(STACK_OPCODES[op], Object.values(STACK_OPCODES))];
  }
  // Locals are counted in groups of one type; here each group has one local.
  const groups = locals.flatMap((type) => [1, type]);
  const code = [...unsigned(locals.length), ...groups, ...all(body), END];
  return [...unsigned(code.length), ...code];
}

/** Reads `(func $name part …)`. A part that declares nothing is an instruction of the body. */
function functionOf(node: Node): ModuleFunction {
  const [, name, ...parts] = node as [string, string, ...Node[]];
  const lists = { params: [], results: [], locals: [], names: [], body: [] };
  const read: ModuleFunction = { name, exported: undefined, ...lists };
  for (const part of parts as string[][]) {
    // The export's name without its quotes.
    if (part[0] === 'export') read.exported = part[1]!.slice(1, -1);
    else if (part[0] === 'result') read.results.push(typeOf(part[1]!));
    else if (part[0] === 'param' || part[0] === 'local') {
      read.names.push(part[1]!);
      read[part[0] === 'param' ? 'params' : 'locals'].push(typeOf(part[2]!));
    } else read.body.push(part);
  }
  return read;
}

/** Returns the lists of a text. `;;` begins a comment. */
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

/** LEB128, the numbers of WebAssembly: seven bits a byte, the lowest first; the high bit: more follow. */
function unsigned(value: number): number[] {
  return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...unsigned(value >>> 7)];
}

/** As `unsigned`, but ends when all further bits are equal to bit 6, the sign. */
function signed(value: bigint): number[] {
  const byte = Number(value & 0x7fn);
  const rest = value >> 7n;
  const isLast = rest === ((byte & 0x40) === 0 ? 0n : -1n);
  return isLast ? [byte] : [byte | 0x80, ...signed(rest)];
}
