/**
 * The page of settings, which main.tsx shows. A table has each setting in force: its value as text, without
 * secrets (the gateway makes it in config/settings-in-force.ts), and where the value comes from. A card
 * reloads the settings: first a dry run, then Apply. Browser.
 *
 * Must hold: Apply is offered only while the card shows the result of a dry run, so not after a reload that
 * failed (test/e2e/console.test.ts). It may apply newer content. Who may reload is the gateway's check
 * (`/reload` in admin/routes.ts); `may` only hides the card from others.
 */
import { useState } from 'preact/hooks';
import type { ReloadView, SettingChangeView, SettingView, ListView } from '../admin/views.js';
import { post } from './api.js';
import { useAction, useView } from './api-hooks.js';
import { may } from './session.js';
import { Badge, BeforeAfter, Button, Choice, ErrorText, TextField, useInput } from './controls.js';
import { Table } from './table.js';

/** Rows that are drawn. A thousand models have more settings; the operator finds these by a search. */
const ROWS_MAX = 500;

const DEFAULT_ORIGIN = <span class="muted">default</span>;

export function SettingsPage() {
  const { view, error, reload: refetch } = useView<ListView<SettingView>>('/settings');
  const search = useInput();
  const shownOrigins = useInput('given');
  const searchText = search.value.toLowerCase();
  const foundSettings = (view?.data ?? []).filter(
    (setting) =>
      (shownOrigins.value === 'all' || setting.origin !== 'default') &&
      `${setting.setting} ${setting.value}`.toLowerCase().includes(searchText),
  );
  return (
    <>
      <div class="head">
        <h1>Settings</h1>
      </div>
      {may('everything') && <ReloadCard onApplied={refetch} />}
      <ErrorText text={error} />
      <div class="filters">
        <TextField label="Search" type="search" {...search} />
        <Choice
          label="Show"
          options={[
            ['given', 'What was set'],
            ['all', 'Everything, with defaults'],
          ]}
          {...shownOrigins}
        />
      </div>
      <Table
        label="Settings"
        class="settings cards"
        rows={foundSettings.slice(0, ROWS_MAX)}
        // The CSV has all found settings.
        allRows={() => ({ rows: foundSettings, hasMore: false })}
        keyOf={({ setting }) => setting}
        columns={[
          {
            head: 'Setting',
            csvValue: ({ setting }) => setting,
            cell: ({ setting }) => <code>{setting}</code>,
          },
          {
            head: 'Value',
            csvValue: ({ value }) => value,
            // <bdi>: a value in a right-to-left script does not reorder the text around it.
            cell: ({ value }) => <bdi>{value}</bdi>,
            class: 'value',
          },
          {
            head: 'From', // such as `tollgate.yaml:12`, `--port`, or `default`
            csvValue: ({ origin }) => origin,
            cell: ({ origin }) => (origin === 'default' ? DEFAULT_ORIGIN : <code>{origin}</code>),
          },
          {
            head: 'Takes effect on',
            csvValue: ({ live }) => (live ? 'Reload' : 'Restart'),
            cell: ({ live }) => <Badge tone={live ? 'good' : 'plain'}>{live ? 'Reload' : 'Restart'}</Badge>,
          },
        ]}
      />
      {foundSettings.length > ROWS_MAX && (
        <p class="muted">{foundSettings.length - ROWS_MAX} more: search for what you look for.</p>
      )}
    </>
  );
}

/**
 * The gateway reads its file for the dry run, and again for Apply. If the file has changed in between, Apply
 * applies the new content, and the card shows what was applied.
 */
function ReloadCard({ onApplied }: { readonly onApplied: () => void }) {
  const [view, setView] = useState<ReloadView>();
  const { error, isBusy, run } = useAction(async ({ dryRun }: { readonly dryRun: boolean }) => {
    try {
      setView(await post<ReloadView>('/reload', { dry_run: dryRun }));
    } catch (reason) {
      // Hides the result of an earlier dry run, which may be wrong by now, and so the button Apply.
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
          <p class="muted">
            Reads the file and key files anew; environment variables stay those of the start. No call is
            dropped.
          </p>
        </div>
        <Button disabled={isBusy} onClick={() => run({ dryRun: true })}>
          Show what would change
        </Button>
      </div>
      <ErrorText text={error} />
      <div role="status">{view !== undefined && <ReloadResult view={view} />}</div>
      {view?.dry_run === true && view.applied.length > 0 && (
        <div class="actions">
          <Button onClick={() => setView(undefined)}>Leave it</Button>
          <Button class="primary" disabled={isBusy} onClick={() => run({ dryRun: false })}>
            Apply {view.applied.length === 1 ? 'the change' : `${view.applied.length} changes`}
          </Button>
        </div>
      )}
    </section>
  );
}

function ReloadResult({ view }: { readonly view: ReloadView }) {
  // In a dry run, `applied` is what would take effect.
  const { dry_run: dryRun, applied, restart_needed: restartNeeded, changes } = view;
  if (applied.length + restartNeeded.length === 0) {
    return <p>{dryRun ? 'Nothing differs from what runs.' : 'Done; nothing differed.'}</p>;
  }
  return (
    <>
      <SettingList
        title={dryRun ? 'Would take effect at once' : 'Taken into effect'}
        settings={applied}
        changes={changes}
      />
      <SettingList title="Waits for a restart" settings={restartNeeded} changes={changes} />
    </>
  );
}

interface SettingListProps {
  readonly title: string;
  /** Names of settings, such as `models.gpt-4o-mini.price`. */
  readonly settings: readonly string[];
  /** The values before and after. Undefined unless the reload was a dry run. */
  readonly changes: readonly SettingChangeView[] | undefined;
}

function SettingList({ title, settings, changes = [] }: SettingListProps) {
  if (settings.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul class="changes">
        {settings.map((name) => (
          <li key={name}>
            <code>{name}</code>
            <ChangedValue change={changes.find(({ setting }) => setting === name)} />
          </li>
        ))}
      </ul>
    </>
  );
}

/** Shows nothing if a whole entry is added or removed, because both values are null then. */
function ChangedValue({ change }: { readonly change: SettingChangeView | undefined }) {
  if (change === undefined || (change.before === null && change.after === null)) return null;
  return (
    <div class="values">
      <BeforeAfter before={change.before ?? 'not set'} after={change.after ?? 'not set'} />
    </div>
  );
}
