/**
 * The accounts with most calls in the time shown. Browser.
 */
import { useAccountHistory } from './account-course.js';
import { Name, ErrorText } from './controls.js';
import { roughMoney, short } from './format.js';
import { addressOf } from './route.js';
import { figure, Table } from './table.js';
import type { BusyAccount, Range } from './views.js';

/** The others are on their own pages; the gateway tells of fifty. */
const ROWS_MAX = 10;

export function BusyAccounts({ range }: { readonly range: Range }) {
  const { history, problem: error } = useAccountHistory<BusyAccount>('/history/accounts', range);
  if (error !== undefined) return <ErrorText text={error} />;
  if (history === undefined) return null;
  if (history.data.length === 0) return <p class="empty">No calls in this time.</p>;
  return (
    <Table label="Busiest accounts" columns={['Account', figure('Calls'), figure('Tokens'), figure('Cost')]}>
      {history.data.slice(0, ROWS_MAX).map((line) => (
        <tr key={line.account}>
          <th scope="row">
            <a href={addressOf('accounts', line.account)}>
              <Name text={line.name} />
            </a>
          </th>
          <td class="figure">{short(line.calls)}</td>
          <td class="figure">{short(line.prompt_tokens + line.completion_tokens)}</td>
          <td class="figure">{roughMoney(Number(line.cost))}</td>
        </tr>
      ))}
    </Table>
  );
}
