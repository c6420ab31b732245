/**
 * Compares settings with the books of their data directory, for `tollgate config check` (config-command.ts):
 * whether a gateway would start with them, and which accounts would lose their plan. Process of the command.
 *
 * Must hold: the check changes nothing in the data directory, and makes no file there.
 */
import { existsSync } from 'node:fs';
import type { Settings } from '../config/schema.js';

/** `problems`: why a gateway would not start with this store. `warnings`: what an operator should look at. */
interface BooksFindings {
  readonly problems: readonly string[];
  readonly warnings: readonly string[];
}

const NO_FINDINGS: BooksFindings = { problems: [], warnings: [] };

/**
 * Compares the settings with the books of their data directory, which a gateway may have open. Books that are
 * not there give no findings, and books that cannot be read a warning. Rejects only for a bug.
 */
export async function checkBooks({ data, limits, plans }: Settings): Promise<BooksFindings> {
  const [{ StoreSnapshot }, { storePath }, { readGatewayFile }] = await Promise.all([
    import('../store/audit-run.js'),
    import('../store/store-file.js'),
    import('../admin/gateway-file.js'),
  ]);
  const path = storePath(data);
  try {
    // Throws if this user may not read the folder: then all files would seem to be missing.
    readGatewayFile(data);
    // Opening a store creates its missing files. They would belong to the user of this command, who may be
    // another than the gateway's.
    if (!['', '-lock', '-gate', '-gate-lock'].every((ending) => existsSync(path + ending)))
      return NO_FINDINGS;
    const snapshot = new StoreSnapshot(data);
    try {
      const { readAccount } = await import('../store/account-codec.js');
      const tables = { accounts: 'account_slots', keys: 'key_slots', groups: 'group_slots' } as const;
      const problems = (['accounts', 'keys', 'groups'] as const).flatMap((records) => {
        const wanted = (snapshot.lastKey(tables[records]) ?? -1) + 1;
        if (wanted <= limits[records]) return [];
        return [`limits.${records}: ${limits[records]}, and the books need at least ${wanted}`];
      });
      const planIds = new Set(plans.map(({ id }) => id));
      const namesByPlan = new Map<string, string[]>();
      for (const { key, value } of snapshot.rows('accounts')) {
        const { planId, name } = readAccount(value, key);
        if (planIds.has(planId)) continue;
        const names = namesByPlan.get(planId);
        if (names === undefined) namesByPlan.set(planId, [name]);
        else names.push(name);
      }
      return { problems, warnings: [...namesByPlan].map(planWarning) };
    } finally {
      await snapshot.close();
    }
  } catch (error) {
    // A StoreError, or an error of the folder. An error without a code is a bug.
    if (!(error instanceof Error && 'code' in error)) throw error;
    return { problems: [], warnings: [`the books were not looked at: ${error.message}`] };
  }
}

/** How many names of accounts a warning lists. */
const NAMES_MAX = 5;

function planWarning([plan, names]: readonly [string, readonly string[]]): string {
  const shown = names.toSorted().slice(0, NAMES_MAX).join(', ');
  const others = names.length > NAMES_MAX ? ` and ${names.length - NAMES_MAX} more` : '';
  return (
    `plans: ${plan} is missing, and accounts are on it (${names.length}: ${shown}${others}): a reload that removes it ` +
    'is refused, and a start disables them. Move them first (accounts set-plan), or keep the plan.'
  );
}
