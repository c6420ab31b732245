/**
 * Reading the settings' file anew: first what would change, then doing it. Browser.
 */
import { useState } from 'preact/hooks';
import { post, textOf } from './api.js';
import { ErrorText } from './controls.js';
import type { ReloadView, SettingChange } from './views.js';

export function ReloadCard({ onApplied }: { readonly onApplied: () => void }) {
  const [view, setView] = useState<ReloadView>();
  const [problem, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const ask = async (dryRun: boolean): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      setView(await post<ReloadView>('/reload', { dry_run: dryRun }));
      if (!dryRun) onApplied();
    } catch (error) {
      setView(undefined);
      setError(textOf(error));
    } finally {
      setBusy(false);
    }
  };
  const nothing = view !== undefined && view.applied.length + view.restart_needed.length === 0;
  return (
    <section class="card" aria-label="Reload">
      <div class="head">
        <div>
          <h2>Reload</h2>
          <p class="muted">Reads the file, the environment and key files anew. No call is dropped.</p>
        </div>
        <button type="button" disabled={busy} onClick={() => void ask(true)}>
          Show what would change
        </button>
      </div>
      <ErrorText text={problem} />
      <div role="status">
        {view === undefined ? null : nothing ? (
          <p>{view.dry_run ? 'Nothing differs from what runs.' : 'Done; nothing differed.'}</p>
        ) : (
          <>
            <Changes
              title={view.dry_run ? 'Would take effect at once' : 'Taken into effect'}
              paths={view.applied}
              values={view.changes}
            />
            <Changes title="Waits for a restart" paths={view.restart_needed} values={view.changes} />
          </>
        )}
      </div>
      {view?.dry_run === true && view.applied.length > 0 ? (
        <div class="actions">
          <button type="button" onClick={() => setView(undefined)}>
            Leave it
          </button>
          <button type="button" class="primary" disabled={busy} onClick={() => void ask(false)}>
            Apply {view.applied.length === 1 ? 'the change' : `${view.applied.length} changes`}
          </button>
        </div>
      ) : null}
    </section>
  );
}

interface ChangesProps {
  readonly title: string;
  readonly paths: readonly string[];
  readonly values: readonly SettingChange[] | undefined;
}

function Changes({ title, paths, values = [] }: ChangesProps) {
  if (paths.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul class="changes">
        {paths.map((path) => (
          <li key={path}>
            <code>{path}</code>
            <Values change={values.find(({ setting }) => setting === path)} />
          </li>
        ))}
      </ul>
    </>
  );
}

function Values({ change }: { readonly change: SettingChange | undefined }) {
  if (change === undefined || (change.before === null && change.after === null)) return null;
  return (
    <div class="values">
      <del>
        <bdi>{change.before ?? 'not set'}</bdi>
      </del>{' '}
      <span aria-hidden="true">→</span>{' '}
      <ins>
        <bdi>{change.after ?? 'not set'}</bdi>
      </ins>
    </div>
  );
}
