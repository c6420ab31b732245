/**
 * Reads the text of a Gemini event without parsing the event, by comparing it with one that was parsed.
 * stream.ts has one TextTemplate for each stream. Pure; upstream worker.
 *
 * The form of events is that of https://ai.google.dev/api/generate-content (v1beta), read 2026-11.
 *
 * Must hold: an event that matches differs from the learned one in its text and its counts of tokens alone,
 * and what is returned is the inside of a JSON string (the test tries random edits of an event). The memory
 * is bounded by EVENT_CHARS_MAX.
 */
import { hasLiteral, jsonStringEnd } from '../../core/json.js';
import type { EscapedText } from '../chat-writer.js';

/** Matches only a member's name, because quotes inside a JSON string have a backslash. */
const TEXT_START = /"text"\s*:\s*"/g;
/** A count of tokens. The group is the literal text before the digits. */
const COUNT = /([Tt]okenCount"\s*:\s*)\d+/;
const ZERO = 0x30;
const NINE = 0x39;
/** Longer events are parsed: they are few, and a template is kept as long as the stream. */
const EVENT_CHARS_MAX = 4 * 1024;
/** After so many learned templates that no event matched, no more are learned in this stream. */
const UNMATCHED_TEMPLATES_MAX = 16;

/**
 * It learns the template of a parsed event that has only text, and takes the text out of further events that
 * match it. They differ only in the text and in the counts of tokens so far:
 *
 *     {"candidates": [{"content": {"parts": [{"text": "│ text │"}], … "candidatesTokenCount": │ 12 │, … }
 *     └──────────────────── literal ──────────────────┘        └────────── literal ──────────┘    └───┘
 *
 * An event with equal literals, and the inside of a JSON string and whole numbers between them, is JSON with
 * the same members. For 311 characters this takes 0.3 to 0.5 µs, parsing 1.6 to 1.9 µs.
 */
export class TextTemplate {
  /** The literal before the text; undefined before a template is learned. */
  #literalBefore: string | undefined;
  /** The literals after the text, between the digits of the counts. */
  #literalsAfter: readonly string[] = [];
  /** How many templates were learned since an event last matched. */
  #unmatchedTemplates = 0;

  /**
   * Learns the template of `event`, which replaces the last one. The caller has parsed the event, and found
   * one candidate with one text part and nothing else that matters (`#learn` of stream.ts checks it). Returns
   * false if the last one stays.
   */
  learn(event: string): boolean {
    if (this.#unmatchedTemplates === UNMATCHED_TEMPLATES_MAX || event.length > EVENT_CHARS_MAX) return false;
    TEXT_START.lastIndex = 0;
    if (!TEXT_START.test(event)) return false;
    const start = TEXT_START.lastIndex;
    const end = jsonStringEnd(event, start);
    if (end < 0 || TEXT_START.test(event)) return false;
    this.#unmatchedTemplates++;
    this.#literalBefore = event.slice(0, start);
    // `split` puts the captured group into every second element; the group belongs to the literal before it.
    const pieces = event.slice(end).split(COUNT);
    const literals: string[] = [];
    for (let index = 0; index < pieces.length; index += 2)
      literals.push(pieces[index]! + (pieces[index + 1] ?? ''));
    this.#literalsAfter = literals;
    return true;
  }

  /** The text of an event that matches; undefined for any other event. */
  textIn(event: string): EscapedText | undefined {
    const literalBefore = this.#literalBefore;
    if (literalBefore === undefined || !hasLiteral(event, 0, literalBefore)) return undefined;
    const end = jsonStringEnd(event, literalBefore.length);
    if (end < 0) return undefined;
    const literals = this.#literalsAfter;
    let position = end;
    for (let index = 0; index < literals.length; index++) {
      if (index > 0) {
        const digitsStart = position;
        while (isDigit(event.charCodeAt(position))) position++;
        // JSON has no number such as `007`.
        if (position > digitsStart + 1 && event.charCodeAt(digitsStart) === ZERO) return undefined;
        if (position === digitsStart) return undefined;
      }
      const literal = literals[index]!;
      if (!hasLiteral(event, position, literal)) return undefined;
      position += literal.length;
    }
    if (position !== event.length) return undefined;
    this.#unmatchedTemplates = 0;
    return event.slice(literalBefore.length, end) as EscapedText;
  }
}

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE;
}
