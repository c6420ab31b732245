/**
 * Plans that each have one limit which a crowd uses up within a test.
 */

/** `share` of the limit must be admitted where more is asked for. */
export const LIMITED = [
  { plan: 'five', perMinute: 5, perDay: 1_000_000, limit: 5, share: 0.8 },
  { plan: 'sixty', perMinute: 60, perDay: 1_000_000, limit: 60, share: 0.95 },
  { plan: 'sixhundred', perMinute: 600, perDay: 1_000_000, limit: 600, share: 0.95 },
  { plan: 'day', perMinute: 1_000_000, perDay: 150, limit: 150, share: 0.95 },
] as const;

/** As the settings have them. */
export const LIMITED_PLANS = LIMITED.map(({ plan: id, perMinute, perDay }) => ({
  id,
  requests_per_minute: perMinute,
  calls_per_day: perDay,
}));
