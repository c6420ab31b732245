/**
 * Memory that all threads of a process share and over which a WebAssembly module can run. ledger/layout.ts
 * makes it, ledger/quota-batch.ts runs the ledger's module over it. Any thread. TypeScript has the types of
 * WebAssembly only among those of browsers, so they are declared here.
 */
import { addressesLeft } from './process-limit.js';

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

/** A page of WebAssembly. */
const PAGE_BYTES = 65_536;
/** Addresses that V8 of Node 20 and 22 reserves for a memory of WebAssembly. */
const RESERVED_BYTES = 10 * 1024 ** 3;
/**
 * Addresses that a gateway needs besides: 8 GiB for the map of the file of leases, which several processes
 * share (sharing/lease-file.ts), some 6 for Node's threads (docs/operations.md).
 */
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

/** Returns the module of these bytes, which scripts/build-module.mjs has made: 0.2 ms. */
export function compile(bytes: Uint8Array): object {
  return new Module(bytes);
}

/**
 * Returns the exported functions of a module that imports its memory as `js.memory`. `canInstantiate` must be
 * true of `memory`.
 */
export function instantiate(module: object, memory: SharedMemory): Functions {
  return new Instance(module, { js: { memory } }).exports;
}
