/**
 * The schemas and types of the admin interface's responses; those of calls, changes and operators are in
 * their route files. The routes respond with these views, the OpenAPI document shows the schemas, and the
 * commands, the console and the tests use the types. A route names its view in `responseSchema`. Pure.
 *
 * Must hold: fields may be added, but none is renamed or removed, because operators' programs read them
 * (test/unit/admin/stable-names.test.ts). A new one of USAGE_STATS comes last
 * (test/unit/admin/usage-routes.test.ts). The console compiles this file for the browser, so neither this
 * file nor what it imports uses Node (`npm run lint`).
 */
import type { Static, TObject, TProperties, TSchema } from 'typebox';
import * as Type from 'typebox';
import { SERVICES } from '../core/door-names.js';
import { QUOTA_KINDS, QUOTA_NAMES, type QuotaName } from '../core/quotas.js';
import { HISTORY_RINGS, RING_NAMES, type RingName } from '../telemetry/history.js';

// The OpenAPI document shows it open (`openSchema`), because fields may be added.
/** Closed, so that test/unit/admin/openapi.test.ts finds a field of a response that the schema lacks. */
export const closedObject = <Fields extends TProperties>(fields: Fields, description?: string) =>
  Type.Object(fields, { additionalProperties: false, ...(description && { description }) });

const moneyText = (description: string) => Type.String({ pattern: '^-?\\d+\\.\\d{2,12}$', description });
export const Money = moneyText('exact decimal text');
const Uncovered = moneyText('exact decimal text: cost beyond the balance, which cost and spent leave out');

export const Moment = Type.Integer({ description: 'Unix seconds' });

const Count = Type.Integer({ minimum: 0 });
const countOf = (description: string) => Type.Integer({ minimum: 0, description });

/** Returns the schema of a value that may be null. `description`: when, if the name does not tell. */
export const orNull = <Schema extends TSchema>(schema: Schema, description?: string) =>
  Type.Union([schema, Type.Null()], description === undefined ? {} : { description });

export const optionalText = (description: string) => Type.Optional(Type.String({ description }));

export const DeletedView = closedObject({ id: Type.String(), deleted: Type.Literal(true) });

// This view and HistoryView are written beside their schemas, because they are generic in the item.
/** One page. `next` is the cursor that continues the list, null after its last page. */
export interface ListView<View> {
  data: View[];
  next: string | null;
}

export function listSchema<Item extends TSchema>(item: Item) {
  return closedObject({ data: Type.Array(item), next: orNull(Type.String()) });
}

/** What `leased` means wherever it is shown. */
const LEASED = 'were granted in advance and have not reported as used';

const ResetsAt = orNull(
  Moment,
  'when the quota is refilled; null for a sliding minute and for calls in flight',
);
const quotaUseSchema = <Amount extends TSchema>(amount: Amount) =>
  closedObject({
    limit: amount,
    used: amount,
    held: amount,
    left: amount,
    leased: Type.Optional(amount),
    resets_at: ResetsAt,
  });

const CountUse = quotaUseSchema(Count);
const MoneyUse = quotaUseSchema(Money);

/**
 * limit = used + held + left, unless a lowered limit allows less than is used. QuotasView describes `leased`.
 * Money is decimal text.
 */
export type QuotaUseView = Readonly<Static<typeof CountUse> | Static<typeof MoneyUse>>;

/** The use of each quota that has a limit, by the quota's name. */
export type QuotasView = Readonly<Partial<Record<QuotaName, QuotaUseView>>>;

// Unsafe takes a type that is written by hand, because the compiler cannot infer it from a list of names.
export const QuotasView = Type.Unsafe<QuotasView>(
  closedObject(
    Object.fromEntries(
      QUOTA_NAMES.map((name) => [
        name,
        Type.Optional(QUOTA_KINDS[name].unit === 'money' ? MoneyUse : CountUse),
      ]),
    ),
    'the quotas that have a limit: what calls that have ended used, what calls in flight hold, and what is left. `leased` is ' +
      `there if several processes share the scope: the part of \`left\` that they ${LEASED}`,
  ),
);

