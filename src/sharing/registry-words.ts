/**
 * Changes and rows as the texts that go to the server, and back. Pure; main thread.
 */
import type { RegistryRow } from '../store/registry-copy.js';
import { ValkeyError, type ValkeyReply } from './valkey-client.js';

/** A change that some host has made. */
export interface ServerChange {
  readonly version: number;
  readonly id: string;
  /** Id of the change before it. */
  readonly after: string;
  readonly rows: readonly RegistryRow[];
}

export type RowWords = readonly [string, string | false];

export function wordsOf({ table, key, value }: RegistryRow): RowWords {
  return [JSON.stringify([table, key]), value === null ? false : JSON.stringify(value)];
}

/** What it says is checked by whoever takes it: see store/registry-copy.ts. */
export function rowOf([place, value]: RowWords): RegistryRow {
  const [table, key] = JSON.parse(place) as [RegistryRow['table'], RegistryRow['key']];
  return { table, key, value: value === false ? null : (JSON.parse(value) as unknown) };
}

/** `[ 'version-0', ['id', id, 'after', id, 'rows', rows] ]` */
export function changeOf(entry: ValkeyReply): ServerChange {
  const [place, fields] = listOf(entry);
  const [, id, , after, , rows] = listOf(fields).map(textOf);
  return {
    version: Number(textOf(place).split('-', 1)[0]),
    id: id ?? '',
    after: after ?? '',
    rows: (JSON.parse(rows ?? '[]') as RowWords[]).map(rowOf),
  };
}

export function listOf(reply: ValkeyReply | undefined): ValkeyReply[] {
  if (Array.isArray(reply)) return reply;
  throw unexpected(reply);
}

export function textOf(reply: ValkeyReply | undefined): string {
  if (typeof reply === 'string') return reply;
  throw unexpected(reply);
}

export function unexpected(reply: unknown): ValkeyError {
  return new ValkeyError('refused', `the sharing server replied ${String(reply).slice(0, 100)}`);
}
