/**
 * Finds parts of the operator's credentials in a provider's text, also if they are encoded, so that callers
 * and logs never get them. error-mapping.ts, credential-table.ts and gateway/upstream-probe.ts use it. Any
 * thread; it keeps the traces of each target.
 *
 * Must hold: a part in plain text, in upper or lower case, or backwards, is cut out. An encoded part cannot
 * be cut out with certainty, so such a text is dropped as a whole. Parts below TRACE_CHARS stay, so that a
 * masked key (`sk-ab***yz`) can be read. The time is bounded for any text
 * (test/unit/upstream/secret-traces.test.ts).
 */
import { secretsOf, type UpstreamTarget } from './target.js';

/** Length of a trace: so many characters in a row give a key away. */
const TRACE_CHARS = 8;
/** Encodings of encodings that are undone. More do not happen by accident. */
const LAYERS_MAX = 2;
const MASK = '***';

const BASE64_RUN = /[A-Za-z0-9+/_-]{10,}/g;
const HEX_RUN = /[0-9a-f]{16,}/gi;
/** What may stand between the bytes of hexadecimal text. */
const BETWEEN_HEX = /0x|\\x|[\s:;,._-]/gi;
/** The same, without the `0x` whose zero is a digit. */
const BETWEEN_WHOLE_HEX = /(?<![0-9a-f])0x|\\x|[\s:;,._-]/gi;
/** A letter as a decimal code. */
const CODES = /\d{2,3}/g;
/** `%2D`, `=2D`, `\x2d`, `\u002d`, `&#x2d;`, `&#45;`. */
const ESCAPE = /[%=]([0-9a-f]{2})|\\x([0-9a-f]{2})|\\u00([0-9a-f]{2})|&#x0*([0-9a-f]{2});|&#0*(\d{2,3});/gi;

/** Looks for the same secrets in many texts. */
export class SecretTraces {
  /**
   * Secrets that are shorter than a trace, in lower case. They are cut out only in plain text: to look for so
   * few characters encoded or backwards would reject harmless texts.
   */
  readonly #short: readonly string[];
  readonly #plain: Windows;
  /** Of the secrets' letters and digits alone, for texts with separators between them. */
  readonly #bare: Windows;

  /** `secrets` are ASCII. */
  constructor(secrets: readonly string[]) {
    const lower = secrets.map((secret) => lowerOf(secret));
    this.#short = lower.filter(({ length }) => length > 0 && length < TRACE_CHARS);
    this.#plain = new Windows(lower);
    this.#bare = new Windows(lower.map(bareOf));
  }

  /** The text without traces; undefined if it has one that cannot be cut out. */
  cleaned(text: string): string | undefined {
    const masked = this.#masked(text);
    return this.#isIn(masked, LAYERS_MAX) ? undefined : masked;
  }

  /** The text with the mask in place of each trace in plain text. */
  #masked(text: string): string {
    const lower = lowerOf(text);
    let masked = '';
    let at = 0;
    while (at < text.length) {
      const end = this.#plain.endAt(lower, at) ?? this.#shortEndAt(lower, at);
      masked += end === undefined ? text[at]! : MASK;
      at = end ?? at + 1;
    }
    return masked;
  }

  #shortEndAt(lower: string, at: number): number | undefined {
    const found = this.#short.find((secret) => lower.startsWith(secret, at));
    return found === undefined ? undefined : at + found.length;
  }

  /** Whether a trace is in the text, or in what it decodes to; `layers`: how often it may be decoded. */
  #isIn(text: string, layers: number): boolean {
    const lower = lowerOf(text.normalize('NFKC'));
    if (this.#plain.isIn(lower) || this.#plain.isIn(joinedOf(lower)) || this.#bare.isIn(bareOf(lower)))
      return true;
    return layers > 0 && decodingsOf(text).some((decoded) => this.#isIn(decoded, layers - 1));
  }
}

