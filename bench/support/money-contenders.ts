/**
 * Ways to keep the money of accounts that several threads spend, behind one interface: the ledger's own and
 * those that it is measured against. Any thread.
 */
import { asAccountIndex, asPicoUnits, type AccountIndex } from '#src/core/units.js';
import { Balance } from '#src/ledger/balance.js';
import { createLedgerBuffers, openLedgerViews, type LedgerBuffers } from '#src/ledger/layout.js';

export interface MoneyKeeper {
  set(account: number, credited: bigint): void;
  /** Takes `amount` out of what is available, or nothing: false where it is not there. */
  hold(account: number, amount: bigint): boolean;
  /** `cost` of what was held is spent, the rest is available again. */
  settle(account: number, held: bigint, cost: bigint): void;
  available(account: number): bigint;
  spent(account: number): bigint;
}

/** Memory that all threads open; each contender takes its own. */
export interface MoneyBuffers {
  readonly ledger: LedgerBuffers;
  readonly words: SharedArrayBuffer;
}

/** Word 0 is the mutex, or unused; an account's record is one cache line, from the second on. */
const RECORD_BYTES = 64;

export function createMoneyBuffers(accounts: number): MoneyBuffers {
  return {
    ledger: createLedgerBuffers({ accountsMax: accounts, callsInFlightMax: 1 }),
    words: new SharedArrayBuffer((accounts + 1) * RECORD_BYTES),
  };
}

/** What the gateway uses: 64-bit words, changed by compare-exchange and add. */
class LedgerKeeper implements MoneyKeeper {
  readonly #balance: Balance;
  constructor({ ledger }: MoneyBuffers) {
    this.#balance = new Balance(openLedgerViews(ledger));
  }
  set(account: number, credited: bigint): void {
    this.#balance.set(asAccountIndex(account), asPicoUnits(credited), asPicoUnits(0n), asPicoUnits(0n));
  }
  hold(account: number, amount: bigint): boolean {
    return this.#balance.hold(account as AccountIndex, asPicoUnits(amount));
  }
  settle(account: number, held: bigint, cost: bigint): void {
    this.#balance.settle(account as AccountIndex, asPicoUnits(held), asPicoUnits(cost));
  }
  available(account: number): bigint {
    return this.#balance.available(asAccountIndex(account));
  }
  spent(account: number): bigint {
    return this.#balance.read(asAccountIndex(account)).spent;
  }
}

/** A thread's own objects: what one thread would do. Other threads have other objects. */
class ObjectKeeper implements MoneyKeeper {
  readonly #accounts: { available: bigint; spent: bigint }[] = [];
  set(account: number, credited: bigint): void {
    this.#accounts[account] = { available: credited, spent: 0n };
  }
  hold(account: number, amount: bigint): boolean {
    const record = this.#accounts[account]!;
    if (record.available < amount) return false;
    record.available -= amount;
    return true;
  }
  settle(account: number, held: bigint, cost: bigint): void {
    const record = this.#accounts[account]!;
    record.available += held - cost;
    record.spent += cost;
  }
  available(account: number): bigint {
    return this.#accounts[account]!.available;
  }
  spent(account: number): bigint {
    return this.#accounts[account]!.spent;
  }
}

const AVAILABLE = 1;
const SPENT = 2;

/** Shared 64-bit words without atomics. */
class PlainKeeper implements MoneyKeeper {
  protected readonly words: BigInt64Array;
  constructor({ words }: MoneyBuffers) {
    this.words = new BigInt64Array(words);
  }
  set(account: number, credited: bigint): void {
    this.words[(account + 1) * 8 + AVAILABLE] = credited;
    this.words[(account + 1) * 8 + SPENT] = 0n;
  }
  hold(account: number, amount: bigint): boolean {
    const index = (account + 1) * 8 + AVAILABLE;
    if (this.words[index]! < amount) return false;
    this.words[index]! -= amount;
    return true;
  }
  settle(account: number, held: bigint, cost: bigint): void {
    this.words[(account + 1) * 8 + AVAILABLE]! += held - cost;
    this.words[(account + 1) * 8 + SPENT]! += cost;
  }
  available(account: number): bigint {
    return this.words[(account + 1) * 8 + AVAILABLE]!;
  }
  spent(account: number): bigint {
    return this.words[(account + 1) * 8 + SPENT]!;
  }
}

const FREE = 0;
const LOCKED = 1;
const CONTENDED = 2;
/** Longer than any holder can be put aside; a lock that is not had by then is a bug. */
const LOCK_TIMEOUT_MS = 10_000;

/**
 * One lock for all accounts: a word that others wait at (the three-state mutex of Drepper, "Futexes are
 * tricky").
 */
