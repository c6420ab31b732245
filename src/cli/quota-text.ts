/**
 * Quotas in commands: the options that give limits, and the text of how much of each quota is used. The
 * commands of groups, keys, accounts and the catalogue use these functions. Pure.
 */
import { type Command, InvalidArgumentError } from 'commander';
import type { QuotasView, QuotaUseView } from '../admin/views.js';
import { percentText, QUOTA_KINDS, QUOTA_NAMES, type QuotaAmount, type QuotaName } from '../core/quotas.js';
import { parseWholeNumber } from './options.js';
import { Misuse, timeText } from './output.js';

/** The value of an option that removes the limit. */
const NO_LIMIT = 'none';

const HELP_TEXTS: Readonly<Record<QuotaName, string>> = {
  requests_per_minute: 'requests in any 60 seconds',
  tokens_per_minute: 'tokens of prompt and completion in any 60 seconds',
  calls_in_flight: 'calls at a time',
  calls_per_day: 'calls in a day',
  tokens_per_day: 'tokens in a day',
  calls_per_month: 'calls in a month',
  tokens_per_month: 'tokens in a month',
  spend_per_day: 'money in a day, such as 10.00',
  spend_per_month: 'money in a month, such as 250.00',
};

/** Adds an option for each quota: `set` for limits of something new; `change` also takes `none`. */
export function addLimitOptions(command: Command, purpose: 'set' | 'change'): Command {
  for (const name of QUOTA_NAMES) {
    const isMoney = QUOTA_KINDS[name].unit === 'money';
    const parse = isMoney ? parseAmount : parseWholeNumber;
    command.option(
      `--${name.replaceAll('_', '-')} <${isMoney ? 'amount' : 'n'}>`,
      purpose === 'change' ? `${HELP_TEXTS[name]}; none: no limit` : HELP_TEXTS[name],
      (text: string) => (purpose === 'change' && text === NO_LIMIT ? NO_LIMIT : parse(text)),
    );
  }
  return command;
}

function parseAmount(text: string): string {
  // The admin interface checks the amount. Twelve decimals are a pico-unit.
  if (/^\d{1,12}(\.\d{1,12})?$/.test(text)) return text;
  throw new InvalidArgumentError('An amount such as 10.00 is wanted.');
}

/**
 * Returns the limits that the options of `addLimitOptions` give, with the names of the admin interface. Null
 * removes a limit. Commander names an option in camel case: `tokensPerDay` for `--tokens-per-day`.
 */
export function limitsOf(options: object): Readonly<Record<string, QuotaAmount | null>> {
  const values = options as Readonly<Record<string, QuotaAmount | undefined>>;
  return Object.fromEntries(
    QUOTA_NAMES.flatMap((name) => {
      const value = values[name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase())];
      return value === undefined ? [] : [[name, value === NO_LIMIT ? null : value]];
    }),
  );
}

/** The parts (ItemCommands) of the commands `set-limits`. Throws Misuse if the options give no limit. */
export const CHANGE_OF_LIMITS = {
  configure: (command: Command): Command => addLimitOptions(command, 'change'),
  bodyOf: (options: object): object => {
    const limits = limitsOf(options);
    if (Object.keys(limits).length > 0) return limits;
    throw new Misuse('Nothing to change: give a limit, such as --tokens-per-day 100000, or --help.');
  },
};

/** One quota in words, for a row of a table or for a field. */
export interface QuotaLine {
  /** Such as `tokens per month`. */
  readonly quota: string;
  /** Such as `61,200 of 100,000 (61 %)`. */
  readonly used: string;
  /** What calls in flight hold; empty if nothing. */
  readonly held: string;
  /** What processes were granted (in views: leased) and have not used; empty if nothing. */
  readonly leased: string;
  /** When the next period begins; empty for quotas of a minute and for calls in flight. */
  readonly resets: string;
}

/** Returns the quotas that have a limit, in the order of QUOTA_NAMES. */
export function quotaLines(quotas: QuotasView): QuotaLine[] {
  return QUOTA_NAMES.flatMap((name) => {
    const use = quotas[name];
    return use === undefined ? [] : [quotaLineOf(name, use)];
  });
}

function quotaLineOf(name: QuotaName, use: QuotaUseView): QuotaLine {
  const { limit, used, held, leased = 0, resets_at: resetsAt } = use;
  return {
    quota: name.replaceAll('_', ' '),
    used: `${amountText(used)} of ${amountText(limit)} (${percentText(limit, used)})`,
    held: Number(held) === 0 ? '' : amountText(held),
    leased: Number(leased) === 0 ? '' : amountText(leased),
    resets: resetsAt === null ? '' : timeText(resetsAt),
  };
}

/** Returns the quotas as fields for `printFields` (output.ts). */
export function quotaFields(quotas: QuotasView): (readonly [string, string])[] {
  return quotaLines(quotas).map(({ quota, used, held, leased, resets }) => {
    const texts = [
      used,
      held && `${held} held`,
      leased && `${leased} leased in advance`,
      resets && `resets ${resets}`,
    ];
    return [quota, texts.filter(Boolean).join(', ')];
  });
}

/**
 * Returns a count with commas between thousands, and money as it is. No Intl.NumberFormat, which would add
 * 20 ms to the start of each command.
 */
export function amountText(amount: QuotaAmount): string {
  return typeof amount === 'number' ? amount.toLocaleString('en') : amount;
}