/** credited = balance + held + spent, so `balance` is what new calls can spend. */
export const AccountView = closedObject({
  id: Type.String(),
  name: Type.String(),
  plan: Type.String(),
  group: orNull(Type.String({ description: 'id of its group' })),
  group_name: orNull(Type.String()),
  active: Type.Boolean(),
  plan_missing: Type.Optional(
    Type.Literal(true, {
      description:
        'there if the plan is not in the settings: calls are rejected until it is, or another is set',
    }),
  ),
  balance: Money,
  held: Money,
  spent: Money,
  credited: Money,
  uncovered: Uncovered,
  calls_today: Type.Integer(),
  requests_this_minute: Type.Integer(),
  calls_in_flight: Type.Integer({ description: 'calls that run now, in all processes of this host' }),
  quotas: QuotasView,
  leased: Type.Optional(
    closedObject(
      {
        /** The part of the account's balance that was granted. */
        balance: Money,
        calls_today: Type.Integer(),
        requests_this_minute: Type.Integer(),
        calls_in_flight: Type.Integer(),
      },
      `there if several processes share the account: what they ${LEASED}. It includes ` +
        'what calls of other hosts use, until those hosts report it',
    ),
  ),
  created: Moment,
});
export type AccountView = Readonly<Static<typeof AccountView>>;

export const CreditView = closedObject({ amount: Money, note: Type.String(), created: Moment });
export type CreditView = Readonly<Static<typeof CreditView>>;

/** Shows neither the key nor its digest. CreatedKeyView shows the key, in the response that creates it. */
export const KeyView = closedObject({
  id: Type.String(),
  account: Type.String({ description: 'id of the account' }),
  account_name: Type.String({ description: 'name of the account' }),
  name: Type.String(),
  prefix: Type.String({ description: 'the beginning of the key' }),
  active: Type.Boolean({ description: 'false while it is disabled' }),
  created: Moment,
  expires: orNull(Moment),
  expired: Type.Boolean(),
  last_used: orNull(Moment),
  requests_per_minute: orNull(Type.Integer({ description: "its own, if it is lower than the plan's" })),
  calls_per_day: orNull(Type.Integer({ description: "its own, if it is lower than the plan's" })),
  quotas: QuotasView,
  private: Type.Boolean({ description: 'true: no contents of its calls are kept' }),
  replaced_by: orNull(Type.String({ description: 'id of the key that rotation put in its place' })),
});
export type KeyView = Readonly<Static<typeof KeyView>>;

export const CreatedKeyView = closedObject({
  ...KeyView.properties,
  key: Type.String({ description: 'the key, shown only once' }),
});
export type CreatedKeyView = Readonly<Static<typeof CreatedKeyView>>;

export const RotatedKeyView = closedObject({ ...CreatedKeyView.properties, replaces: KeyView });
export type RotatedKeyView = Readonly<Static<typeof RotatedKeyView>>;

/** A group of accounts and of groups. What its accounts' calls use counts for it and each group above it. */
export const GroupView = closedObject({
  id: Type.String(),
  name: Type.String(),
  parent: orNull(Type.String({ description: 'id of the group that it is in' })),
  path: Type.Array(Type.String(), { description: 'names from the topmost group to this one' }),
  accounts: countOf('accounts that are in this group itself'),
  groups: countOf('groups that are in this group itself'),
  quotas: QuotasView,
  created: Moment,
});
export type GroupView = Readonly<Static<typeof GroupView>>;

export const BulkView = closedObject({
  data: Type.Array(closedObject({ account: AccountView, keys: Type.Array(CreatedKeyView) }), {
    description: 'in the order of the request',
  }),
});

const ACCOUNT_STATS = {
  calls: Count,
  prompt_tokens: Count,
  cached_tokens: Count,
  completion_tokens: Count,
  cost: Money,
};

/** The calls of one account in one span of time. */
export const AccountStatsView = closedObject(ACCOUNT_STATS);
export type AccountStatsView = Readonly<Static<typeof AccountStatsView>>;

