/**
 * The journal of an account's credits and debits. accounts-page.tsx shows it. Browser.
 */
import { useEffect, useState } from 'preact/hooks';
import type { AccountView, CreditView } from '../admin/views.js';
import { allOf, type Part, useAction } from './api.js';
import { ErrorText } from './controls.js';
import { number } from './format.js';
import { Table } from './table.js';

const CREDITS_SHOWN = 10;

/** Newest first: the gateway lists them oldest first, so all are read, at most ROWS_OF_CSV_MAX. */
export function AccountCredits({ account }: { readonly account: AccountView }) {
  const [read, setRead] = useState<Part<CreditView>>();
  const { error, run } = useAction(async () => {
    setRead(await allOf<CreditView>(`/accounts/${encodeURIComponent(account.id)}/credits`));
  });
  // Each credit and each debit changes the sum.
  useEffect(() => run(), [account.credited]);
  if (read === undefined) return <ErrorText text={error} />;
  const newestFirst = read.rows.toReversed();
  return (
    <section>
      <h3>Credits and debits</h3>
      <ErrorText text={error} />
      {newestFirst.length === 0 ? (
        <p class="empty">Nothing was credited yet.</p>
      ) : (
        <Table
          label="Credits"
          class="cards"
          rows={newestFirst.slice(0, CREDITS_SHOWN)}
          keyOf={(_, index) => String(newestFirst.length - index)}
          all={() => ({ rows: newestFirst, more: read.more })}
          columns={[
            { head: 'When', at: ({ created }) => created },
            { head: 'Amount', money: ({ amount }) => amount },
            { head: 'Note', text: ({ note }) => note },
          ]}
        />
      )}
      {newestFirst.length > CREDITS_SHOWN ? (
        <p class="muted">
          The last {CREDITS_SHOWN} of {number(newestFirst.length)}
          {read.more ? ', and more' : ''}.
        </p>
      ) : null}
    </section>
  );
}