const TRACES = new WeakMap<UpstreamTarget, SecretTraces>();

/** The traces of the upstream's credentials, made at first use. */
export function tracesOf(target: UpstreamTarget): SecretTraces {
  let traces = TRACES.get(target);
  if (traces === undefined) {
    traces = new SecretTraces(secretsOf(target));
    TRACES.set(target, traces);
  }
  return traces;
}

/** All substrings of TRACE_CHARS characters of some texts, forwards and backwards. */
class Windows {
  readonly #pieces = new Set<string>();
  /** 1 if a piece begins with these two bytes. Nearly everywhere none does, and then no substring is made. */
  readonly #begins = new Uint8Array(0x1_0000);

  constructor(texts: readonly string[]) {
    for (const text of texts) {
      this.#add(text);
      this.#add(Array.from(text).reverse().join(''));
    }
  }

  /** Where the run of pieces that begins at `at` ends; undefined if none begins there. */
  endAt(text: string, at: number): number | undefined {
    if (!this.#hasAt(text, at)) return undefined;
    let last = at;
    // The next piece may begin within this one or right after it.
    for (let next = at + 1; next <= last + TRACE_CHARS; next++) if (this.#hasAt(text, next)) last = next;
    return last + TRACE_CHARS;
  }

  isIn(text: string): boolean {
    for (let at = 0; at + TRACE_CHARS <= text.length; at++) if (this.#hasAt(text, at)) return true;
    return false;
  }

  #hasAt(text: string, at: number): boolean {
    if (this.#begins[beginOf(text, at)] !== 1) return false;
    return this.#pieces.has(text.slice(at, at + TRACE_CHARS));
  }

  #add(text: string): void {
    for (let at = 0; at + TRACE_CHARS <= text.length; at++) {
      this.#pieces.add(text.slice(at, at + TRACE_CHARS));
      this.#begins[beginOf(text, at)] = 1;
    }
  }
}

function beginOf(text: string, at: number): number {
  return ((text.charCodeAt(at) & 0xff) << 8) | (text.charCodeAt(at + 1) & 0xff);
}

/** Keeps the length, which `toLowerCase` does not promise. */
function lowerOf(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/** Printable ASCII alone: without blanks, invisible characters and the zeros of UTF-16. */
function joinedOf(text: string): string {
  return text.replace(/[^!-~]+/g, '');
}

function bareOf(lower: string): string {
  return lower.replace(/[^0-9a-z]+/g, '');
}

/** The text as it would read if it, or a part of it, were encoded. */
function decodingsOf(text: string): string[] {
  const decoded: string[] = [];
  const unescaped = text.replace(ESCAPE, (_, ...groups: (string | undefined)[]) => {
    const [decimal] = groups.slice(4, 5);
    const hex = groups.slice(0, 4).find((group) => group !== undefined);
    return String.fromCharCode(hex === undefined ? Number(decimal) : parseInt(hex, 16));
  });
  if (unescaped !== text) decoded.push(unescaped);
  const joined = text.replace(/\s+/g, '');
  for (const run of new Set([...runsOf(text, BASE64_RUN), ...runsOf(joined, BASE64_RUN)]))
    for (let start = 0; start < 4; start++)
      decoded.push(Buffer.from(run.slice(start), 'base64').toString('latin1'));
  const bareHex = [BETWEEN_HEX, BETWEEN_WHOLE_HEX].map((between) => text.replace(between, ''));
  for (const run of new Set(bareHex.flatMap((hex) => runsOf(hex, HEX_RUN))))
    for (let start = 0; start < 2; start++)
      decoded.push(Buffer.from(run.slice(start), 'hex').toString('latin1'));
  const codes = runsOf(text, CODES);
  if (codes.length >= TRACE_CHARS) decoded.push(String.fromCharCode(...codes.map(Number)));
  return decoded;
}

function runsOf(text: string, pattern: RegExp): string[] {
  return text.match(pattern) ?? [];
}
