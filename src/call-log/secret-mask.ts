/**
 * Overwrites secrets in what is kept of calls, their contents and their errors: those that the gateway knows,
 * and all text in the form of a caller's key or an operator's token, of which the gateway has only digests.
 * contents-writer.ts and gateway/call-lines.ts create it. Main thread of a gateway process.
 *
 * A secret is found as plain text, escaped for JSON (once, or twice as in the arguments of a tool) or for a
 * URL, in base64 of either alphabet and any alignment, and if the text is cut within it. All forms are
 * searched for in one pass, so many secrets cost little more than few.
 *
 * Must hold: no byte outside of the given range is read as text or changed
 * (test/unit/call-log/secret-mask.test.ts).
 */

/**
 * Shorter secrets, such as dummy keys for servers without authentication, would be found in ordinary words.
 */
const SECRET_BYTES_MIN = 8;
/** How long a replaced secret is still masked: calls that began with it may still end. */
const FORMER_MS = 600_000;
/** How many replaced secrets are kept, of at most 2 KB each. Beyond it the oldest are dropped. */
const FORMER_MAX = 1_000;
/** The prefixes of callers' keys and operators' tokens. 43 characters follow: 32 bytes in base64url. */
const TOKEN_MARKS = ['sk-', 'tgop_'];
const TOKEN_CHARS = 43;
const TOKEN_RUN = /^[\w-]*/;
const BASE64_RUN = /^[\w+/-]*/;
const BITS_OF_BASE64 = 6;
/**
 * Base64 writes a group of three bytes as four characters. By the number of bytes in the group before a
 * secret (0, 1, 2): how many characters depend on those bytes, and so are not compared.
 */
const ALIGNMENTS = [0, 2, 3] as const;
const STAR = 0x2a;
/** What messages put in place of the rest of a value that they have clipped. */
const ELLIPSIS = Buffer.from('…');

/** A text to search for, of 3 bytes or more. */
interface Needle {
  readonly bytes: Buffer;
  /** Returns the end of the match at `at` in the text `from` to before `to`; undefined if there is none. */
  readonly endAt: (text: Buffer, at: number, to: number, from: number) => number | undefined;
  /** How many of its first bytes are not overwritten: the prefix of a token stays. */
  readonly shown: number;
}

export class SecretMask {
  readonly #secrets: () => readonly string[];
  /** The monotonic time at which each former secret is dropped. */
  readonly #former = new Map<string, number>();
  #known: readonly string[] = [];
  /** By the first two bytes of needles, as one number: position in `#lists`; 0 is the empty list. */
  readonly #begins = new Uint16Array(0x1_0000);
  #lists: Needle[][] = [];

  /** `secrets` returns the secrets of now. */
  constructor(secrets: () => readonly string[]) {
    this.#secrets = secrets;
    this.#build([]);
  }

  /** To be called before each batch, with monotonic time: adopts changed secrets. */
  renew(nowMs: number): void {
    const now = this.#secrets();
    const before = this.#known;
    if (now.length === before.length && now.every((secret, index) => secret === before[index])) return;
    for (const secret of before) this.#former.set(secret, nowMs + FORMER_MS);
    for (const secret of now) this.#former.delete(secret);
    for (const [secret, endMs] of this.#former)
      if (endMs <= nowMs || this.#former.size > FORMER_MAX) this.#former.delete(secret);
    this.#known = now;
    this.#build([...now, ...this.#former.keys()]);
  }

  /**
   * Overwrites the secrets in one text, from `from` to before `to`, with a star for each byte. 3 ms per MB
   * with 10 secrets, 40 with 1,000.
   */
  hide(data: Buffer, from: number, to: number): void {
    const begins = this.#begins;
    let start = from;
    let end = from;
    for (let at = from; at + 1 < to; at++) {
      const list = begins[data[at]! | (data[at + 1]! << 8)]!;
      if (list === 0) continue;
      for (const { bytes, endAt, shown } of this.#lists[list]!) {
        if (data[at + 2] !== bytes[2] || (bytes.length > 3 && data[at + 3] !== bytes[3])) continue;
        const found = endAt(data, at, to, from);
        if (found === undefined || found <= end) continue;
        // A match is overwritten later, because another secret may begin within it.
        if (at + shown > end) {
          data.fill(STAR, start, end);
          start = at + shown;
        }
        end = found;
      }
    }
    data.fill(STAR, start, end);
  }

  /** As `hide`, for a short text. */
  hidden(text: string): string {
    const data = Buffer.from(text);
    this.hide(data, 0, data.length);
    return data.toString();
  }

  #build(secrets: readonly string[]): void {
    this.#begins.fill(0);
    this.#lists = [[]];
    const forms = new Set(secrets.flatMap(formsOf));
    for (const needle of [...TOKEN_MARKS.flatMap(tokensOf), ...[...forms].map(literalOf)]) {
      const first = needle.bytes.readUInt16LE(0);
      const list = this.#begins[first]!;
      if (list === 0) this.#begins[first] = this.#lists.push([needle]) - 1;
      else this.#lists[list]!.push(needle);
    }
  }
}

/** Returns each form of the secret, in latin1. */
function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  if (bytes.length < SECRET_BYTES_MIN) return [];
  const url = encodeURIComponent(bytes.toString());
  const form = new URLSearchParams([['', secret]]).toString().slice(1);
  const encoded = [url, form].flatMap((text) => [
    text,
    text.replace(/%../g, (escape) => escape.toLowerCase()),
  ]);
  const base64 = ALIGNMENTS.flatMap((_, before) => {
    const text = base64Within(bytes, before);
    return [text, text.replaceAll('+', '-').replaceAll('/', '_')];
  });
  return [secret, ...encoded, ...base64].flatMap((text) => {
    const escaped = inJson(text);
    return [text, escaped, inJson(escaped), escaped.replaceAll('/', '\\/')].map((form) =>
      Buffer.from(form).toString('latin1'),
    );
  });
}