export const BusyAccountView = closedObject({
  account: Type.String({ description: 'id of the account' }),
  name: Type.String(),
  ...ACCOUNT_STATS,
});
export type BusyAccountView = Readonly<Static<typeof BusyAccountView>>;

export const AccountSpanView = closedObject({ start: Moment, ...ACCOUNT_STATS });
export type AccountSpanView = Readonly<Static<typeof AccountSpanView>>;

export function historySchema<Line extends TObject>(line: Line) {
  return closedObject({
    range: Type.Enum([...RING_NAMES]),
    seconds: Type.Integer({ description: 'length of each span' }),
    data: Type.Array(line),
  });
}

export interface HistoryView<Line> {
  range: RingName;
  seconds: number;
  data: Line[];
}

export function historyOf<Line>(range: RingName, data: Line[]): HistoryView<Line> {
  return { range, seconds: HISTORY_RINGS[range].seconds, data };
}

/** The numbers of a line of usage, as the CSV of `GET /usage` orders them: programs read by position. */
export const USAGE_STATS = {
  calls: Count,
  failed_calls: countOf('calls that ended in an error; they cost nothing'),
  estimated_calls: countOf('calls whose tokens were estimated, such as of a client that left early'),
  prompt_tokens: Count,
  cached_tokens: Count,
  completion_tokens: Count,
  cost: Money,
  uncovered: Uncovered,
  fallback_calls: countOf('calls to another model that this model answered as a fallback'),
  cache_write_tokens: Count,
  cache_write_1h_tokens: Count,
  reasoning_tokens: Count,
};

const ACCOUNT_NAME = orNull(
  Type.String(),
  'name of the account; null if it is not in the books of this host',
);
const KEY_NAME = orNull(Type.String(), 'name of the key; null if it is deleted');

/**
 * A line of usage has one field of `account`, `key`, `model`, `day` and `hour`, by which calls are grouped.
 * The line of an account also has `account_name`; that of a key has both names.
 */
export const UsageView = closedObject({
  account: optionalText('id of the account'),
  key: optionalText('id of the key'),
  model: Type.Optional(Type.String()),
  day: optionalText('UTC, such as 2025-01-31'),
  hour: Type.Optional(Moment),
  account_name: Type.Optional(ACCOUNT_NAME),
  key_name: Type.Optional(KEY_NAME),
  ...USAGE_STATS,
});
export type UsageView = Readonly<Static<typeof UsageView>>;

/** A row of the accounting: the calls of a key to a model that ended in one hour. */
export const UsageRowView = closedObject({
  hour: Type.String({ description: 'when it began, such as 2025-01-31T12:00:00Z' }),
  account: Type.String({ description: 'id' }),
  account_name: ACCOUNT_NAME,
  key: Type.String({ description: 'id' }),
  key_name: KEY_NAME,
  model: Type.String(),
  ...USAGE_STATS,
});
export type UsageRowView = Readonly<Static<typeof UsageRowView>>;

const TOKEN_PRICES = {
  input: Money,
  cached_input: Money,
  cache_write: Money,
  cache_write_1h: Money,
  output: Money,
  reasoning: Money,
};
export type TokenPricesView = Readonly<Record<keyof typeof TOKEN_PRICES, string>>;

export const ModelView = closedObject({
  id: Type.String(),
  aliases: Type.Array(Type.String(), { description: 'other names that callers may use' }),
  owned_by: Type.String(),
  created: Moment,
  serves: Type.Array(Type.Enum([...SERVICES]), { description: 'what it is called for' }),
  price: closedObject(
    {
      ...TOKEN_PRICES,
      call: Money,
      cached_response: Money,
      long: Type.Array(
        closedObject({ above: Type.Integer({ description: 'tokens of the prompt' }), ...TOKEN_PRICES }),
        { description: 'prices of calls with more tokens in the prompt than above, ascending' },
      ),
    },
    'per million tokens; call and cached_response: per call',
  ),
  max_output_tokens: Type.Integer(),
  fallbacks: Type.Array(Type.String(), { description: 'ids of the models that answer if this one fails' }),
});
export type ModelView = Readonly<Static<typeof ModelView>>;