class MutexKeeper extends PlainKeeper {
  readonly #lock: Int32Array;
  constructor(buffers: MoneyBuffers) {
    super(buffers);
    this.#lock = new Int32Array(buffers.words);
  }
  override hold(account: number, amount: bigint): boolean {
    this.#take();
    const done = super.hold(account, amount);
    this.#give();
    return done;
  }
  override settle(account: number, held: bigint, cost: bigint): void {
    this.#take();
    super.settle(account, held, cost);
    this.#give();
  }
  #take(): void {
    if (Atomics.compareExchange(this.#lock, 0, FREE, LOCKED) === FREE) return;
    while (Atomics.exchange(this.#lock, 0, CONTENDED) !== FREE) {
      if (Atomics.wait(this.#lock, 0, CONTENDED, LOCK_TIMEOUT_MS) === 'timed-out')
        throw new Error('the lock was not given back');
    }
  }
  #give(): void {
    if (Atomics.exchange(this.#lock, 0, FREE) === CONTENDED) Atomics.notify(this.#lock, 0, 1);
  }
}

const LOW = 2 ** 32;
/** Of an account's record in 32-bit words. */
const SEQUENCE = 0;
const AVAILABLE_LOW = 2;
const SPENT_LOW = 4;

/** Amounts as a low and a high word, no bigint in memory; an account is changed while its sequence is odd. */
class PairedKeeper implements MoneyKeeper {
  readonly #words: Uint32Array;
  constructor({ words }: MoneyBuffers) {
    this.#words = new Uint32Array(words);
  }
  set(account: number, credited: bigint): void {
    const first = (account + 1) * 16;
    this.#words[first + SEQUENCE] = 0;
    this.#words[first + AVAILABLE_LOW] = Number(credited & 0xffff_ffffn);
    this.#words[first + AVAILABLE_LOW + 1] = Number(credited >> 32n);
    this.#words[first + SPENT_LOW] = 0;
    this.#words[first + SPENT_LOW + 1] = 0;
  }
  hold(account: number, amount: bigint): boolean {
    const first = (account + 1) * 16;
    const low = Number(BigInt.asUintN(32, amount));
    const high = Number(BigInt.asUintN(32, amount >> 32n));
    this.#begin(first);
    const haveLow = this.#words[first + AVAILABLE_LOW]!;
    const haveHigh = this.#words[first + AVAILABLE_LOW + 1]!;
    const enough = haveHigh > high || (haveHigh === high && haveLow >= low);
    if (enough) this.#addTo(first + AVAILABLE_LOW, -low, -high);
    Atomics.add(this.#words, first + SEQUENCE, 1);
    return enough;
  }
  settle(account: number, held: bigint, cost: bigint): void {
    const first = (account + 1) * 16;
    const back = held - cost;
    const [costLow, costHigh] = [Number(BigInt.asUintN(32, cost)), Number(BigInt.asUintN(32, cost >> 32n))];
    const [backLow, backHigh] = [Number(BigInt.asUintN(32, back)), Number(BigInt.asUintN(32, back >> 32n))];
    this.#begin(first);
    this.#addTo(first + AVAILABLE_LOW, backLow, backHigh);
    this.#addTo(first + SPENT_LOW, costLow, costHigh);
    Atomics.add(this.#words, first + SEQUENCE, 1);
  }
  available(account: number): bigint {
    return this.#read((account + 1) * 16 + AVAILABLE_LOW);
  }
  spent(account: number): bigint {
    return this.#read((account + 1) * 16 + SPENT_LOW);
  }
  #read(index: number): bigint {
    return (BigInt(this.#words[index + 1]!) << 32n) | BigInt(this.#words[index]!);
  }
  #addTo(index: number, low: number, high: number): void {
    const sum = this.#words[index]! + low;
    const carry = sum >= LOW ? 1 : sum < 0 ? -1 : 0;
    this.#words[index] = sum - carry * LOW;
    this.#words[index + 1]! += high + carry;
  }
  /** Spins: who is put aside in here holds up everybody, which is why the ledger is not built like this. */
  #begin(first: number): void {
    for (;;) {
      const sequence = Atomics.load(this.#words, first + SEQUENCE);
      if (sequence % 2 === 1) continue;
      const odd = sequence + 1;
      if (Atomics.compareExchange(this.#words, first + SEQUENCE, sequence, odd) === sequence) return;
    }
  }
}

export const MONEY_KEEPERS: readonly {
  readonly name: string;
  readonly create: (buffers: MoneyBuffers) => MoneyKeeper;
  /** Whether several threads may use it. */
  readonly shared: boolean;
}[] = [
  { name: 'ledger (64-bit atomics)', create: (buffers) => new LedgerKeeper(buffers), shared: true },
  { name: 'paired 32-bit words, lock each', create: (buffers) => new PairedKeeper(buffers), shared: true },
  { name: 'one mutex', create: (buffers) => new MutexKeeper(buffers), shared: true },
  { name: 'shared words, no atomics', create: (buffers) => new PlainKeeper(buffers), shared: true },
  { name: 'plain object', create: () => new ObjectKeeper(), shared: false },
];
