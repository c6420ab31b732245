/**
 * The steps of quota-batch.ts on 64-bit words, as the text of a WebAssembly module over the memory of quota
 * records. Atomics of JavaScript make BigInts of such words; those of this module take a third of the time
 * and leave no garbage. scripts/build-module.mjs makes bytes of the text (generated-module.d.ts), by the
 * assembler of WABT, which refuses what it does not know. Any thread, each with an instance of its own.
 *
 * An entry, 32 bytes, is one quota of one scope:
 *
 *     0  i32              address of `taken`; `settled` is the next word
 *     4  i32  head        the period modulo 2,048; of a window the tick: to `take` the first that weighs, to
 *                         `settle` now
 *     8  f64  amount      what is taken; of `settle`: what was held
 *    16  f64  limit       `take` replaces it by what is left of it; of `settle`: what was used
 *    24  i32  status      how far `settle` has come
 *    28  i32  tickStart   of a window the address of the start of that tick, else 0
 *
 * `take` takes of all entries and returns 1, or takes of none and returns 0: it rejects no call, and begins
 * no period and no tick. stocks.ts and token-window.ts do that, and `settle` leaves them what a call used
 * beyond its hold. The layout of the words, and why each step is right, are in these two files. Where they
 * add and check afterwards, `$change` compares and exchanges.
 *
 * Must hold: what those files do to a word for such an entry, this module does. Test:
 * test/unit/ledger/quota-batch.test.ts (two ledgers side by side).
 */
import { invariant } from '../core/errors.js';
import { LAST_STARTED_TICK, STOCK_SETTLED, STOCKS, STOCK_WORDS, TOKENS_PER_MINUTE } from './layout.js';
import { AMOUNT_MAX, PERIOD_BITS } from './stocks.js';
import { TICK_BITS } from './token-window.js';
import { TICKS_PER_MINUTE } from './window.js';

/** The length of an entry, and where its fields are, in bytes. quota-batch.ts writes them. */
export const ENTRY = { bytes: 32, head: 4, amount: 8, limit: 16, status: 24, tickStart: 28 } as const;

const onesOf = (bits: number): string => `0x${((1n << BigInt(bits)) - 1n).toString(16)}`;
/** A word of a stock has the period above the amount, a word of the window the tick above the tokens. */
const PERIOD_SHIFT = 64 - PERIOD_BITS;
const AMOUNT_MASK = onesOf(PERIOD_SHIFT);
const TICK_SHIFT = 64 - TICK_BITS;
const TOKENS_MASK = onesOf(TICK_SHIFT);
const TICK_MASK = onesOf(TICK_BITS);
/** After so many lost exchanges the module leaves the quota to stocks.ts. */
const TRIES_MAX = 1_000;
/** The `max` of a change that no limit bounds. */
const NO_MAX = onesOf(63);
/** By how many bytes `settled` lies behind its `taken`. */
const SETTLED_BYTES = 8 * STOCK_SETTLED;

/** By how many bytes `last` of the window lies before its `taken`. */
const LAST_BYTES = 8 * (STOCKS + TOKENS_PER_MINUTE * STOCK_WORDS) - 4 * LAST_STARTED_TICK;
invariant(LAST_BYTES > 0, 'in a quota record `last` is before the stocks');

/** Results of `settle`, and in its entries: all is done; nothing; what was used is added to `settled`. */
export const SETTLED = 0;
export const UNSETTLED = 1;
export const HALF_SETTLED = 2;

