/**
 * Overwrites secrets in what is stored of calls: in their contents and in their errors. Secrets are those
 * that the gateway knows, and all text in the form of a caller's key or an operator's token, of which the
 * gateway has only digests. contents-writer.ts and gateway/call-lines.ts create a SecretMask each. Main
 * thread of a gateway process.
 *
 * A secret is found as plain text, escaped for JSON (once, or twice as in the arguments of a tool) or for a
 * URL, and in base64 of either alphabet and any alignment. It is found even if the text ends within it. One
 * pass searches for all forms of all secrets.
 *
 * Must hold:
 * - No byte outside of the given range is read as text or changed.
 * - `renew` is called before each batch, else a new secret of the settings is stored in plain text.
 * - TOKEN_PREFIXES and TOKEN_CHARS are those of registry/key-digest.ts and registry/operators.ts
 *   (test/unit/call-log/secret-mask.test.ts).
 */

/**
 * Shorter secrets, such as dummy keys for servers without authentication, are not masked, because they would
 * be found in ordinary words. A secret that is cut is masked if so many bytes of it are left.
 */
const SECRET_BYTES_MIN = 8;
/** How long a former secret is still masked: calls that began with it may still end. */
const FORMER_MS = 600_000;
/** How many former secrets are masked, of at most 2 KB each. Beyond that the oldest are dropped. */
const FORMER_MAX = 1_000;
/** The prefixes of callers' keys and operators' tokens. 43 characters follow: 32 bytes in base64url. */
const TOKEN_PREFIXES = ['sk-', 'tgop_'];
const TOKEN_CHARS = 43;
/** The characters of base64url, and those of both alphabets of base64, at the start of a text. */
const TOKEN_RUN = /^[\w-]*/;
const BASE64_RUN = /^[\w+/-]*/;
const BITS_OF_BASE64 = 6;
/**
 * Base64 writes a group of three bytes as four characters. By the number of bytes in the group before a
 * secret (0, 1, 2): how many characters depend on those bytes, and so are not compared.
 */
const ALIGNMENTS = [0, 2, 3] as const;
const STAR = 0x2a;
/** What messages put in place of the characters that they have cut off a value. */
const ELLIPSIS = Buffer.from('…');

/** What is searched for: a form of a secret, or a token: a caller's key or an operator's token. */
interface Needle {
  /** The first bytes of a match, 3 or more. */
  readonly bytes: Buffer;
  /**
   * Returns the end of the match that begins at `at`; undefined if none does. The text is from `from` to
   * before `to`. The first three or four bytes of the match were compared already.
   */
  readonly matchEnd: (text: Buffer, at: number, to: number, from: number) => number | undefined;
  /** How many bytes at the start of a match are not overwritten: the prefix of a token stays. */
  readonly shownBytes: number;
}

export class SecretMask {
  readonly #secrets: () => readonly string[];
  /** The monotonic time at which each former secret is dropped. */
  readonly #formerSecrets = new Map<string, number>();
  /** What `#secrets` returned when it was called last. */
  #currentSecrets: readonly string[] = [];
  /** For two bytes, as one number: which of `#lists` has the needles that begin with them; 0 if none do. */
  readonly #listIndexes = new Uint16Array(0x1_0000);
  /** Needles that begin with the same two bytes. The list of index 0 is empty. */
  #lists: Needle[][] = [];

  /** `secrets` returns the present secrets, in an order that changes only with them. */
  constructor(secrets: () => readonly string[]) {
    this.#secrets = secrets;
    this.#build([]);
  }

