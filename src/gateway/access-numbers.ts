/**
 * Amounts and times of an access line, digit by digit from tables: thrice as fast as text made by way of BigInt and doubles. Main
 * thread of a gateway process.
 */
import { decimalOf } from '../core/money.js';
import type { PicoUnits } from '../core/units.js';
import type { LineBuffer } from '../telemetry/line-buffer.js';

const PICO_UNITS_PER_UNIT = 1e12;
const PICO_UNITS_PER_THOUSANDTH = 1e9;

/** Thousandths as three digits; the same without zeros at the end; with two digits at least, as decimals of money; as a fraction. */
const PADDED = Array.from({ length: 1_000 }, (_, thousandths) => String(thousandths).padStart(3, '0'));
const TRIMMED = PADDED.map((digits) => digits.replace(/0+$/, ''));
const MONEY = TRIMMED.map((digits) => digits.padEnd(2, '0'));
const FRACTIONS = TRIMMED.map((digits) => (digits === '' ? '' : `.${digits}`));

/** Three digits. */
export function writeThousandths(to: LineBuffer, thousandths: number): void {
  to.ascii(PADDED[thousandths]!);
}

/** As `decimalOf`, which is asked for what no double holds: nobody pays 9,000 units for a call. */
export function writeMoney(to: LineBuffer, amount: PicoUnits): void {
  const picoUnits = Number(amount);
  if (!(picoUnits >= 0 && picoUnits <= Number.MAX_SAFE_INTEGER)) {
    to.ascii(decimalOf(amount));
    return;
  }
  const units = Math.floor(picoUnits / PICO_UNITS_PER_UNIT);
  to.number(units);
  to.ascii('.');
  let rest = picoUnits - units * PICO_UNITS_PER_UNIT;
  const first = Math.floor(rest / PICO_UNITS_PER_THOUSANDTH);
  rest -= first * PICO_UNITS_PER_THOUSANDTH;
  to.ascii((rest === 0 ? MONEY : PADDED)[first]!);
  for (let scale = PICO_UNITS_PER_THOUSANDTH / 1e3; rest > 0; scale /= 1e3) {
    const digits = Math.floor(rest / scale);
    rest -= digits * scale;
    to.ascii((rest === 0 ? TRIMMED : PADDED)[digits]!);
  }
}

/** As JSON has the number, to a thousandth, the resolution of the clocks of two threads. */
export function writeMilliseconds(to: LineBuffer, timeMs: number): void {
  const thousandths = Math.round(timeMs * 1_000);
  const whole = Math.floor(thousandths / 1_000);
  to.number(whole);
  to.ascii(FRACTIONS[thousandths - whole * 1_000]!);
}
