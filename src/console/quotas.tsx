/**
 * Quotas as people see them: bars of what is used, the same in one line, fields for limits, and the table of
 * the plans. The pages of accounts and of groups show these. Browser (test/e2e/console-groups.test.ts).
 *
 * Must hold: what is used of a quota links to the calls that it counts, those of its day or month
 * (test/e2e/console-numbers.test.ts).
 */
import { useState } from 'preact/hooks';
import { QUOTA_KINDS, QUOTA_NAMES, type QuotaName } from '../core/quotas.js';
import type { PlanView, QuotasView, QuotaUseView } from '../admin/views.js';
import { type CallFilters, callsAddress } from './browser.js';
import { Money, TextField } from './controls.js';
import { duration, moment, money, number, short } from './format.js';
import { type Column, Table } from './table.js';

/** `Tokens a month`, `Calls in flight`. */
function titleOf(quota: QuotaName): string {
  const words = quota.replace('_per_', ' a ').replaceAll('_', ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

const isMoney = (quota: QuotaName): boolean => QUOTA_KINDS[quota].unit === 'money';

/** An amount of a quota: money as decimal text, else a number. */
type Amount = QuotaUseView['used'];

const textOf = (amount: Amount): string => (typeof amount === 'string' ? money(amount, 4) : number(amount));

interface Use {
  readonly quota: QuotaName;
  readonly use: QuotaUseView;
  /** Percent of the limit. */
  readonly used: number;
  readonly held: number;
}

function usesOf(quotas: QuotasView): Use[] {
  return QUOTA_NAMES.flatMap((quota) => {
    const use = quotas[quota];
    if (use === undefined) return [];
    const percentOf = (amount: Amount): number => (100 * Number(amount)) / Number(use.limit);
    return [{ quota, use, used: percentOf(use.used), held: percentOf(use.held) }];
  });
}

/** The thresholds of the setting `notify.at`, by default. */
const NEARLY_USED_PERCENT = 80;

const toneOf = ({ used, held }: Use): string =>
  used + held >= 100 ? 'bad' : used + held >= NEARLY_USED_PERCENT ? 'warn' : '';

function Bar({ of }: { readonly of: Use }) {
  const { quota, used, held } = of;
  const whole = Math.min(100, Math.round(used + held));
  return (
    <span
      class={`bar ${toneOf(of)}`}
      role="meter"
      aria-label={titleOf(quota)}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={whole}
      aria-valuetext={`${whole} % of ${textOf(of.use.limit)}`}
    >
      <span class="bar-used" style={{ width: `${Math.min(100, used)}%` }} />
      <span class="bar-held" style={{ width: `${Math.max(0, Math.min(100 - used, held))}%` }} />
    </span>
  );
}

/** Whose quotas they are, as filter of calls. */
type QuotaOwner = Pick<CallFilters, 'account' | 'group'>;

const DAY_SECONDS = 86_400;
/** The first time zone to begin a day is so far ahead of UTC; none is a day behind that one's clock. */
const ZONE_AHEAD_SECONDS_MAX = 14 * 3_600;

/**
 * Since when the calls have ended that a quota counts, in Unix seconds; undefined for calls in flight, which
 * have not. Days and months begin by `quota_timezone`, which this page does not know: their ends tell it. It
 * is an hour off while the zone changes its clocks in that day or month.
 */
function countedSince(quota: QuotaName, resetsAt: number | null): number | undefined {
  const { per } = QUOTA_KINDS[quota];
  if (per === 'minute') return Math.floor(Date.now() / 1_000) - 60;
  if (per === 'flight' || resetsAt === null) return undefined;
  if (per === 'day') return resetsAt - DAY_SECONDS;
  // Within the first two days of the next month by UTC, wherever the zone is; day 0 is the last one before.
  const next = new Date((resetsAt + ZONE_AHEAD_SECONDS_MAX) * 1_000);
  const days = new Date(Date.UTC(next.getUTCFullYear(), next.getUTCMonth(), 0)).getUTCDate();
  return resetsAt - days * DAY_SECONDS;
}

/** What is used, linked to the calls that used it. */
function Used({ of: { quota, use }, owner }: { readonly of: Use; readonly owner: QuotaOwner }) {
  const since = countedSince(quota, use.resets_at);
  const text = <span class="quota-used">{textOf(use.used)}</span>;
  return since === undefined ? text : <a href={callsAddress({ ...owner, from: String(since) })}>{text}</a>;
}

/** `held` is left out if calls in flight hold nothing; a window and calls in flight are never refilled. */
function UseText({ of, owner }: { readonly of: Use; readonly owner: QuotaOwner }) {
  const { held, leased = 0, limit, resets_at: resetsAt } = of.use;
  const seconds = resetsAt === null ? 0 : Math.max(0, resetsAt - Math.floor(Date.now() / 1_000));
  return (
    <small class="muted">
      <Used of={of} owner={owner} /> of {textOf(limit)}
      {Number(held) === 0 ? '' : `, ${textOf(held)} held`}
      {Number(leased) === 0 ? '' : `, ${textOf(leased)} granted in advance`}
      {resetsAt !== null && <span title={moment(resetsAt)}>, reset in {duration(seconds)}</span>}
    </small>
  );
}

interface QuotaBarsProps {
  readonly quotas: QuotasView;
  readonly owner: QuotaOwner;
  readonly label: string;
}

export function QuotaBars({ quotas, owner, label }: QuotaBarsProps) {
  const uses = usesOf(quotas);
  if (uses.length === 0) return <p class="muted">No quotas: nothing is limited here.</p>;
  return (
    <ul class="quotas" aria-label={label}>
      {uses.map((of) => (
        <li key={of.quota}>
          <span class="quota-name">{titleOf(of.quota)}</span>
          <Bar of={of} />
          <UseText of={of} owner={owner} />
        </li>
      ))}
    </ul>
  );
}

/** A quota in a narrow place: name, bar, percent. */
export function QuotaLine({ quotas }: { readonly quotas: QuotasView }) {
  return (
    <span class="quota-line">
      {usesOf(quotas).map((of) => (
        <span key={of.quota} title={`${textOf(of.use.used)} of ${textOf(of.use.limit)}`}>
          <small class="muted">{titleOf(of.quota)}</small>
          <Bar of={of} />
          <small class="muted">{number(Math.round(of.used + of.held))} %</small>
        </span>
      ))}
    </span>
  );
}

/** Limits that are being edited: the text of each field, empty for none. */
type LimitTexts = Readonly<Record<QuotaName, string>>;

export interface LimitsInput {
  readonly texts: LimitTexts;
  readonly onTexts: (texts: LimitTexts) => void;
  /** Fields of a body: what differs from the quotas at first, and null for a limit that is taken away. */
  readonly body: Readonly<Record<string, number | string | null>>;
}

export function useLimits(quotas: QuotasView = {}): LimitsInput {
  const [before] = useState(
    () =>
      Object.fromEntries(
        QUOTA_NAMES.map((quota) => [quota, String(quotas[quota]?.limit ?? '')]),
      ) as LimitTexts,
  );
  const [texts, onTexts] = useState(before);
  const changed = QUOTA_NAMES.filter((quota) => texts[quota].trim() !== before[quota]);
  const valueOf = (quota: QuotaName): number | string | null => {
    const text = texts[quota].trim();
    return text === '' ? null : isMoney(quota) ? text : Number(text);
  };
  return { texts, onTexts, body: Object.fromEntries(changed.map((quota) => [quota, valueOf(quota)])) };
}

export function LimitFields({ limits: { texts, onTexts } }: { readonly limits: LimitsInput }) {
  return (
    <fieldset class="limits">
      <legend class="muted">Limits; empty for none.</legend>
      <div class="pair">
        {QUOTA_NAMES.map((quota) => (
          <TextField
            key={quota}
            label={titleOf(quota)}
            {...(isMoney(quota) ? { inputMode: 'decimal' as const } : { type: 'number' as const, min: '1' })}
            value={texts[quota]}
            onValue={(text) => onTexts({ ...texts, [quota]: text })}
          />
        ))}
      </div>
    </fieldset>
  );
}

/** `60 requests a minute, 1.00 spend a day`: the limits of a plan. */
export function limitsText(plan: PlanView): string {
  return QUOTA_NAMES.flatMap((quota) => {
    const limit = plan[quota];
    return limit === null ? [] : [`${textOf(limit)} ${titleOf(quota).toLowerCase()}`];
  }).join(', ');
}

export function PlanTable({ plans }: { readonly plans: readonly PlanView[] }) {
  const limit = (quota: QuotaName): Column<PlanView> => ({
    head: titleOf(quota),
    value: (plan) => plan[quota],
    cell: (plan) => {
      const value = plan[quota];
      if (value === null) return '–';
      return typeof value === 'string' ? (
        <Money amount={value} />
      ) : (
        <span title={number(value)}>{short(value)}</span>
      );
    },
    class: 'figure',
  });
  return (
    <Table
      label="Plans"
      rows={plans}
      keyOf={({ id }) => id}
      columns={[{ head: 'Plan', text: ({ id }) => id }, ...QUOTA_NAMES.map(limit)]}
    />
  );
}