const inJson = (text: string): string => JSON.stringify(text).slice(1, -1);

/** Returns the base64 characters that depend only on these bytes, with `before` others before them. */
function base64Within(bytes: Buffer, before: number): string {
  const text = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64');
  return text.slice(ALIGNMENTS[before], Math.floor(((before + bytes.length) * 8) / BITS_OF_BASE64));
}

function literalOf(form: string): Needle {
  const bytes = Buffer.from(form, 'latin1');
  const endAt = (text: Buffer, at: number, to: number): number | undefined => {
    let length = 0;
    while (length < bytes.length && at + length < to && text[at + length] === bytes[length]) length++;
    const end = at + length;
    return length === bytes.length || (length >= SECRET_BYTES_MIN && isCutAt(text, end, to))
      ? end
      : undefined;
  };
  return { bytes, endAt, shown: 0 };
}

/** Returns needles for tokens that begin with `mark`, as plain text and in base64. */
function tokensOf(mark: string): Needle[] {
  const chars = mark.length + TOKEN_CHARS;
  const charsMin = mark.length + SECRET_BYTES_MIN;
  const plain: Needle = {
    bytes: Buffer.from(mark),
    endAt: (text, at, to) => {
      const length = tokenChars(text.toString('latin1', at, Math.min(to, at + chars)), mark);
      const end = at + length;
      return length === chars || (length >= charsMin && isCutAt(text, end, to)) ? end : undefined;
    },
    shown: mark.length,
  };
  const encoded = ALIGNMENTS.map((skipped, before): Needle => {
    const bytes = Buffer.from(base64Within(Buffer.from(mark), before));
    const base64Chars = Math.floor(((before + chars) * 8) / BITS_OF_BASE64);
    const endAt = (text: Buffer, at: number, to: number, from: number): number | undefined => {
      const start = at - skipped;
      if (start < from || text.compare(bytes, 0, bytes.length, at, Math.min(to, at + bytes.length)) !== 0)
        return undefined;
      // One character more, because the token's last byte ends in it.
      const [run] = BASE64_RUN.exec(text.toString('latin1', start, Math.min(to, start + base64Chars + 1)))!;
      const decoded = Buffer.from(run, 'base64').toString('latin1', before);
      const length = tokenChars(decoded.slice(0, chars), mark);
      const isCut = length === decoded.length && isCutAt(text, start + run.length, to);
      if (length !== chars && (length < charsMin || !isCut)) return undefined;
      return Math.min(start + run.length, start + base64Chars);
    };
    return { bytes, endAt, shown: 0 };
  });
  return [plain, ...encoded];
}

/** Returns the length of the token at the start of `text`, or of what there is of it; 0 if there is none. */
function tokenChars(text: string, mark: string): number {
  if (!text.startsWith(mark)) return 0;
  return mark.length + TOKEN_RUN.exec(text.slice(mark.length))![0].length;
}

/** Whether the text was cut at `at`, so that a secret which ends there may be shorter. It ends at `to`. */
function isCutAt(text: Buffer, at: number, to: number): boolean {
  const end = at + ELLIPSIS.length;
  return at === to || (end <= to && text.compare(ELLIPSIS, 0, ELLIPSIS.length, at, end) === 0);
}
