/**
 * Tells whether a value of a request names something that the provider has stored, or reads with the rights
 * of its own key: by that one caller could read what belongs to another, or to the operator. MemberReader
 * asks about the members that a Level marks. Pure; any thread.
 *
 * Must hold: a value that is not certainly public counts as stored, so that no odd spelling gets around the
 * rule (test/unit/protocol/known-members.stored.test.ts).
 */
import type { RoutingMember } from '../core/routing-members.js';

/** What a member may name. A `storage_url` is an address; a `file_id` an id, or an address as well. */
export type StoredKind = Extract<RoutingMember, 'file_id' | 'storage_url' | 'audio_id' | 'cached_content'>;

/** Control characters and spaces before an address are ignored by most readers. */
const SCHEME = /^[\0-\x20]*([a-z][a-z0-9+.-]*):/i;
/** Addresses by which everybody reads the same, and data itself. */
const PUBLIC_SCHEMES: readonly string[] = ['http', 'https', 'data'];
/** Files of Gemini: https://ai.google.dev/gemini-api/docs/files, read 2026-11. */
const GOOGLE_FILES = /generativelanguage/i;

/** What `value` names, for a member of that kind; undefined if it names nothing that is stored. */
export function storedIn(kind: StoredKind, value: unknown): StoredKind | undefined {
  if (kind !== 'file_id' && kind !== 'storage_url') return kind;
  if (typeof value !== 'string') return kind === 'file_id' ? kind : undefined;
  const scheme = SCHEME.exec(value)?.[1]!.toLowerCase();
  if (scheme === undefined) return kind === 'file_id' ? kind : undefined;
  if (!PUBLIC_SCHEMES.includes(scheme)) return 'storage_url';
  return scheme !== 'data' && GOOGLE_FILES.test(hostOf(value)) ? 'storage_url' : undefined;
}

/** The whole text, if Node cannot parse the address: an upstream may. */
function hostOf(address: string): string {
  return URL.canParse(address) ? new URL(address).hostname : address;
}
