import { execFileSync } from 'node:child_process';
import t from 'tap';
import openWabt from 'wabt';
import { canInstantiate, compile, createSharedMemory, instantiate } from '#src/core/shared-memory.js';

const SUM = `
(module
(import "js" "memory" (memory 1 65536 shared))
(func $double (param $n i64) (result i64) (i64.add (local.get $n) (local.get $n)))
;; The words from $first on, doubled, up to the first that is -70; 0 if there are none.
(func $sum (export "sum") (param $at i32) (result i32)
  (local $all i64) (local $word i64)
  (block $end
    (loop $next
      (local.set $word (i64.atomic.load offset=8 (local.get $at)))
      (br_if $end (i64.eq (local.get $word) (i64.const -70)))
      (local.set $all (i64.add (local.get $all) (call $double (local.get $word))))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br $next)))
  (i32.wrap_i64 (if (result i64) (i64.gt_s (local.get $all) (i64.const 1000))
    (then (i64.const 1000))
    (else (local.get $all))))))`;

void t.test('a module runs over shared memory', async (t) => {
  const memory = createSharedMemory(1);
  const words = new BigInt64Array(memory.buffer);
  const wabt = await openWabt();
  const { buffer: bytes } = wabt.parseWat('sum.wat', SUM, { threads: true }).toBinary({});
  const { sum } = instantiate(compile(bytes), memory);
  words.set([9n, 1n, 200n, -3n, -70n, 5n]);
  t.equal(sum!(0), 396);
  words[2] = 900n;
  t.equal(sum!(0), 1_000);
  t.equal(words.byteLength, 65_536, 'a page');
  t.ok(canInstantiate(memory));
});

void t.test('too few addresses for a memory of WebAssembly: a plain buffer of the same length', (t) => {
  const script = `
    import { canInstantiate, createSharedMemory } from ${JSON.stringify(import.meta.resolve('#src/core/shared-memory.js'))};
    const memory = createSharedMemory(65_537);
    console.log(memory.buffer instanceof SharedArrayBuffer, memory.buffer.byteLength, canInstantiate(memory));`;
  // With the second limit the memory could be had, and then the threads of a gateway could not.
  for (const kibs of [8_000_000, 14_000_000]) {
    const limited = `ulimit -v ${kibs}; exec "$0" --input-type=module -e "$1"`;
    const output = execFileSync('sh', ['-c', limited, process.execPath, script], { encoding: 'utf8' });
    t.equal(output, 'true 131072 false\n', `${kibs} KiB`);
  }
  t.end();
});
