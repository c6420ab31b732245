/**
 * Dashboard and alerts ask for what the gateway exports, and a real Prometheus that scrapes a real gateway
 * answers them. `TOLLGATE_PROMETHEUS_SECONDS=60` scrapes for a minute of traffic.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { parse } from 'yaml';
import { METRIC_FAMILIES } from '#src/telemetry/exposition.js';
import { startBed } from '../support/bed.js';
import { eventually, temporaryFolder } from '../support/gateway.js';
import { scrape } from '../support/metrics.js';
import { steered } from '../support/mock.js';
import { HAS_PROMETHEUS, HAS_PROMTOOL, promtool, startPrometheus } from '../support/prometheus.js';

const RULES = resolve('deploy/prometheus/tollgate.rules.yml');
const SECONDS = Number(process.env.TOLLGATE_PROMETHEUS_SECONDS ?? 3);

interface Panel {
  readonly title: string;
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}
interface Dashboard {
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly definition?: string }[] };
}
interface Rules {
  readonly groups: readonly {
    readonly rules: readonly { readonly alert: string; readonly expr: string }[];
  }[];
}

const dashboard = JSON.parse(readFileSync('deploy/grafana/tollgate.json', 'utf8')) as Dashboard;
const rules = (parse(readFileSync(RULES, 'utf8')) as Rules).groups.flatMap((group) => group.rules);
const variables = new Set(dashboard.templating.list.map(({ name }) => name));

interface Asked {
  readonly where: string;
  readonly expression: string;
  readonly legend: string;
}
const asked: readonly Asked[] = [
  ...dashboard.panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr, legendFormat }) => ({ where: title, expression: expr, legend: legendFormat })),
  ),
  ...rules.map(({ alert, expr }) => ({ where: alert, expression: expr, legend: '' })),
];

/** What Prometheus itself adds to each sample. */
const SCRAPE_LABELS = ['job', 'instance'];
const LABELS = new Map(
  METRIC_FAMILIES.flatMap(({ name, type, labels }) =>
    (type === 'histogram' ? ['_bucket', '_sum', '_count'] : ['']).map((suffix) => [
      `${name}${suffix}`,
      suffix === '_bucket' ? [...labels, 'le'] : labels,
    ]),
  ),
);
LABELS.set('up', []);

/** Metrics and labels of an expression; labels stand in braces, after `by` and in the legend. */
function namesOf({ expression, legend }: Asked): { metrics: string[]; labels: string[] } {
  const labels: string[] = [...legend.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label!);
  const bare = expression
    .replace(/\b(?:by|on) \(([^)]*)\)/g, (_, list: string) => {
      labels.push(...list.split(',').map((label) => label.trim()));
      return '';
    })
    .replace(/\{([^}]*)\}/g, (_, matchers: string) => {
      for (const [, label] of matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"/g)) labels.push(label!);
      return '';
    })
    .replace(/\[[^\]]*\]|\b(?:or|and|unless|offset \d+[mh])\b/g, '');
  const metrics = [...bare.matchAll(/[a-z_][a-z0-9_]*/g)]
    .filter(({ 0: word, index }) => !/^\s*\(/.test(bare.slice(index + word.length)))
    .map(([word]) => word);
  return { metrics, labels };
}

void t.test('every metric and label that is asked for is exported', (t) => {
  t.ok(asked.length > 40, `${asked.length} expressions`);
  for (const question of asked) {
    const { metrics, labels } = namesOf(question);
    t.ok(metrics.length > 0, question.where);
    for (const metric of metrics) t.ok(LABELS.has(metric), `${question.where}: ${metric} is exported`);
    const known = new Set([...SCRAPE_LABELS, ...metrics.flatMap((metric) => LABELS.get(metric) ?? [])]);
    for (const label of labels) t.ok(known.has(label), `${question.where}: ${label} is a label of it`);
    for (const [, variable] of question.expression.matchAll(/\$(\w+)/g))
      t.ok(variable === '__rate_interval' || variables.has(variable!), `${question.where}: $${variable}`);
  }
  const seen = new Set(asked.flatMap((question) => namesOf(question).metrics));
  const shown = METRIC_FAMILIES.filter(
    ({ name }) => ![...seen].some((metric) => metric.startsWith(name)),
  ).map(({ name }) => name);
  t.same(
    shown.filter((name) => !name.startsWith('tollgate_account_')),
    [],
    'and the dashboard leaves none out but those of accounts',
  );
  t.end();
});

