/**
 * The page of settings, which main.tsx shows: what the gateway runs with and where each value came from;
 * and a reload: first what it would change (a dry run), then doing it. Browser. Values come as text from
 * the gateway (config/settings-in-force.ts), secrets already hidden.
 *
 * Must hold: nothing is applied before the operator has seen a dry run and confirmed it
 * (test/e2e/console.test.ts).
 */
import { useState } from 'preact/hooks';
import type { ReloadView, SettingChangeView, SettingView, ListView } from '../admin/views.js';
import { may, post, useAction, useView } from './api.js';
import { Badge, BeforeAfter, Button, Choice, ErrorText, TextField, useInput } from './controls.js';
import { Table } from './table.js';

/** Rows drawn at a time. A thousand models have more settings: the operator searches for those. */
const ROWS_MAX = 500;

const DEFAULT = <span class="muted">default</span>;

export function SettingsPage() {
  const { view, error, reload } = useView<ListView<SettingView>>('/settings');
  const text = useInput();
  const origin = useInput('given');
  const wanted = text.value.toLowerCase();
  const found = (view?.data ?? []).filter(
    (setting) =>
      (origin.value === 'all' || setting.origin !== 'default') &&
      `${setting.setting} ${setting.value}`.toLowerCase().includes(wanted),
  );
  return (
    <>
      <div class="head">
        <h1>Settings</h1>
      </div>
      {/* Only hides it from others: the gateway rejects their reloads anyway. */}
      {may('everything') && <ReloadCard onApplied={reload} />}
      <ErrorText text={error} />
      <div class="filters">
        <TextField label="Search" type="search" {...text} />
        <Choice
          label="Show"
          options={[
            ['given', 'What was set'],
            ['all', 'Everything, with defaults'],
          ]}
          {...origin}
        />
      </div>
      <Table
        label="Settings"
        class="settings cards"
        rows={found.slice(0, ROWS_MAX)}
        // For the CSV, which has each column's `value`, and all rows found. `cell` is what is drawn.
        all={() => ({ rows: found, hasMore: false })}
        keyOf={({ setting }) => setting}
        columns={[
          { head: 'Setting', value: ({ setting }) => setting, cell: ({ setting }) => <code>{setting}</code> },
          {
            head: 'Value',
            value: ({ value }) => value,
            // <bdi>: a value in a right-to-left script does not reorder what stands around it.
            cell: ({ value }) => <bdi>{value}</bdi>,
            class: 'value',
          },
          {
            head: 'From',
            value: (line) => line.origin,
            cell: (line) => (line.origin === 'default' ? DEFAULT : <code>{line.origin}</code>),
          },
          {
            head: 'Takes effect on',
            value: ({ live }) => (live ? 'Reload' : 'Restart'),
            cell: ({ live }) => <Badge tone={live ? 'good' : 'plain'}>{live ? 'Reload' : 'Restart'}</Badge>,
          },
        ]}
      />
      {found.length > ROWS_MAX && (
        <p class="muted">{found.length - ROWS_MAX} more: search for what you look for.</p>
      )}
    </>
  );
}

/**
 * The gateway reads its file anew for each request. If the file has changed since the dry run, Apply applies
 * the new content, and shows what was applied.
 */
function ReloadCard({ onApplied }: { readonly onApplied: () => void }) {
  const [view, setView] = useState<ReloadView>();
  const { error, isBusy, run } = useAction(async (dryRun: boolean) => {
    try {
      setView(await post<ReloadView>('/reload', { dry_run: dryRun }));
    } catch (reason) {
      // The former dry run no longer holds, or Apply would still be offered.
      setView(undefined);
      throw reason;
    }
    if (!dryRun) onApplied();
  });
  return (
    <section class="card" aria-label="Reload">
      <div class="head">
        <div>
          <h2>Reload</h2>
          <p class="muted">Reads the file, the environment and key files anew. No call is dropped.</p>
        </div>
        <Button disabled={isBusy} onClick={() => run(true)}>
          Show what would change
        </Button>
      </div>
      <ErrorText text={error} />
      <div role="status">{view !== undefined && <ReloadResult view={view} />}</div>
      {view?.dry_run === true && view.applied.length > 0 && (
        <div class="actions">
          <Button onClick={() => setView(undefined)}>Leave it</Button>
          <Button class="primary" disabled={isBusy} onClick={() => run(false)}>
            Apply {view.applied.length === 1 ? 'the change' : `${view.applied.length} changes`}
          </Button>
        </div>
      )}
    </section>
  );
}

function ReloadResult({ view }: { readonly view: ReloadView }) {
  const { dry_run: dryRun, applied, restart_needed: restartNeeded, changes } = view;
  if (applied.length + restartNeeded.length === 0) {
    return <p>{dryRun ? 'Nothing differs from what runs.' : 'Done; nothing differed.'}</p>;
  }
  return (
    <>
      <SettingList
        title={dryRun ? 'Would take effect at once' : 'Taken into effect'}
        paths={applied}
        values={changes}
      />
      <SettingList title="Waits for a restart" paths={restartNeeded} values={changes} />
    </>
  );
}

interface SettingListProps {
  readonly title: string;
  readonly paths: readonly string[];
  /** Only a dry run's reply has them. */
  readonly values: readonly SettingChangeView[] | undefined;
}

/** Paths of settings, each with its value before and after if that is known. */
function SettingList({ title, paths, values = [] }: SettingListProps) {
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

/** Both are null if a whole entry is added or removed. A secret never is: `(secret)` stands for it. */
function Values({ change }: { readonly change: SettingChangeView | undefined }) {
  if (change === undefined || (change.before === null && change.after === null)) return null;
  return (
    <div class="values">
      <BeforeAfter before={change.before ?? 'not set'} after={change.after ?? 'not set'} />
    </div>
  );
}
