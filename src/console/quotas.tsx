/**
 * Quotas as people see them. The pages of accounts and groups show QuotaBars, a bar for each quota; lists of
 * keys and groups show the shorter QuotaLine. account-dialogs.tsx shows the limits of a plan in words
 * (limitsText), and groups-page.tsx in a table (PlanTable). quota-dialogs.tsx uses the names of quotas.
 * Browser.
 *
 * Must hold: the used amount of a quota links to the calls that it counts, by the gateway's calendar, also in
 * a day or a month in which clocks change. Further test: test/e2e/console-numbers.test.ts.
 */
import { Calendar, isTimezone } from '../core/calendar.js';
import {
  percentOfLimit,
  percentText,
  QUOTA_KINDS,
  QUOTA_NAMES,
  type QuotaAmount,
  type QuotaName,
} from '../core/quotas.js';
import type { PlanView, QuotasView, QuotaUseView } from '../admin/views.js';
import { type CallFilters, callsAddress } from './address.js';
import { Money } from './controls.js';
import { duration, moment, money, number, shortNumber } from './format.js';
import { operatorNow } from './session.js';
import { type Column, Table } from './table.js';

/** Returns the quota's name for people: `Tokens a month`, `Calls in flight`. */
export function quotaTitle(quota: QuotaName): string {
  const words = quota.replace('_per_', ' a ').replaceAll('_', ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export const isMoneyQuota = (quota: QuotaName): boolean => QUOTA_KINDS[quota].unit === 'money';

const textOf = (amount: QuotaAmount): string =>
  typeof amount === 'string' ? money(amount, 4) : number(amount);

interface ShownQuota {
  readonly quota: QuotaName;
  readonly use: QuotaUseView;
}

/** The quotas that have a limit. */
function shownQuotasOf(quotas: QuotasView): ShownQuota[] {
  return QUOTA_NAMES.flatMap((quota) => {
    const use = quotas[quota];
    return use === undefined ? [] : [{ quota, use }];
  });
}

/** The lower default of the setting `notify.at`, whose thresholds make notices. */
const NEARLY_USED_PERCENT = 80;

/** Returns a style class by how much of the limit is used or held; empty for the usual colour. */
function barClassOf(takenPercent: number): string {
  return takenPercent >= 100 ? 'bad' : takenPercent >= NEARLY_USED_PERCENT ? 'warn' : '';
}

interface ShownQuotaProps {
  readonly shown: ShownQuota;
}

function Bar({ shown: { quota, use } }: ShownQuotaProps) {
  const { limit, used, held } = use;
  // Above 100 if the limit was lowered.
  const takenPercent = percentOfLimit(limit, used, held);
  // Widths are floats, because a pixel of the bar may be less than a percent.
  const widthOf = (amount: QuotaAmount): number => (100 * Number(amount)) / Number(limit);
  const usedWidth = Math.min(100, widthOf(used));
  return (
    <span
      class={`bar ${barClassOf(takenPercent)}`}
      role="meter"
      aria-label={quotaTitle(quota)}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.min(100, takenPercent)}
      aria-valuetext={`${percentText(limit, used, held)} of ${textOf(limit)}`}
    >
      <span class="bar-used" style={{ width: `${usedWidth}%` }} />
      <span class="bar-held" style={{ width: `${Math.min(100 - usedWidth, widthOf(held))}%` }} />
    </span>
  );
}

/** The calendar of the setting `quota_timezone`; undefined if this browser does not know the zone. */
let calendar: Calendar | undefined;
let calendarZone: string | undefined;

function calendarOfQuotas(): Calendar | undefined {
  const zone = operatorNow()?.quotaTimezone;
  if (zone === calendarZone) return calendar;
  calendarZone = zone;
  calendar = zone !== undefined && isTimezone(zone) ? new Calendar(zone) : undefined;
  return calendar;
}

/** Calls a day are counted by the day in UTC+8, whatever `quota_timezone` says. */
const CALL_DAYS = new Calendar();

/** Returns when the day began in which `calls_today` of an account is counted. Unix seconds. */
export const callDayStart = (nowSeconds: number): number =>
  CALL_DAYS.dayAt(nowSeconds * 1_000).startMs / 1_000;

/**
 * Returns when the quota began to count; undefined for calls in flight, and in a zone that
 * this browser does not know. `resetsAt`: when its day or month ends. All in Unix seconds.
 */
export function countedSince(
  quota: QuotaName,
  resetsAt: number | null,
  nowSeconds: number,
): number | undefined {
  const { per } = QUOTA_KINDS[quota];
  if (per === 'minute') return nowSeconds - 60;
  if (per === 'flight' || resetsAt === null) return undefined;
  const periods = quota === 'calls_per_day' ? CALL_DAYS : calendarOfQuotas();
  const lastMs = resetsAt * 1_000 - 1;
  const period = per === 'day' ? periods?.dayAt(lastMs) : periods?.monthAt(lastMs);
  return period === undefined ? undefined : period.startMs / 1_000;
}

/** The account or group that has the quotas, as a filter of calls. */
type QuotaOwner = Pick<CallFilters, 'account' | 'group'>;

function UsedLink({ shown: { quota, use }, owner }: ShownQuotaProps & { readonly owner: QuotaOwner }) {
  const since = countedSince(quota, use.resets_at, Math.floor(Date.now() / 1_000));
  const text = <span class="quota-used">{textOf(use.used)}</span>;
  return since === undefined ? text : <a href={callsAddress({ ...owner, from: String(since) })}>{text}</a>;
}

/** `resets_at` is null for a window and for calls in flight, which are never reset. */
function QuotaText({ shown, owner }: ShownQuotaProps & { readonly owner: QuotaOwner }) {
  const { held, leased = 0, limit, resets_at: resetsAt } = shown.use;
  const seconds = resetsAt === null ? 0 : Math.max(0, resetsAt - Math.floor(Date.now() / 1_000));
  return (
    <small class="muted">
      <UsedLink shown={shown} owner={owner} /> of {textOf(limit)}
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
  const shownQuotas = shownQuotasOf(quotas);
  if (shownQuotas.length === 0) return <p class="muted">No quotas: nothing is limited here.</p>;
  return (
    <ul class="quotas" aria-label={label}>
      {shownQuotas.map((shown) => (
        <li key={shown.quota}>
          <span class="quota-name">{quotaTitle(shown.quota)}</span>
          <Bar shown={shown} />
          <QuotaText shown={shown} owner={owner} />
        </li>
      ))}
    </ul>
  );
}

export function QuotaLine({ quotas }: { readonly quotas: QuotasView }) {
  return (
    <span class="quota-line">
      {shownQuotasOf(quotas).map(({ quota, use }) => (
        <span key={quota} title={`${textOf(use.used)} of ${textOf(use.limit)}`}>
          <small class="muted">{quotaTitle(quota)}</small>
          <Bar shown={{ quota, use }} />
          <small class="muted">{percentText(use.limit, use.used, use.held)}</small>
        </span>
      ))}
    </span>
  );
}

/** Returns the limits of a plan: `60 requests a minute, 1.00 spend a day`. */
export function limitsText(plan: PlanView): string {
  return QUOTA_NAMES.flatMap((quota) => {
    const limit = plan[quota];
    return limit === null ? [] : [`${textOf(limit)} ${quotaTitle(quota).toLowerCase()}`];
  }).join(', ');
}

export function PlanTable({ plans }: { readonly plans: readonly PlanView[] }) {
  const limitColumn = (quota: QuotaName): Column<PlanView> => ({
    head: quotaTitle(quota),
    csvValue: (plan) => plan[quota],
    cell: (plan) => {
      const value = plan[quota];
      if (value === null) return '–';
      return typeof value === 'string' ? (
        <Money amount={value} />
      ) : (
        <span title={number(value)}>{shortNumber(value)}</span>
      );
    },
    class: 'figure',
  });
  return (
    <Table
      label="Plans"
      rows={plans}
      keyOf={({ id }) => id}
      columns={[{ head: 'Plan', text: ({ id }) => id }, ...QUOTA_NAMES.map(limitColumn)]}
    />
  );
}
