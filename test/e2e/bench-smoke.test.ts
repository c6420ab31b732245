/**
 * The bench at its smallest size: it runs, every response is the right one, every line is printed and
 * written, and a wrong command line is told so.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { chartOf, latencyChartOf, type ChartReport } from '../../bench/load/chart.js';
import { measuredOf, type PeersReport } from '../../bench/load/peers.js';
import { temporaryFolder } from '../support/gateway.js';

const run = promisify(execFile);
const program = (name: string) => {
  const script = new URL(`../../bench/load/${name}.js`, import.meta.url).pathname;
  return (...args: string[]) => run(process.execPath, [script, ...args], { timeout: 300_000 });
};
const bench = program('run');
const parts = program('parts');

interface Report {
  readonly latencies: readonly { readonly scenario: string; readonly contender: string }[];
  readonly slowStreams: readonly {
    readonly contender: string;
    readonly served: number;
    readonly cut: number;
  }[];
  readonly keyCounts: readonly { readonly keys: number }[];
  readonly machine: string;
  readonly rounds: number;
  readonly seconds: number;
  readonly results: readonly {
    readonly scenario: string;
    readonly contender: string;
    readonly reference: string;
    readonly figures: Readonly<Record<string, { readonly median: number }>>;
  }[];
}

void t.test('bench --smoke', async (t) => {
  const json = join(temporaryFolder(t), 'report.json');
  const contenders = ['bare', 'direct', 'relay', 'tollgate'].flatMap((name) => ['--contender', name]);
  const { stdout } = await bench('--smoke', ...contenders, '--json', json);
  const report = JSON.parse(readFileSync(json, 'utf8')) as Report;
  const { results } = report;
  const references = {
    'refused-401': 'bare',
    'refused-400': 'bare',
    'refused-429': 'bare',
    'whole-small': 'direct',
    'whole-large': 'direct',
    'stream-20': 'direct',
    'stream-200': 'direct',
  };
  for (const [scenario, reference] of Object.entries(references)) {
    const figures = '[1-9]\\d* +\\d+\\.\\d +\\d+ +\\d+ +[1-9]\\d*';
    const ratios = '\\d+\\.\\d\\d +\\d+\\.\\d\\d';
    t.match(stdout, new RegExp(`^${scenario} +${reference} +${figures} +reference$`, 'm'));
    t.match(stdout, new RegExp(`^${scenario} +tollgate +${figures} +${ratios}$`, 'm'));
    const lines = results.filter((result) => result.scenario === scenario);
    // It relays whole responses alone.
    const others = scenario.startsWith('whole-') ? ['relay', 'tollgate'] : ['tollgate'];
    t.same(
      lines.map((result) => [result.contender, result.reference]),
      [reference, ...others].map((contender) => [contender, reference]),
    );
    for (const { figures } of lines) t.ok(figures.requestsPerSecond!.median > 0, scenario);
  }
  for (const scenario of ['rate-50', 'rate-500', 'rate-2000', 'rate-8000', 'first-token']) {
    t.match(stdout, new RegExp(`^${scenario} +direct +\\d+ +\\d+ +reference +reference`, 'm'));
    t.match(stdout, new RegExp(`^${scenario} +tollgate +\\d+ +\\d+ +-?\\d+ +-?\\d+`, 'm'));
  }
  t.equal(report.latencies.length, 10);
  t.match(
    report.slowStreams.map(({ contender, served, cut }) => ({ contender, served, cut })),
    ['direct', 'tollgate'].map((contender) => ({ contender, served: 50, cut: 0 })),
  );
  t.match(report.keyCounts, [{ keys: 1_000 }]);
  t.match(
    measuredOf(report as unknown as PeersReport, '2026-01-31', 'abcdef0'),
    {
      date: '2026-01-31',
      build: 'abcdef0',
      contenders: [
        {
          name: 'Tollgate',
          kind: 'own',
          whole: { cpuMicros: Number, requestsPerSecond: Number, p99Ms: Number },
          stream: { cpuMicros: Number, requestsPerSecond: Number },
          limits: true,
          mebibytes: Number,
        },
      ],
      latencies: ['rate-50', 'rate-500', 'rate-2000', 'first-token'].map((scenario) => ({
        scenario,
        name: 'Tollgate',
        p50Micros: Number,
        p99Micros: Number,
      })),
    },
    'what docs/benchmarks.md is written from',
  );
  t.match(chartOf(report as unknown as ChartReport), /<text class="group"[^>]*>stream-200<\/text>/);
  const { latencies } = measuredOf(report as unknown as PeersReport, '2026-01-31', 'abcdef0');
  t.match(latencyChartOf(latencies, ['the foot']), /500 a second<[^]*>Tollgate<[^]*p99 [^]*the foot/);
});

void t.test('a wrong command line', async (t) => {
  const cases: [string[], RegExp][] = [
    [['--scenario', 'nonsense'], /--scenario wants one of refused-401, .*, got "nonsense"/],
    [['--contender', 'nonsense'], /--contender wants one of bare, .*, got "nonsense"/],
    [['--seconds', '0'], /--seconds wants an integer from 1 to 3600, got "0"/],
    [['--contender', 'any'], /"any" wants --any-url and --any-pid/],
    [['--any-url', 'https://example.com', '--any-pid', '1'], /--any-url wants http:\/\/127\.0\.0\.1/],
    [['--contender', 'bare', '--scenario', 'stream-20'], /none of these contenders/],
  ];
  for (const [args, message] of cases) {
    await t.rejects(bench(...args), { code: 2, stderr: message }, args.join(' '));
  }
});

void t.test('parts --smoke: gateways without limits and without metrics are that', async (t) => {
  const names = ['as-it-comes', 'no-limits-no-books', 'no-metrics', 'traces-all'];
  const { stdout } = await parts('--smoke', ...names.flatMap((name) => ['--variant', name]));
  for (const name of names) {
    const micros = '[1-9]\\d*\\.\\d';
    const spread = `${micros} \\(${micros}–${micros}\\)`;
    t.match(stdout, new RegExp(`^\\| ${name} \\| ${spread} \\| \\d.* \\| ${micros} .* \\|$`, 'm'));
  }
  const doors = ['as-it-comes', 'messages', 'bedrock-signed'];
  const canned = await parts(
    '--smoke',
    '--upstream',
    'canned',
    ...doors.flatMap((name) => ['--variant', name]),
  );
  for (const name of doors) t.match(canned.stdout, new RegExp(`^\\| ${name} \\| [1-9]`, 'm'));
  await t.rejects(parts('--variant', 'nonsense'), {
    code: 1,
    stderr: /--variant wants as-it-comes, .*, got nonsense/,
  });
  await t.rejects(parts('--upstream', 'nonsense'), {
    code: 1,
    stderr: /--upstream wants mock, canned, got nonsense/,
  });
  await t.rejects(parts('--build', 'nonsense'), {
    code: 1,
    stderr: /--build wants name=folder, got nonsense/,
  });
});
