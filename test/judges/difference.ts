/** Where two translations differ, and the form in which a class of such differences is listed. */
import { isRecord } from '#src/core/json.js';

export interface Difference {
  /** `PATH: OURS | JUDGE'S`; a list's positions are `*`, and a member that is missing is `-`. */
  readonly line: string;
}

const shown = (value: unknown): string => (value === undefined ? '-' : JSON.stringify(value).slice(0, 90));

/** Where the two differ, at the deepest members that both have; if one refused, that. */
export function differencesOf(ours: object, judges: object): Difference[] {
  if ('refused' in ours || 'refused' in judges || 'failed' in ours || 'failed' in judges) {
    const named = (side: object): string =>
      'refused' in side
        ? `refused ${String(side.refused)}`
        : 'failed' in side
          ? `failed ${String(side.failed)}`
          : 'taken';
    // Where two refuse, each may name another member; where two fail, both say how.
    const isSame = named(ours) === named(judges) || ('refused' in ours && 'refused' in judges);
    return isSame ? [] : [{ line: `${named(ours)} | ${named(judges)}` }];
  }
  return differencesWithin(ours, judges, '');
}

function differencesWithin(ours: unknown, judges: unknown, path: string): Difference[] {
  if (Array.isArray(ours) && Array.isArray(judges) && ours.length === judges.length)
    return ours.flatMap((item, index) => differencesWithin(item, judges[index], `${path}.*`));
  if (isRecord(ours) && isRecord(judges))
    return [...new Set([...Object.keys(ours), ...Object.keys(judges)])].flatMap((name) =>
      differencesWithin(ours[name], judges[name], path === '' ? name : `${path}.${name}`),
    );
  if (shownWhole(ours) === shownWhole(judges)) return [];
  return [{ line: `${path}: ${shown(ours)} | ${shown(judges)}` }];
}
const shownWhole = (value: unknown): string => (value === undefined ? '-' : JSON.stringify(value));

export interface Listed {
  readonly difference: RegExp;
  /** Only in cases whose names match. */
  readonly cases?: RegExp;
  /** What is right, and why. */
  readonly decision: string;
}