void t.test('the rules are what Prometheus takes', { skip: !HAS_PROMTOOL && 'no promtool' }, (t) => {
  const { status, said } = promtool(['check', 'rules', RULES]);
  t.equal(status, 0, said);
  t.end();
});

/** Alerts on growth of counters whose series may begin with their first count. */
const FIRST_COUNTS = [
  {
    alert: 'TollgateInternalErrors',
    series: 'tollgate_requests_total{code="internal_error",model="m"',
    by: '{}',
  },
  { alert: 'TollgateUncovered', series: 'tollgate_uncovered_total{model="m"', by: '{model="m"}' },
];

void t.test('an alert sees the first count of a series', { skip: !HAS_PROMTOOL && 'no promtool' }, (t) => {
  for (const { alert, series, by } of FIRST_COUNTS) {
    const { expr } = rules.find((rule) => rule.alert === alert)!;
    const target = 'job="tollgate",instance="a"';
    const verdict = (up: string, values: string, seen: Readonly<Record<string, number>>): void => {
      const tests = join(temporaryFolder(t), 'tests.json');
      const input = {
        interval: '1m',
        input_series: [
          { series: `up{${target}}`, values: up },
          { series: `${series},${target}}`, values },
        ],
        promql_expr_test: Object.entries(seen).map(([time, value]) => ({
          expr,
          eval_time: time,
          exp_samples: value === 0 ? [] : [{ labels: by, value }],
        })),
      };
      writeFileSync(
        tests,
        JSON.stringify({ rule_files: [RULES], evaluation_interval: '1m', tests: [input] }),
      );
      const { status, said } = promtool(['test', 'rules', tests]);
      t.equal(status, 0, `${alert}, ${values}: ${said}`);
    };
    verdict('1x200', '_x99 1x100', { '98m': 0, '100m': 1, '103m': 1, '106m': 0, '190m': 0 });
    verdict('1x200', '0x99 1x100', { '98m': 0, '190m': 0 });
    verdict('_x99 1x100', '_x99 1x100', { '100m': 0, '103m': 0, '106m': 0, '190m': 0 });
  }
  t.end();
});

void t.test('a real Prometheus', { skip: !HAS_PROMETHEUS && 'no prometheus' }, async (t) => {
  const { gateway } = await startBed(t);
  const { key } = await gateway.admin.customer();
  const round = async (): Promise<void> => {
    await gateway.chat(key, 'Hello');
    await gateway.chat(key, 'Hello', { stream: true });
    await gateway.chat(key, steered('status=500'));
    await gateway.chat(key, 'Hello', { temperature: 9 });
  };
  await round();
  const prometheus = await startPrometheus(t, gateway.admin.port, RULES);
  const endMs = performance.now() + SECONDS * 1_000;
  let rounds = 1;
  while (performance.now() < endMs) {
    await round();
    rounds += 1;
    await sleep(200);
  }

  const page = await scrape(gateway.admin.port);
  t.equal(page.sum('tollgate_requests_total'), 4 * rounds);
  const stored = await eventually('the last scrape', async () => {
    const [series] = await prometheus.query('sum(tollgate_requests_total)');
    return Number(series?.value[1]) === 4 * rounds ? rounds : undefined;
  });
  t.ok(stored, `${4 * rounds} requests are what it has stored too`);
  const [scrapes] = await prometheus.query('sum_over_time(up[1h])');
  t.comment(`${scrapes?.value[1]} scrapes in ${SECONDS} s, ${rounds} rounds of calls`);
  const [missed] = await prometheus.query('min_over_time(up[1h])');
  t.equal(missed?.value[1], '1', 'no scrape failed');

  let answered = 0;
  for (const { where, expression } of asked) {
    const filled = expression.replaceAll('$__rate_interval', '1m').replace(/\$\w+/g, '.*');
    const series = await prometheus.query(filled);
    if (series.length > 0) answered += 1;
    t.pass(`${where}: ${series.length} series`);
  }
  t.comment(`${answered} of ${asked.length} expressions gave series`);
  t.ok(answered > asked.length / 2, 'most have something to show');
  const { groups } = (await prometheus.api('rules')) as {
    groups: { rules: { name: string; health: string; lastError?: string }[] }[];
  };
  for (const { name, health, lastError } of groups.flatMap((group) => group.rules))
    t.equal(health, 'ok', `${name} ${lastError ?? ''}`);
  t.equal(await gateway.stop(), 0);
});
