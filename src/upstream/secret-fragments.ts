/**
 * Finds the operator's credentials in a provider's text, whole or in part, plain or encoded, so that callers
 * and logs never get them. A _fragment_ is a part of a credential, FRAGMENT_CHARS long. attempt.ts,
 * error-mapping.ts, credential-table.ts and gateway/probe-diagnosis.ts call this file. Any thread.
 *
 * Must hold: a fragment in plain text, in upper or lower case, or backwards, is cut out. An encoded fragment
 * cannot be cut out with certainty, so such a text is dropped as a whole. Parts below FRAGMENT_CHARS stay, so
 * that a masked key (`sk-ab***yz`) can be read; but a whole secret below FRAGMENT_CHARS is cut out of plain
 * text, one of up to WORD_CHARS_MAX where it is a word. A text of 1,000 characters takes less than 20 ms, and
 * the time grows with the length, so callers cut texts (test/unit/upstream/secret-fragments.test.ts).
 */
import { secretsOf, type UpstreamTarget } from './target.js';

/** Length of a fragment: so many characters in a row give a key away. */
const FRAGMENT_CHARS = 8;
/** A key this short, as servers get that take any, is a part of many words, which must stay readable. */
const WORD_CHARS_MAX = 3;
/** How many encodings, one in another, are undone. More do not happen by accident. */
const LAYERS_MAX = 2;
const MASK = '***';

/** Shorter runs than these patterns match decode to less than a fragment, as 10 characters of Base64 do. */
const BASE64_RUN = /[A-Za-z0-9+/_-]{10,}/g;
const HEX_RUN = /[0-9a-f]{16,}/gi;
/** What may stand between the bytes of hexadecimal text. */
const BETWEEN_HEX = /0x|\\x|[\s:;,._-]/gi;
/** As BETWEEN_HEX, but `0x` after a digit stays: in `736b2d70x` the zero belongs to the byte 70. */
const BETWEEN_WHOLE_HEX = /(?<![0-9a-f])0x|\\x|[\s:;,._-]/gi;
/** Letters as decimal codes, such as `115 107`. */
const CODES = /\d{2,3}/g;
/** `%2D`, `=2D` or `\x2d`; `\u002d` or `%u002d`; `\u{2d}`; `&#x2d;` or `&#x2d`. */
const HEX_ESCAPE =
  /(?:[%=]|\\x)(?<byte>[0-9a-f]{2})|[\\%]u(?<unit>[0-9a-f]{4})|\\u\{0*(?<point>[0-9a-f]{1,6})\}|&#x0*(?<entity>[0-9a-f]{2,6});?/;
/** `&#45;` or `&#45`, `\055`, and `&amp;`, by which an entity is encoded a second time. */
const OTHER_ESCAPE = /&#0*(?<decimal>\d{2,7});?|\\(?<octal>[0-7]{3})|&(?<ampersand>amp);/;
const ESCAPE = new RegExp(`${HEX_ESCAPE.source}|${OTHER_ESCAPE.source}`, 'gi');
/** Of one match of ESCAPE, exactly one group is defined. */
type EscapeGroups = Readonly<
  Record<'byte' | 'unit' | 'point' | 'entity' | 'decimal' | 'octal' | 'ampersand', string | undefined>
>;
const CODE_POINT_MAX = 0x10ffff;
const BYTE_PAIRS = 0x1_0000;

/** Looks for the same secrets in many texts. */
export class SecretFragments {
  /**
   * Secrets that are shorter than a fragment, in lower case. Such a secret is cut out only in plain text: a
   * search for so few characters encoded or backwards would reject harmless texts.
   */
  readonly #shortSecrets: readonly string[];
  /** Fragments of the secrets as they are, in lower case. */
  readonly #fragments: FragmentSet;
  /** Fragments of the secrets' letters and digits alone, for texts with separators between the letters. */
  readonly #bare: FragmentSet;

  /** `secrets` are ASCII. */
  constructor(secrets: readonly string[]) {
    const lower = secrets.map((secret) => lowerOf(secret));
    this.#shortSecrets = lower.filter(({ length }) => length > 0 && length < FRAGMENT_CHARS);
    this.#fragments = new FragmentSet(lower);
    this.#bare = new FragmentSet(lower.map(bareOf));
  }

  /** The text without fragments; undefined if the text has a fragment that cannot be cut out. */
  cleaned(text: string): string | undefined {
    const masked = this.#masked(text);
    return this.#hasFragmentIn(masked, LAYERS_MAX) ? undefined : masked;
  }

  /** The text with the mask in place of each fragment in plain text. */
  #masked(text: string): string {
    const lower = lowerOf(text);
    let masked = '';
    let position = 0;
    while (position < text.length) {
      const end = this.#fragments.endAt(lower, position) ?? this.#shortEndAt(lower, position);
      masked += end === undefined ? text[position]! : MASK;
      position = end ?? position + 1;
    }
    return masked;
  }

  #shortEndAt(lower: string, position: number): number | undefined {
    const secret = this.#shortSecrets.find(
      (text) =>
        lower.startsWith(text, position) &&
        (text.length > WORD_CHARS_MAX || isWord(lower, position, position + text.length)),
    );
    return secret === undefined ? undefined : position + secret.length;
  }

  /** Whether a fragment is in the text, or in what it decodes to. `layers`: how many decodings to try. */
  #hasFragmentIn(text: string, layers: number): boolean {
    return readingsOf(text).some((reading) => {
      const lower = lowerOf(reading);
      if (
        this.#fragments.isIn(lower) ||
        this.#fragments.isIn(printableOf(lower)) ||
        this.#bare.isIn(bareOf(lower))
      )
        return true;
      return layers > 0 && decodingsOf(reading).some((decoded) => this.#hasFragmentIn(decoded, layers - 1));
    });
  }
}

