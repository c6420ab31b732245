/**
 * Usage as a table, with each line's share of the cost. Browser.
 */
import { useEffect, useState } from 'preact/hooks';
import { get } from './api.js';
import { Money, Name } from './controls.js';
import { moment, number } from './format.js';
import { addressOf } from './route.js';
import { figure, Table } from './table.js';
import type { UsageGroup } from './usage-page.js';
import type { Account, Key, UsageLine } from './views.js';

/** Names that are asked for, one request each; the others are shown by their ids. */
const NAMES_MAX = 50;

export function UsageTable({ lines, by }: { readonly lines: readonly UsageLine[]; readonly by: UsageGroup }) {
  const names = useNames(lines, by);
  const most = Math.max(...lines.map(({ cost }) => Number(cost)));
  const sum = (figure: (line: UsageLine) => number): number =>
    lines.reduce((total, line) => total + figure(line), 0);
  return (
    <Table
      label="Usage"
      columns={[
        by === 'day' ? 'day (UTC)' : by,
        figure('Calls'),
        figure('Failed'),
        figure('Prompt tokens'),
        figure('Cached'),
        figure('Completion tokens'),
        figure('Cost'),
        { text: 'Share of the cost', hidden: true },
      ]}
      footer={
        <tr>
          <th scope="row">Sum</th>
          <td class="figure">{number(sum(({ calls }) => calls))}</td>
          <td class="figure">{number(sum((line) => line.failed_calls))}</td>
          <td class="figure">{number(sum((line) => line.prompt_tokens))}</td>
          <td class="figure">{number(sum((line) => line.cached_tokens))}</td>
          <td class="figure">{number(sum((line) => line.completion_tokens))}</td>
          <td class="figure">
            <Money amount={sumOfMoney(lines.map(({ cost }) => cost))} />
          </td>
          <td />
        </tr>
      }
    >
      {lines.map((line) => (
        <tr key={nameOf(line)}>
          <th scope="row">
            <LineName line={line} name={names.get(nameOf(line))} />
          </th>
          <td class="figure">{number(line.calls)}</td>
          <td class="figure">{number(line.failed_calls)}</td>
          <td class="figure">{number(line.prompt_tokens)}</td>
          <td class="figure">{number(line.cached_tokens)}</td>
          <td class="figure">{number(line.completion_tokens)}</td>
          <td class="figure">
            <Money amount={line.cost} />
          </td>
          <td class="share-cell">
            <i class="share" style={{ width: `${most > 0 ? (100 * Number(line.cost)) / most : 0}%` }} />
          </td>
        </tr>
      ))}
    </Table>
  );
}

function LineName({ line, name }: { readonly line: UsageLine; readonly name: string | undefined }) {
  if (line.account !== undefined) {
    return (
      <a href={addressOf('accounts', line.account)}>
        <Name text={name ?? line.account} />
      </a>
    );
  }
  if (line.key !== undefined) return <Name text={name ?? line.key} />;
  return line.hour === undefined ? <Name text={nameOf(line)} /> : <>{moment(line.hour)}</>;
}

function nameOf({ account, key, model, day, hour }: UsageLine): string {
  return account ?? key ?? model ?? day ?? String(hour);
}

/** Of accounts and keys, by their ids; those that were deleted have none. */
function useNames(lines: readonly UsageLine[], by: UsageGroup): ReadonlyMap<string, string> {
  const [names, setNames] = useState<ReadonlyMap<string, string>>(new Map());
  useEffect(() => {
    if (by !== 'account' && by !== 'key') return;
    const leaving = new AbortController();
    void (async () => {
      const found = new Map(names);
      for (const line of lines.slice(0, NAMES_MAX)) {
        // Lines of the former question are there until those of this one have come.
        const id = line[by];
        if (id === undefined) continue;
        if (leaving.signal.aborted || found.has(id)) continue;
        try {
          found.set(id, (await get<Account | Key>(`/${by}s/${encodeURIComponent(id)}`)).name);
        } catch {
          found.set(id, id);
        }
      }
      if (!leaving.signal.aborted) setNames(found);
    })();
    return () => leaving.abort();
  }, [lines, by]);
  return names;
}

const DECIMALS = 12;

/** Exact: of decimal texts with at most twelve decimals. */
function sumOfMoney(texts: readonly string[]): string {
  const total = texts.reduce((sum, text) => {
    const [whole = '0', decimals = ''] = text.split('.');
    return sum + BigInt(whole + decimals.padEnd(DECIMALS, '0'));
  }, 0n);
  const digits = total.toString().padStart(DECIMALS + 1, '0');
  return `${digits.slice(0, -DECIMALS)}.${digits.slice(-DECIMALS)}`;
}
