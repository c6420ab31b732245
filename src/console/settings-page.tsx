/**
 * What the gateway runs with and where each value came from; and reading the file anew. Browser.
 */
import { useCallback, useEffect, useState } from 'preact/hooks';
import { get, textOf } from './api.js';
import { Badge, Choice, ErrorText, TextField } from './controls.js';
import { ReloadCard } from './reload-card.js';
import { Table } from './table.js';
import type { List, Setting } from './views.js';

/** Rows drawn at a time; a thousand models have more, and are searched. */
const ROWS_MAX = 500;

export function SettingsPage() {
  const [settings, setSettings] = useState<readonly Setting[]>([]);
  const [problem, setError] = useState<string>();
  const [text, setText] = useState('');
  const [origin, setOrigin] = useState('given');
  const load = useCallback((): void => {
    get<List<Setting>>('/settings').then(
      ({ data }) => setSettings(data),
      (error: unknown) => setError(textOf(error)),
    );
  }, []);
  useEffect(load, [load]);
  const wanted = text.toLowerCase();
  const found = settings.filter(
    (setting) =>
      (origin === 'all' || setting.origin !== 'default') &&
      `${setting.setting} ${setting.value}`.toLowerCase().includes(wanted),
  );
  return (
    <>
      <div class="head">
        <h1>Settings</h1>
      </div>
      <ReloadCard onApplied={load} />
      <ErrorText text={problem} />
      <div class="filters">
        <TextField label="Search" type="search" value={text} onText={setText} />
        <Choice
          label="Show"
          value={origin}
          options={[
            ['given', 'What was set'],
            ['all', 'Everything, with defaults'],
          ]}
          onChoice={setOrigin}
        />
      </div>
      <Table label="Settings in force" class="settings" columns={['Setting', 'Value', 'From', 'Changed by']}>
        {found.slice(0, ROWS_MAX).map((setting) => (
          <tr key={setting.setting}>
            <th scope="row">
              <code>{setting.setting}</code>
            </th>
            <td class="value">
              <bdi>{setting.value}</bdi>
            </td>
            <td>
              {setting.origin === 'default' ? (
                <span class="muted">default</span>
              ) : (
                <code>{setting.origin}</code>
              )}
            </td>
            <td>{setting.live ? <Badge tone="good">Reload</Badge> : <Badge tone="plain">Restart</Badge>}</td>
          </tr>
        ))}
      </Table>
      {found.length > ROWS_MAX ? (
        <p class="muted">{found.length - ROWS_MAX} more: search for what you look for.</p>
      ) : null}
    </>
  );
}
