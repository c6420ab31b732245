/**
 * Walks over the members of one JSON object in its text, for what a parsed value no longer tells: where a value stands, and
 * whether a name was given twice. Pure; any thread.
 *
 * The text must be one that JSON.parse took. Nothing recurses, so no nesting is too deep; strings are skipped by indexOf,
 * which reads many characters at a time.
 */
import { invariant } from '../core/errors.js';

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const BACKSLASH = 92;
const OPEN = 123;
const CLOSE = 125;
/** `[` and `]` are `{` and `}` but for this bit. */
const CURLY_BIT = 32;

/**
 * Stands before the first member at first. `text[open]` is the object's opening brace. After a next() that was true the
 * four fields name one member; after one that was false `end` is the index of the closing brace.
 */
export class MemberCursor {
  /** Span of the name without its quotes. */
  nameStart = 0;
  nameEnd = 0;
  /** Span of the value, with the quotes or brackets it has. */
  valueStart = 0;
  valueEnd = 0;
  end = 0;
  readonly #text: string;
  #at: number;
  #isEscaped = false;

  constructor(text: string, open: number) {
    this.#text = text;
    this.#at = open + 1;
  }

  /** Steps to the next member; false after the last. Linear in the member's length. */
  next(): boolean {
    const text = this.#text;
    let at = this.#at;
    let code = text.charCodeAt(at);
    while (code !== QUOTE && code !== CLOSE && at < text.length) code = text.charCodeAt(++at);
    if (code === CLOSE) {
      this.#at = at;
      this.end = at;
      return false;
    }
    this.nameStart = ++at;
    this.#isEscaped = false;
    for (; (code = text.charCodeAt(at)) !== QUOTE && at < text.length; at++) {
      if (code !== BACKSLASH) continue;
      this.#isEscaped = true;
      at++;
    }
    this.nameEnd = at++;
    while (text.charCodeAt(at) !== COLON && at < text.length) at++;
    do at++;
    while (text.charCodeAt(at) <= 32);
    this.valueStart = at;
    this.#at = this.valueEnd = valueEnd(text, at);
    return true;
  }

  /** The member's name, decoded. */
  name(): string {
    const { nameStart, nameEnd } = this;
    if (!this.#isEscaped) return this.#text.slice(nameStart, nameEnd);
    return JSON.parse(this.#text.slice(nameStart - 1, nameEnd + 1)) as string;
  }

  /** Whether the member's name, decoded, is `name`; allocates nothing for a name without escapes. */
  isNamed(name: string): boolean {
    if (this.#isEscaped) return this.name() === name;
    return this.nameEnd - this.nameStart === name.length && this.#text.startsWith(name, this.nameStart);
  }
}

/** Index after the value that starts at `at`. */
function valueEnd(text: string, at: number): number {
  const code = text.charCodeAt(at);
  if (code === QUOTE) return stringEnd(text, at);
  if ((code | CURLY_BIT) === OPEN) return containerEnd(text, at);
  for (let end = at; end < text.length; end++) {
    const follower = text.charCodeAt(end);
    if (follower === COMMA || follower === CLOSE || follower <= 32) return end;
  }
  throw new Error('invariant broken: a scanned value ends within its object');
}

/** Index after the closing quote of the string whose opening quote is at `open`. */
function stringEnd(text: string, open: number): number {
  let quote = open;
  for (;;) {
    quote = text.indexOf('"', quote + 1);
    invariant(quote !== -1, 'a scanned string ends within its text');
    // An odd number of backslashes before it makes it a quote within the string.
    let before = quote;
    while (text.charCodeAt(before - 1) === BACKSLASH) before--;
    if ((quote - before) % 2 === 0) return quote + 1;
  }
}

/** Index after the bracket that closes the one at `open`. */
function containerEnd(text: string, open: number): number {
  let depth = 0;
  for (let at = open; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) at = stringEnd(text, at) - 1;
    else if ((code | CURLY_BIT) === OPEN) depth++;
    else if ((code | CURLY_BIT) === CLOSE && --depth === 0) return at + 1;
  }
  throw new Error('invariant broken: a scanned bracket is closed within its text');
}