/** The limits that are set, by the quota's name. */
export type LimitsView = Readonly<Partial<Record<QuotaName, number | string>>>;

const LIMITS = Object.fromEntries(
  QUOTA_NAMES.map((name) => [name, Type.Optional(QUOTA_KINDS[name].unit === 'money' ? Money : Count)]),
);

/** Every plan has the three quotas that cannot be null. Null stands for any other that a plan lacks. */
export const PlanView = closedObject({
  id: Type.String(),
  requests_per_minute: Type.Integer(),
  calls_per_day: Type.Integer(),
  max_tokens: orNull(Type.Integer(), 'null if the model’s own bound alone counts'),
  calls_in_flight: Type.Integer({ description: 'of one account' }),
  tokens_per_minute: orNull(Count),
  tokens_per_day: orNull(Count),
  calls_per_month: orNull(Count),
  tokens_per_month: orNull(Count),
  spend_per_day: orNull(Money),
  spend_per_month: orNull(Money),
  body_bytes: Type.Integer(),
  models: Type.Array(Type.String()),
  models_limits: Type.Array(
    closedObject({ model: Type.String(), limits: Type.Unsafe<LimitsView>(closedObject(LIMITS)) }),
    { description: 'quotas of single models for one account, within those of the plan' },
  ),
} satisfies TProperties & Record<QuotaName, TSchema>);
export type PlanView = Readonly<Static<typeof PlanView>>;

const modelsView = (description: string) =>
  closedObject({ models: Type.Array(Type.String(), { description, examples: [['gpt-4o-mini']] }) });

export const UpstreamResetView = modelsView('the models whose upstreams are called again');
export type UpstreamResetView = Static<typeof UpstreamResetView>;

export const CacheClearView = modelsView('the models whose cached responses were removed');
export type CacheClearView = Static<typeof CacheClearView>;

export const SettingView = closedObject({
  setting: Type.String({ examples: ['models.gpt-4o-mini.price.input'] }),
  value: Type.String({ description: 'as text; a secret is not shown' }),
  origin: Type.String({
    description: 'a line of the file, a variable of the environment, an option of the command, or default',
    examples: ['tollgate.yaml:12', 'TOLLGATE_PORT', '--port', 'default'],
  }),
  live: Type.Boolean({ description: 'whether a reload can change it; a restart is needed otherwise' }),
});
export type SettingView = Readonly<Static<typeof SettingView>>;

const SettingText = orNull(
  Type.String(),
  'as text; a secret is not shown; null if there is none, or a whole entry comes or goes',
);

export const SettingChangeView = closedObject({
  setting: Type.String(),
  before: SettingText,
  after: SettingText,
});
export type SettingChangeView = Readonly<Static<typeof SettingChangeView>>;

export const ReloadView = closedObject({
  dry_run: Type.Boolean(),
  applied: Type.Array(Type.String(), {
    description: 'settings that took effect, or with dry_run would',
    examples: [['models.gpt-4o-mini.price', 'plans.free (removed)']],
  }),
  restart_needed: Type.Array(Type.String(), {
    description: 'settings that differ from what runs and wait for a restart',
    examples: [['listen.port']],
  }),
  changes: Type.Optional(
    Type.Array(SettingChangeView, {
      description: 'only with dry_run: the values of what would change, and of what waits for a restart',
    }),
  ),
  replacing: Type.Optional(
    Type.Integer({
      description: 'only with restart: gateway processes that are replaced one by one from now on',
    }),
  ),
});
export type ReloadView = Static<typeof ReloadView>;

export const HostView = closedObject({
  id: Type.String({ description: 'made once for its data directory' }),
  self: Type.Boolean({ description: 'the host that answers' }),
  state: Type.Union([Type.Literal('heard'), Type.Literal('silent'), Type.Literal('awaited')], {
    description:
      'heard: in the last 20 s; silent: it is gone, or cut off; awaited: the server of sharing has lost data, and grants nothing before this host is back or forgotten',
  }),
  last_heard: orNull(Type.Integer({ description: 'Unix seconds' })),
});
export type HostView = Static<typeof HostView>;