/** Returns the text. The build alone calls it, so no bundle has the text. */
export const quotaModuleText = (): string => `
(module
(import "js" "memory" (memory 1 65536 shared))

;; Adds to the amount of a stock of that period. Returns what is then left of max; -1 if nothing was added.
(func $change (param $at i32) (param $period i32) (param $amount i64) (param $max i64) (result i64)
  (local $word i64) (local $before i64) (local $there i64) (local $sum i64) (local $tries i32)
  (local.set $word (i64.atomic.load (local.get $at)))
  (loop $again
    (if (i32.ne (i32.wrap_i64 (i64.shr_u (local.get $word) (i64.const ${PERIOD_SHIFT}))) (local.get $period))
      (then (return (i64.const -1))))
    (local.set $there (i64.and (local.get $word) (i64.const ${AMOUNT_MASK})))
    (local.set $sum (i64.add (local.get $there) (local.get $amount)))
    (if (i64.ge_s (local.get $there) (local.get $max)) (then (return (i64.const -1))))
    (if (i64.gt_s (local.get $sum) (local.get $max)) (then (return (i64.const -1))))
    (if (i64.lt_s (local.get $sum) (i64.const 0)) (then (return (i64.const -1))))
    (local.set $before (i64.atomic.rmw.cmpxchg
      (local.get $at) (local.get $word) (i64.add (local.get $word) (local.get $amount))))
    (if (i64.eq (local.get $before) (local.get $word))
      (then (return (i64.sub (local.get $max) (local.get $sum)))))
    (local.set $word (local.get $before))
    (local.set $tries (i32.add (local.get $tries) (i32.const 1)))
    (br_if $again (i32.lt_u (local.get $tries) (i32.const ${TRIES_MAX}))))
  (i64.const -1))

;; As $change, of the window of tokens. taken is read before the tick start, as token-window.ts says.
(func $takeTokens (param $at i32) (param $tick i32) (param $start i32) (param $amount i64) (param $max i64)
  (result i64)
  (local $word i64) (local $begun i64) (local $weight i64)
  (local.set $word (i64.atomic.load (local.get $at)))
  ;; The clock of another thread is ahead.
  (if (i32.gt_s (i32.atomic.load (i32.sub (local.get $at) (i32.const ${LAST_BYTES})))
      (i32.add (local.get $tick) (i32.const ${TICKS_PER_MINUTE})))
    (then (return (i64.const -1))))
  (local.set $begun (i64.atomic.load (local.get $start)))
  (if (i32.ne (i32.wrap_i64 (i64.shr_u (local.get $begun) (i64.const ${TICK_SHIFT})))
      (i32.and (local.get $tick) (i32.const ${TICK_MASK})))
    (then (return (i64.const -1))))
  (local.set $weight (i64.and (i64.sub (local.get $word) (local.get $begun)) (i64.const ${TOKENS_MASK})))
  (if (i64.ge_s (local.get $weight) (local.get $max)) (then (return (i64.const -1))))
  (local.set $weight (i64.add (local.get $weight) (local.get $amount)))
  (if (i64.gt_s (local.get $weight) (local.get $max)) (then (return (i64.const -1))))
  (if (i64.ne (local.get $word) (i64.atomic.rmw.cmpxchg
      (local.get $at) (local.get $word) (i64.add (local.get $word) (local.get $amount))))
    (then (return (i64.const -1))))
  (i64.sub (local.get $max) (local.get $weight)))

;; Takes entry by entry. If one has too little left, what the entries before took goes back: 0.
(func $take (export "take") (param $first i32) (param $end i32) (result i32)
  (local $entry i32) (local $at i32) (local $head i32) (local $start i32)
  (local $amount i64) (local $max i64) (local $left i64)
  (local.set $entry (local.get $first))
  (block $refused
    (loop $next
      (local.set $at (i32.load (local.get $entry)))
      (local.set $head (i32.load offset=${ENTRY.head} (local.get $entry)))
      (local.set $amount (i64.trunc_sat_f64_s (f64.load offset=${ENTRY.amount} (local.get $entry))))
      (local.set $max (i64.trunc_sat_f64_s (f64.load offset=${ENTRY.limit} (local.get $entry))))
      (local.set $start (i32.load offset=${ENTRY.tickStart} (local.get $entry)))
      (local.set $left (if (result i64) (local.get $start)
        (then (call $takeTokens (local.get $at) (local.get $head) (local.get $start) (local.get $amount)
          (local.get $max)))
        (else (call $change (local.get $at) (local.get $head) (local.get $amount) (local.get $max)))))
      (br_if $refused (i64.lt_s (local.get $left) (i64.const 0)))
      (f64.store offset=${ENTRY.limit} (local.get $entry) (f64.convert_i64_s (local.get $left)))
      (local.set $entry (i32.add (local.get $entry) (i32.const ${ENTRY.bytes})))
      (br_if $next (i32.lt_u (local.get $entry) (local.get $end))))
    (return (i32.const 1)))
  ;; What was taken goes back. A stock whose period is over by now keeps nothing of it.
  (block $done
    (loop $undo
      (br_if $done (i32.eqz (i32.ne (local.get $entry) (local.get $first))))
      (local.set $entry (i32.sub (local.get $entry) (i32.const ${ENTRY.bytes})))
      (local.set $at (i32.load (local.get $entry)))
      (local.set $amount (i64.trunc_sat_f64_s (f64.load offset=${ENTRY.amount} (local.get $entry))))
      (if (i32.load offset=${ENTRY.tickStart} (local.get $entry))
        (then (drop (i64.atomic.rmw.sub (local.get $at) (local.get $amount))))
        (else (drop (call $change (local.get $at) (i32.load offset=${ENTRY.head} (local.get $entry))
          (i64.sub (i64.const 0) (local.get $amount)) (i64.const ${NO_MAX})))))
      (br $undo)))
  (i32.const 0))

;; Settles each entry by itself: adds what was used to settled, and only then takes the rest of the hold off
;; taken, so that a thread that ends in between leaves its own call held. Returns the statuses, joined by or.
(func $settle (export "settle") (param $entry i32) (param $end i32) (result i32)
  (local $at i32) (local $head i32) (local $held i64) (local $used i64) (local $status i32) (local $all i32)
  (loop $next
    (local.set $at (i32.load (local.get $entry)))
    (local.set $head (i32.load offset=${ENTRY.head} (local.get $entry)))
    (local.set $held (i64.trunc_sat_f64_s (f64.load offset=${ENTRY.amount} (local.get $entry))))
    (local.set $used (i64.trunc_sat_f64_s (f64.load offset=${ENTRY.limit} (local.get $entry))))
    (local.set $status (i32.const ${UNSETTLED}))
    ;; What was used beyond the hold needs the other classes.
    (block $end
      (br_if $end (i64.gt_s (local.get $used) (local.get $held)))
      (if (i32.load offset=${ENTRY.tickStart} (local.get $entry))
        (then
          (if (i64.ne (local.get $used) (i64.const 0)) (then
            (br_if $end (i32.lt_s (i32.atomic.load (i32.sub (local.get $at) (i32.const ${LAST_BYTES})))
              (local.get $head)))
            (drop (i64.atomic.rmw.add (i32.add (local.get $at) (i32.const ${SETTLED_BYTES})) (local.get $used)))))
          (drop (i64.atomic.rmw.sub (local.get $at) (i64.sub (local.get $held) (local.get $used)))))
        (else
          (if (i64.ne (local.get $used) (i64.const 0)) (then
            (br_if $end (i64.lt_s (call $change (i32.add (local.get $at) (i32.const ${SETTLED_BYTES})) (local.get $head)
              (local.get $used) (i64.const ${AMOUNT_MAX})) (i64.const 0)))
            (local.set $status (i32.const ${HALF_SETTLED}))))
          (if (i64.ne (local.get $held) (local.get $used)) (then
            (br_if $end (i64.lt_s (call $change (local.get $at) (local.get $head)
              (i64.sub (local.get $used) (local.get $held)) (i64.const ${NO_MAX}))
              (i64.const 0)))))))
      (local.set $status (i32.const ${SETTLED})))
    (i32.store offset=${ENTRY.status} (local.get $entry) (local.get $status))
    (local.set $all (i32.or (local.get $all) (local.get $status)))
    (local.set $entry (i32.add (local.get $entry) (i32.const ${ENTRY.bytes})))
    (br_if $next (i32.lt_u (local.get $entry) (local.get $end))))
  (local.get $all)))
`;
