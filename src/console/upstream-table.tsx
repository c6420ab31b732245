/**
 * How the upstreams are. Browser.
 */
import { Badge, Name, type Tone } from './controls.js';
import { ago, moment, number, short, words } from './format.js';
import type { Picture } from './live.js';
import { figure, Table } from './table.js';
import type { UpstreamStatus } from './views.js';

const STATES: Readonly<Record<UpstreamStatus['breaker'], readonly [Tone, string]>> = {
  closed: ['good', 'Healthy'],
  half_open: ['warn', 'Being tried'],
  open: ['bad', 'Not called'],
};

/** What the breaker says, and if it lets calls through, how those of the time shown fared. */
function stateOf(
  { breaker }: UpstreamStatus,
  attempts: number,
  failures: number,
  seconds: number,
): readonly [Tone, string] {
  if (breaker !== 'closed' || failures <= 0) return STATES[breaker];
  const tone = 2 * failures >= attempts ? 'bad' : 'warn';
  return [tone, `${short(failures)} of ${short(attempts)} failed in ${number(Math.round(seconds))} s`];
}

function LastFailure({ of: { last_failure: last } }: { readonly of: UpstreamStatus }) {
  if (last === null) return <td>–</td>;
  return (
    <td title={moment(last.at)}>
      {words(last.kind)}, {ago(last.at, Date.now())}
    </td>
  );
}

export function UpstreamTable({ pictures }: { readonly pictures: readonly Picture[] }) {
  const status = pictures.at(-1);
  const first = pictures[0];
  const seconds = (pictures.at(-1)?.atSeconds ?? 0) - (first?.atSeconds ?? 0);
  return (
    <Table
      label="Upstreams"
      columns={[
        'Model',
        'Upstream',
        'State',
        figure('In flight'),
        figure('Calls/s'),
        figure('Calls'),
        figure('Failed'),
        'Last failure',
        figure('Priority'),
        figure('Weight'),
      ]}
    >
      {status?.upstreams.map((upstream, index) => {
        const { model, name, attempts, failures } = upstream;
        const earlier = first?.upstreams[index]?.name === name ? first.upstreams[index] : upstream;
        const before = earlier.attempts;
        const [tone, text] = stateOf(upstream, attempts - before, failures - earlier.failures, seconds);
        return (
          <tr key={`${model} ${name} ${index}`}>
            <th scope="row">
              <Name text={model} />
            </th>
            <td>
              <Name text={name} />
            </td>
            <td>
              <Badge tone={tone}>{text}</Badge>
            </td>
            <td class="figure">{short(upstream.calls_in_flight)}</td>
            <td class="figure">{seconds > 0 ? number((attempts - before) / seconds) : '–'}</td>
            <td class="figure">{short(attempts)}</td>
            <td class="figure">{short(failures)}</td>
            <LastFailure of={upstream} />
            <td class="figure">{upstream.priority}</td>
            <td class="figure">{upstream.weight}</td>
          </tr>
        );
      })}
    </Table>
  );
}