const FRAGMENTS = new WeakMap<UpstreamTarget, SecretFragments>();

/** The fragments of the upstream's credentials, made at first use; a target's credentials never change. */
export function secretFragmentsOf(target: UpstreamTarget): SecretFragments {
  let fragments = FRAGMENTS.get(target);
  if (fragments === undefined) {
    fragments = new SecretFragments(secretsOf(target));
    FRAGMENTS.set(target, fragments);
  }
  return fragments;
}

/** The fragments of some texts: their substrings of FRAGMENT_CHARS characters, forwards and backwards. */
class FragmentSet {
  readonly #fragments = new Set<string>();
  /** By `firstTwoBytesAt`: 1 if a fragment begins so. Elsewhere, nearly everywhere, no substring is made. */
  readonly #firstTwoBytes = new Uint8Array(BYTE_PAIRS);

  constructor(texts: readonly string[]) {
    for (const text of texts) {
      this.#add(text);
      this.#add(Array.from(text).reverse().join(''));
    }
  }

  /** Where the run of fragments that begins at `position` ends; undefined if none begins there. */
  endAt(text: string, position: number): number | undefined {
    if (!this.#hasAt(text, position)) return undefined;
    let lastStart = position;
    // The next fragment may begin within the last fragment or right after it.
    for (let next = position + 1; next <= lastStart + FRAGMENT_CHARS; next++)
      if (this.#hasAt(text, next)) lastStart = next;
    return lastStart + FRAGMENT_CHARS;
  }

  isIn(text: string): boolean {
    for (let position = 0; position + FRAGMENT_CHARS <= text.length; position++)
      if (this.#hasAt(text, position)) return true;
    return false;
  }

  #hasAt(text: string, position: number): boolean {
    if (this.#firstTwoBytes[firstTwoBytesAt(text, position)] !== 1) return false;
    return this.#fragments.has(text.slice(position, position + FRAGMENT_CHARS));
  }

  #add(text: string): void {
    for (let position = 0; position + FRAGMENT_CHARS <= text.length; position++) {
      this.#fragments.add(text.slice(position, position + FRAGMENT_CHARS));
      this.#firstTwoBytes[firstTwoBytesAt(text, position)] = 1;
    }
  }
}

/** The index in `#firstTwoBytes` of the two characters at `position`. */
function firstTwoBytesAt(text: string, position: number): number {
  return ((text.charCodeAt(position) & 0xff) << 8) | (text.charCodeAt(position + 1) & 0xff);
}

/** In lower case, with the same length, which `toLowerCase` of other letters than ASCII does not promise. */
function lowerOf(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/**
 * The text, and what it is if its characters are bytes of UTF-8, as decoded ones are. NFKC turns full-width
 * and other variants of letters into the letters.
 */
function readingsOf(text: string): string[] {
  const readings = [text.normalize('NFKC')];
  if (/[^\0-\x7f]/.test(text)) readings.push(Buffer.from(text, 'latin1').toString().normalize('NFKC'));
  return readings;
}

/** Printable ASCII alone: without blanks, invisible characters and the zeros of UTF-16. */
function printableOf(text: string): string {
  return text.replace(/[^!-~]+/g, '');
}

/** Whether no letter or digit stands right before `start`, or at `end`. */
function isWord(lower: string, start: number, end: number): boolean {
  return !/[0-9a-z]/.test(lower.slice(Math.max(0, start - 1), start) + lower.slice(end, end + 1));
}

/** Letters and digits alone. */
function bareOf(lower: string): string {
  return lower.replace(/[^0-9a-z]+/g, '');
}

/** What the text decodes to, whole and in parts. A run may begin within a unit: each offset is tried. */
function decodingsOf(text: string): string[] {
  const decoded: string[] = [];
  const unescaped = text.replace(ESCAPE, (escape: string, ...rest: unknown[]) => {
    // The last argument has the named groups.
    const { byte, unit, point, entity, decimal, octal, ampersand } = rest.at(-1) as EscapeGroups;
    if (ampersand !== undefined) return '&';
    const hex = byte ?? unit ?? point ?? entity;
    const code = parseInt(hex ?? octal ?? decimal!, hex !== undefined ? 16 : octal !== undefined ? 8 : 10);
    return code <= CODE_POINT_MAX ? String.fromCodePoint(code) : escape;
  });
  if (unescaped !== text) decoded.push(unescaped);
  const unspaced = text.replace(/\s+/g, '');
  for (const run of new Set([...runsOf(text, BASE64_RUN), ...runsOf(unspaced, BASE64_RUN)]))
    for (let offset = 0; offset < 4; offset++)
      decoded.push(Buffer.from(run.slice(offset), 'base64').toString('latin1'));
  const bareHex = [BETWEEN_HEX, BETWEEN_WHOLE_HEX].map((between) => text.replace(between, ''));
  for (const run of new Set(bareHex.flatMap((hex) => runsOf(hex, HEX_RUN))))
    for (let offset = 0; offset < 2; offset++)
      decoded.push(Buffer.from(run.slice(offset), 'hex').toString('latin1'));
  // Callers cut the text, so the codes are few enough to be the arguments of one function.
  const codes = runsOf(text, CODES);
  if (codes.length >= FRAGMENT_CHARS) decoded.push(String.fromCharCode(...codes.map(Number)));
  return decoded;
}

function runsOf(text: string, pattern: RegExp): string[] {
  return text.match(pattern) ?? [];
}
