/**
 * How an account looks to an operator. Pure; main thread.
 */
import { Type, type Static } from 'typebox';
import { decimalOf } from '../core/money.js';
import type { AccountStatement } from '../registry/account-statement.js';
import { Moment, Money, secondsOf } from './fields.js';
import { CLOSED } from './route.js';

/** credited = balance + held + spent. */
export const AccountView = Type.Object(
  {
    id: Type.String(),
    name: Type.String(),
    plan: Type.String(),
    active: Type.Boolean(),
    plan_missing: Type.Optional(
      Type.Literal(true, {
        description:
          'there if the plan is not in the settings: calls are refused until it is, or another is set',
      }),
    ),
    /** What can be spent now: credited less held less spent. */
    balance: Money,
    held: Money,
    spent: Money,
    credited: Money,
    uncovered: Money,
    calls_today: Type.Integer(),
    requests_this_minute: Type.Integer(),
    calls_in_flight: Type.Integer({ description: 'that run now, in all processes of this host' }),
    leased: Type.Optional(
      Type.Object(
        {
          /** A part of the account's balance. */
          balance: Money,
          calls_today: Type.Integer(),
          requests_this_minute: Type.Integer(),
          calls_in_flight: Type.Integer(),
        },
        {
          ...CLOSED,
          description:
            'there if several processes share the account: what they were granted in advance and have not used. Of the balance and of ' +
            'calls in flight it includes what calls of other hosts use; what those were granted of day and minute counts as used',
        },
      ),
    ),
    created: Moment,
  },
  CLOSED,
);

export type AccountView = Readonly<Static<typeof AccountView>>;

export function viewOfAccount(statement: AccountStatement): AccountView {
  const { record, leased } = statement;
  return {
    id: record.id,
    name: record.name,
    plan: record.planId,
    active: record.active,
    ...(statement.planMissing === true ? { plan_missing: true as const } : {}),
    balance: decimalOf(statement.available),
    held: decimalOf(statement.held),
    spent: decimalOf(statement.spent),
    credited: decimalOf(record.credited),
    uncovered: decimalOf(statement.uncovered),
    calls_today: statement.callsToday,
    requests_this_minute: statement.requestsThisMinute,
    calls_in_flight: statement.callsInFlight,
    ...(leased === undefined
      ? {}
      : {
          leased: {
            balance: decimalOf(leased.money),
            calls_today: leased.dayCalls,
            requests_this_minute: leased.minute,
            calls_in_flight: leased.callsInFlight,
          },
        }),
    created: secondsOf(record.createdMs),
  };
}
