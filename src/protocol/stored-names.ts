/**
 * Tells whether a text of a request names something that the provider has stored, or reads with the rights of
 * its own key, so that one caller could read by it what belongs to another or to the operator. MemberReader
 * asks for the members that a Level marks. Pure; any thread.
 *
 * Must hold: what cannot be told counts as stored, so that an odd spelling is no way round
 * (test/unit/protocol/known-members.stored.test.ts).
 */
import type { RoutingMember } from '../core/routing-members.js';

/** What a member may name. A `storage_url` is an address; a `file_id` an id, or an address as well. */
export type StoredKind = Extract<RoutingMember, 'file_id' | 'storage_url' | 'audio_id' | 'cached_content'>;

/** Control characters and spaces before an address are ignored by most readers. */
const SCHEME = /^[\0-\x20]*([a-z][a-z0-9+.-]*):/i;
/** By these everybody reads the same, or the text is itself what it means. */
const PUBLIC_SCHEMES: readonly string[] = ['http', 'https', 'data'];
/** Files of Gemini: https://ai.google.dev/gemini-api/docs/files, read 2026-11. */
const GOOGLE_FILES = /generativelanguage/i;

/** What the value names by which a member of that kind is given; undefined if nothing that is stored. */
export function storedIn(kind: StoredKind, value: unknown): StoredKind | undefined {
  if (kind !== 'file_id' && kind !== 'storage_url') return kind;
  if (typeof value !== 'string') return kind === 'file_id' ? kind : undefined;
  const scheme = SCHEME.exec(value)?.[1]!.toLowerCase();
  if (scheme === undefined) return kind === 'file_id' ? kind : undefined;
  if (!PUBLIC_SCHEMES.includes(scheme)) return 'storage_url';
  return scheme !== 'data' && GOOGLE_FILES.test(hostOf(value)) ? 'storage_url' : undefined;
}

/** All of an address that is none to this reader: another may read it. */
function hostOf(address: string): string {
  return URL.canParse(address) ? new URL(address).hostname : address;
}
