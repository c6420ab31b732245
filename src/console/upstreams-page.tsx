/**
 * Upstreams as they are, and models with their prices. Browser.
 */
import { useEffect, useState } from 'preact/hooks';
import { get, post, textOf } from './api.js';
import { Money, Name, ErrorText } from './controls.js';
import { number } from './format.js';
import type { Picture } from './live.js';
import { figure, Table } from './table.js';
import { UpstreamTable } from './upstream-table.js';
import type { List, Model } from './views.js';

export function UpstreamsPage({ pictures }: { readonly pictures: readonly Picture[] }) {
  const [models, setModels] = useState<readonly Model[]>([]);
  const [problem, setError] = useState<string>();
  const [told, setTold] = useState('');
  const [busy, setBusy] = useState(false);
  const reset = async (): Promise<void> => {
    setBusy(true);
    setTold('');
    setError(undefined);
    try {
      await post('/upstreams/reset');
      setTold('Done: all upstreams are called again.');
    } catch (error) {
      setError(textOf(error));
    } finally {
      setBusy(false);
    }
  };
  useEffect(() => {
    get<List<Model>>('/models').then(
      ({ data }) => setModels(data),
      (error: unknown) => setError(textOf(error)),
    );
  }, []);
  return (
    <>
      <div class="head">
        <h1>Upstreams</h1>
        <button type="button" disabled={busy} onClick={() => void reset()}>
          Call all again now
        </button>
      </div>
      <ErrorText text={problem} />
      <p role="status">{told}</p>
      <UpstreamTable pictures={pictures} />
      <p class="muted">
        An upstream that fails too often is not called for a while, then tried with single calls, then healthy
        again.
      </p>
      <section>
        <h2>Models</h2>
        <Table
          label="Models"
          columns={[
            'Model',
            'Owned by',
            'Other names',
            figure('Input'),
            figure('Cached input'),
            figure('Output'),
            figure('Most tokens'),
          ]}
        >
          {models.map(({ id, owned_by: ownedBy, aliases, price, max_output_tokens: outputTokensMax }) => (
            <tr key={id}>
              <th scope="row">
                <Name text={id} />
              </th>
              <td>
                <Name text={ownedBy} />
              </td>
              <td>{aliases.length === 0 ? '–' : aliases.join(', ')}</td>
              <td class="figure">
                <Money amount={price.input} />
              </td>
              <td class="figure">
                <Money amount={price.cached_input} />
              </td>
              <td class="figure">
                <Money amount={price.output} />
              </td>
              <td class="figure">{number(outputTokensMax)}</td>
            </tr>
          ))}
        </Table>
        <p class="muted">Prices are per million tokens.</p>
      </section>
    </>
  );
}
