/**
 * Tables of the overview: models over the time shown, threads now. Browser.
 */
import { Name } from './controls.js';
import { sharesOf, sumOf } from './stats.js';
import { bytes, milliseconds, roughMoney, short } from './format.js';
import { figure, Table } from './table.js';
import type { Span, Status } from './views.js';

interface ModelSums {
  readonly id: string;
  calls: number;
  failed: number;
  tokens: number;
  cost: number;
}

export function ModelTable({ spans }: { readonly spans: readonly Span[] }) {
  const rows = modelSums(spans);
  if (rows.length === 0) return <p class="empty">No calls in this time.</p>;
  return (
    <Table
      label="Models"
      columns={['Model', figure('Calls'), figure('Failed'), figure('Tokens'), figure('Cost')]}
    >
      {rows.map(({ id, calls, failed, tokens, cost }) => (
        <tr key={id}>
          <th scope="row">
            <Name text={id} />
          </th>
          <td class="figure">{short(calls)}</td>
          <td class="figure">{short(failed)}</td>
          <td class="figure">{short(tokens)}</td>
          <td class="figure">{roughMoney(cost)}</td>
        </tr>
      ))}
    </Table>
  );
}

function modelSums(spans: readonly Span[]): ModelSums[] {
  const sums = new Map<string, ModelSums>();
  for (const { models = {} } of spans) {
    for (const [id, { outcomes, tokens, cost = 0 }] of Object.entries(models)) {
      const sum = sums.get(id) ?? { id, calls: 0, failed: 0, tokens: 0, cost: 0 };
      sums.set(id, sum);
      sum.calls += sumOf(outcomes);
      sum.failed += sharesOf(outcomes).failed;
      sum.tokens += (tokens?.[0] ?? 0) + (tokens?.[2] ?? 0);
      sum.cost += cost;
    }
  }
  return [...sums.values()].sort((left, right) => right.calls - left.calls);
}

export function ThreadTable({ status }: { readonly status: Status | undefined }) {
  return (
    <Table label="Threads" columns={['Thread', figure('Event loop delay, p99'), figure('Heap')]}>
      {status?.threads.map(({ name, event_loop_delay_ms_p99: delayMs, heap_bytes: heapBytes }) => (
        <tr key={name}>
          <th scope="row">{name}</th>
          <td class="figure">{milliseconds(delayMs)}</td>
          <td class="figure">{bytes(heapBytes)}</td>
        </tr>
      ))}
    </Table>
  );
}
