/**
 * A picture of gateways measured side by side: CPU time of a small call, on a scale of tens, because they
 * differ by hundreds. The floor (proxies that check and count nothing) is drawn apart. Called by
 * write-docs.mjs.
 */

const WIDTH = 760;
const LABEL_WIDTH = 190;
const VALUE_WIDTH = 90;
const BAR_HEIGHT = 18;
const ROW_HEIGHT = 24;
const HEAD_HEIGHT = 56;
const FLOOR_GAP = 26;
const FOOT_HEIGHT = 40;
/** Left end of the scale, in microseconds. */
const LEAST_MICROS = 1;

const STYLE = `
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .title { font-weight: 600; font-size: 15px; }
    .quiet { fill: #59636e; font-size: 12px; }
    .gateway { fill: #8c959f; }
    .floor { fill: #d1d9e0; }
    .own { fill: #0969da; }
    .line { stroke: #d1d9e0; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; }
      .quiet { fill: #9198a1; }
      .gateway { fill: #656c76; }
      .floor { fill: #3d444d; }
      .own { fill: #4493f8; }
      .line { stroke: #3d444d; }
    }`;

const escaped = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

/** `measured`: what bench/peers/measured.json holds. */
export function peersChart({ date, build, contenders }) {
  const most = Math.max(...contenders.map(({ whole }) => whole.cpuMicros));
  const tens = Math.ceil(Math.log10(most / LEAST_MICROS));
  const room = WIDTH - LABEL_WIDTH - VALUE_WIDTH;
  const widthOf = (micros) => (Math.log10(micros / LEAST_MICROS) / tens) * room;
  const gateways = contenders.filter(({ kind }) => kind !== 'floor');
  const floor = contenders.filter(({ kind }) => kind === 'floor');
  const floorTop = HEAD_HEIGHT + gateways.length * ROW_HEIGHT + FLOOR_GAP;
  const bottom = floorTop + floor.length * ROW_HEIGHT;
  const row = ({ name, kind, whole: { cpuMicros } }, y) => {
    const width = widthOf(cpuMicros);
    return `
  <text x="${LABEL_WIDTH - 10}" y="${y + 14}" text-anchor="end">${escaped(name)}</text>
  <rect class="${kind}" x="${LABEL_WIDTH}" y="${y}" width="${width.toFixed(1)}" height="${BAR_HEIGHT}" rx="2"/>
  <text x="${(LABEL_WIDTH + width + 8).toFixed(1)}" y="${y + 14}">${cpuMicros.toLocaleString('en')} µs</text>`;
  };
  const lines = Array.from({ length: tens + 1 }, (_, power) => {
    const x = (LABEL_WIDTH + widthOf(LEAST_MICROS * 10 ** power)).toFixed(1);
    const label = (LEAST_MICROS * 10 ** power).toLocaleString('en');
    return `
  <line class="line" x1="${x}" y1="${HEAD_HEIGHT - 6}" x2="${x}" y2="${bottom}"/>
  <text class="quiet" x="${x}" y="${HEAD_HEIGHT - 12}" text-anchor="middle">${label}</text>`;
  });
  const rows = [
    ...gateways.map((contender, index) => row(contender, HEAD_HEIGHT + index * ROW_HEIGHT)),
    `\n  <text class="quiet" x="${LABEL_WIDTH}" y="${floorTop - 8}">the floor: proxies that check and count nothing</text>`,
    ...floor.map((contender, index) => row(contender, floorTop + index * ROW_HEIGHT)),
  ];
  const height = bottom + FOOT_HEIGHT;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="CPU time of a small call, gateways side by side">
  <style>${STYLE}
  </style>
  <text class="title" x="10" y="22">CPU time of a small call, µs, each step ten times as much; shorter is better</text>${lines.join('')}${rows.join('')}
  <text class="quiet" x="10" y="${height - 12}">measured side by side on ${escaped(date)}, build ${escaped(build)}, all threads and processes</text>
</svg>
`;
}
