/** What `upstreams test` and `config check --probe` print. */
import type { ProbeView } from '../gateway/upstream-probe.js';
import { printLine, printTable } from './output.js';
import type { Column } from './table.js';

const COLUMNS: readonly Column<ProbeView>[] = [
  { title: 'model', align: 'left', cut: true, text: ({ model }) => model },
  { title: 'upstream', align: 'left', text: ({ upstream }) => upstream },
  { title: 'serves', align: 'left', text: ({ ok }) => (ok ? 'yes' : 'NO') },
  {
    title: 'first byte',
    align: 'right',
    text: ({ first_byte_ms: ms }) => (ms === null ? '-' : `${ms} ms`),
  },
  { title: 'answered by', align: 'left', cut: true, text: ({ answered_model: name }) => name ?? '-' },
  {
    title: 'usage',
    align: 'left',
    text: ({ usage_reported: reported }) => (reported === null ? '-' : reported ? 'reported' : 'none'),
  },
  { title: 'what came back', align: 'left', cut: true, text: ({ result }) => result },
];

/** The exit code is 1 if any does not serve. */
export async function printProbes(views: readonly ProbeView[]): Promise<void> {
  await printTable(COLUMNS, views, 'There is no upstream.');
  for (const { model, upstream, advice } of views)
    if (advice !== null) printLine(`${model} at ${upstream}: ${advice}`);
}

export const allServe = (views: readonly ProbeView[]): boolean => views.every(({ ok }) => ok);
