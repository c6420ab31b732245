/**
 * The texts of a call: a row of a table, a line, its fields, its timeline and its contents. call-commands.ts
 * prints them. Pure.
 */
import type { CallView, ContentsView } from '../admin/call-routes.js';
import type { Column } from './table.js';

export const CALL_COLUMNS: readonly Column<CallView>[] = [
  { title: 'ENDED', text: ({ time }) => endedText(time) },
  { title: 'REQUEST ID', text: ({ request_id: id }) => id },
  { title: 'ACCOUNT', text: accountText, cut: true },
  { title: 'MODEL', text: ({ model }) => model ?? '-', cut: true },
  { title: 'UPSTREAM', text: ({ upstream }) => upstream ?? '-', cut: true },
  { title: 'STATUS', text: ({ status }) => String(status ?? '-'), align: 'right' },
  { title: 'CODE', text: ({ code }) => code ?? '' },
  { title: 'TOKENS', text: tokensText, align: 'right' },
  { title: 'COST', text: ({ cost }) => cost ?? '-', align: 'right' },
  { title: 'MS', text: ({ duration_ms: ms }) => ms.toFixed(0), align: 'right' },
];

/** Returns the columns of a call as one line, for `calls tail`: widths of calls to come are not known. */
export function lineOf(call: CallView): string {
  return CALL_COLUMNS.map(({ text }) => text(call)).join('  ');
}

/**
 * Returns a blank line, a title and the lines of a request or a response. Tabs and the line breaks of HTTP
 * are no control characters here: indented JSON and events have them.
 */
export function contentsLines(title: string, { text, bytes, cut }: ContentsView['request']): string[] {
  return [
    '',
    `${title}, ${bytes} bytes${cut ? ', of which the beginning is kept' : ''}:`,
    ...text.split(/\r?\n/).map((line) => line.replaceAll('\t', '    ')),
  ];
}

/** Returns the fields of a call, for `printFields` (output.ts). */
export function fieldsOf(call: CallView): (readonly [string, string])[] {
  const { model, answered_model: answered } = call;
  return [
    ['request id', call.request_id],
    ['account', namedText(call.account, call.account_name, 'not in the books of this host')],
    ['key', namedText(call.key, call.key_name, 'deleted')],
    ['route', `${call.route}${call.stream ? ', streamed' : ''}`],
    ['model', `${model ?? '-'}${answered === null || answered === model ? '' : `, answered by ${answered}`}`],
    ...(call.cache === null ? [] : [['response cache', call.cache] as const]),
    ['status', outcomeText(call)],
    ...(call.error === null ? [] : [['error', call.error] as const]),
    ['tokens', usageText(call)],
    ['cost', call.cost === null ? 'not charged' : `${call.cost} (tokens ${call.source})`],
  ];
}

/** Returns a line for each event of a call, with its milliseconds since the call came. The end is last. */
export function timelineLines(call: CallView): string[] {
  return timelineOf(call).map(([ms, text]) => `${`+${ms.toFixed(1)} ms`.padStart(14)}  ${text}`);
}

function timelineOf(call: CallView): (readonly [ms: number, event: string])[] {
  const events: [number, string][] = [];
  const cameMs = Date.parse(call.time) - call.duration_ms;
  events.push([0, `came, ${endedText(new Date(cameMs).toISOString())}`]);
  if (call.admitted_ms !== null) events.push([call.admitted_ms, `admitted${quotasText(call)}`]);
  if (call.queued_ms > 0) {
    // The record has only the sum of all waits, so the event stands where the first wait may have begun.
    const fromMs = Math.max((call.attempts[0]?.start_ms ?? 0) - call.queued_ms, call.admitted_ms ?? 0);
    events.push([fromMs, `waited ${call.queued_ms} ms in all for room in the limits of upstreams`]);
  }
  call.attempts.forEach((attempt, index) => {
    const { upstream, model, start_ms: startMs, duration_ms: ms } = attempt;
    const name = `attempt ${index + 1}`;
    const upstreamText = upstream ?? 'an upstream that is gone';
    events.push([startMs, `${name} on ${upstreamText}${model === null ? '' : ` (${model})`}`]);
    const status = attempt.status === null ? 'no status' : `status ${attempt.status}`;
    const reason = attempt.error === null ? '' : `: ${attempt.error}`;
    const endText = `${name} ${attemptEndText(attempt.code)}`;
    events.push([startMs + ms, `${endText}, ${status}, after ${ms.toFixed(1)} ms${reason}`]);
  });
  if (call.first_token_ms !== null) events.push([call.first_token_ms, 'first token']);
  events.sort(([ms], [otherMs]) => ms - otherMs);
  // After the sort, so that the end is last whatever the times are.
  events.push([call.duration_ms, `ended, ${outcomeText(call)}`]);
  return events;
}

/** Returns how an attempt ended. `cancelled` is no failure of the upstream, because the client had left. */
function attemptEndText(code: string | null): string {
  if (code === null) return 'ended';
  return code === 'cancelled' ? 'was stopped, as the caller had left' : `failed (${code})`;
}

function quotasText({ quotas }: CallView): string {
  if (quotas.length === 0) return '';
  const texts = quotas.map(({ scope, id, quota, left }) => {
    const scopeText = scope === 'group' || scope === 'model' ? `${scope} ${id ?? '?'}` : scope;
    return `${scopeText} ${quota} ${left}`;
  });
  return `; left then: ${texts.join(', ')}`;
}

function outcomeText({ status, code }: CallView): string {
  return [status ?? 'no status: the caller left', code].filter((text) => text !== null).join(' ');
}

function usageText(call: CallView): string {
  if (call.prompt_tokens === null) return '-';
  const tokenUses = [
    [call.cached_tokens, 'cached'],
    [call.cache_write_tokens, 'written to the cache'],
    [call.reasoning_tokens, 'reasoning'],
  ] as const;
  const texts = tokenUses.flatMap(([tokens, use]) => ((tokens ?? 0) > 0 ? [`${tokens} ${use}`] : []));
  const detail = texts.length === 0 ? '' : ` (of them ${texts.join(', ')})`;
  return `${call.prompt_tokens} prompt, ${call.completion_tokens ?? 0} completion${detail}`;
}

function tokensText({ prompt_tokens: prompt, completion_tokens: completion }: CallView): string {
  return prompt === null ? '-' : String(prompt + (completion ?? 0));
}

function accountText({ account, account_name: name }: CallView): string {
  return name ?? account ?? '-';
}

/** Returns name and id. `whyNoName` takes the place of a missing name. */
function namedText(id: string | null, name: string | null, whyNoName: string): string {
  if (id === null) return 'not known';
  return name === null ? `${id} (${whyNoName})` : `${name} (${id})`;
}

/** Returns text such as `2025-01-31 12:00:00.123Z`. */
function endedText(time: string): string {
  return time.replace('T', ' ');
}