  /** Takes over secrets that have changed. Call it before each batch, with the monotonic time. */
  renew(nowMs: number): void {
    const current = this.#secrets();
    const previous = this.#currentSecrets;
    const isSame = (secret: string, index: number): boolean => secret === previous[index];
    if (current.length === previous.length && current.every(isSame)) return;
    for (const secret of previous) this.#formerSecrets.set(secret, nowMs + FORMER_MS);
    for (const secret of current) this.#formerSecrets.delete(secret);
    // A map keeps the order in which entries were added, so the oldest come first.
    for (const [secret, endMs] of this.#formerSecrets)
      if (endMs <= nowMs || this.#formerSecrets.size > FORMER_MAX) this.#formerSecrets.delete(secret);
    this.#currentSecrets = current;
    this.#build([...current, ...this.#formerSecrets.keys()]);
  }

  /**
   * Overwrites the secrets in one text, from `from` to before `to`, with a star for each byte. Takes 3 ms per
   * MB with 10 secrets, and 40 ms with 1,000.
   */
  hide(data: Buffer, from: number, to: number): void {
    const listIndexes = this.#listIndexes;
    // The range of the matches that are not overwritten yet.
    let pendingStart = from;
    let pendingEnd = from;
    for (let at = from; at + 1 < to; at++) {
      const listIndex = listIndexes[data[at]! | (data[at + 1]! << 8)]!;
      if (listIndex === 0) continue;
      for (const { bytes, matchEnd, shownBytes } of this.#lists[listIndex]!) {
        if (data[at + 2] !== bytes[2] || (bytes.length > 3 && data[at + 3] !== bytes[3])) continue;
        const foundEnd = matchEnd(data, at, to, from);
        if (foundEnd === undefined || foundEnd <= pendingEnd) continue;
        // A match is overwritten only when the next one begins after it, because secrets may overlap.
        if (at + shownBytes > pendingEnd) {
          data.fill(STAR, pendingStart, pendingEnd);
          pendingStart = at + shownBytes;
        }
        pendingEnd = foundEnd;
      }
    }
    data.fill(STAR, pendingStart, pendingEnd);
  }

  /** Returns a short text with its secrets overwritten as `hide` does. */
  hidden(text: string): string {
    const data = Buffer.from(text);
    this.hide(data, 0, data.length);
    return data.toString();
  }

  /** Makes the needles of secrets and tokens. A Set, because most forms of most secrets are equal. */
  #build(secrets: readonly string[]): void {
    this.#listIndexes.fill(0);
    this.#lists = [[]];
    const forms = new Set(secrets.flatMap(formsOf));
    const needles = [...TOKEN_PREFIXES.flatMap(tokenNeedles), ...[...forms].map(formNeedle)];
    for (const needle of needles) {
      const firstBytes = needle.bytes.readUInt16LE(0);
      const listIndex = this.#listIndexes[firstBytes]!;
      if (listIndex === 0) this.#listIndexes[firstBytes] = this.#lists.push([needle]) - 1;
      else this.#lists[listIndex]!.push(needle);
    }
  }
}

/** Returns each form of the secret as latin1, a character for each byte; none if the secret is too short. */
function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  if (bytes.length < SECRET_BYTES_MIN) return [];
  const url = encodeURIComponent(bytes.toString());
  // As in a form that a browser sends, which differs for spaces and some signs. The slice removes the `=`.
  const urlForm = new URLSearchParams([['', secret]]).toString().slice(1);
  const encoded = [url, urlForm].flatMap((text) => [
    text,
    text.replace(/%../g, (escape) => escape.toLowerCase()),
  ]);
  const base64 = ALIGNMENTS.flatMap((_, bytesBefore) => {
    const text = base64Within(bytes, bytesBefore);
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

/** Returns the base64 characters that depend only on `bytes`, before which their group has `bytesBefore`. */
function base64Within(bytes: Buffer, bytesBefore: number): string {
  const text = Buffer.concat([Buffer.alloc(bytesBefore), bytes]).toString('base64');
  return text.slice(ALIGNMENTS[bytesBefore], Math.floor(((bytesBefore + bytes.length) * 8) / BITS_OF_BASE64));
}

/** Returns the needle for one form: all of it, or its first bytes if the text ends or is cut there. */
function formNeedle(form: string): Needle {
  const bytes = Buffer.from(form, 'latin1');
  const matchEnd = (text: Buffer, at: number, to: number): number | undefined => {
    let length = 0;
    while (length < bytes.length && at + length < to && text[at + length] === bytes[length]) length++;
    const end = at + length;
    return length === bytes.length || (length >= SECRET_BYTES_MIN && isCutAt(text, end, to))
      ? end
      : undefined;
  };
  return { bytes, matchEnd, shownBytes: 0 };
}

/** Returns needles for tokens that begin with `prefix`, as plain text and in base64. */
function tokenNeedles(prefix: string): Needle[] {
  const chars = prefix.length + TOKEN_CHARS;
  const charsMin = prefix.length + SECRET_BYTES_MIN;
  const plain: Needle = {
    bytes: Buffer.from(prefix),
    matchEnd: (text, at, to) => {
      const length = tokenCharsIn(text.toString('latin1', at, Math.min(to, at + chars)), prefix);
      const end = at + length;
      return length === chars || (length >= charsMin && isCutAt(text, end, to)) ? end : undefined;
    },
    shownBytes: prefix.length,
  };
  const encoded = ALIGNMENTS.map((skippedChars, bytesBefore): Needle => {
    const bytes = Buffer.from(base64Within(Buffer.from(prefix), bytesBefore));
    const base64Chars = Math.floor(((bytesBefore + chars) * 8) / BITS_OF_BASE64);
    const matchEnd = (text: Buffer, at: number, to: number, from: number): number | undefined => {
      const start = at - skippedChars;
      if (start < from || text.compare(bytes, 0, bytes.length, at, Math.min(to, at + bytes.length)) !== 0)
        return undefined;
      // One character more, because the token's last byte may end in the next character.
      const [run] = BASE64_RUN.exec(text.toString('latin1', start, Math.min(to, start + base64Chars + 1)))!;
      const decoded = Buffer.from(run, 'base64').toString('latin1', bytesBefore);
      const length = tokenCharsIn(decoded.slice(0, chars), prefix);
      const isCut = length === decoded.length && isCutAt(text, start + run.length, to);
      if (length !== chars && (length < charsMin || !isCut)) return undefined;
      return Math.min(start + run.length, start + base64Chars);
    };
    return { bytes, matchEnd, shownBytes: 0 };
  });
  return [plain, ...encoded];
}

/** Returns how many characters of a token, whole or cut, `text` begins with; 0 if it begins with none. */
function tokenCharsIn(text: string, prefix: string): number {
  if (!text.startsWith(prefix)) return 0;
  return prefix.length + TOKEN_RUN.exec(text.slice(prefix.length))![0].length;
}

/** Whether the text ends at `at` (`to` is its end) or was cut there, so that a secret may be incomplete. */
function isCutAt(text: Buffer, at: number, to: number): boolean {
  const ellipsisEnd = at + ELLIPSIS.length;
  return (
    at === to || (ellipsisEnd <= to && text.compare(ELLIPSIS, 0, ELLIPSIS.length, at, ellipsisEnd) === 0)
  );
}
