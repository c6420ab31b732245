/**
 * What single declarations cannot say: names that must be unique or must exist, settings that exclude each other, and what
 * this version does not have yet. Works on the sound parts of settings with faults. Pure; any thread.
 */
import type { SettingPath } from './config-error.js';
import { nearestName } from './nearest-name.js';
import type { SettingsDraft } from './schema.js';
import { checkSharing } from './sharing-schema.js';

/* Which models a plan names. Pure; any thread. */

/** Whether `pattern`, in which `*` stands for any characters, names the model `id`. Cost: linear in both, no regexp. */
export function matchesModel(pattern: string, id: string): boolean {
  const [head = '', ...rest] = pattern.split('*');
  const tail = rest.pop();
  if (tail === undefined) return pattern === id;
  if (!id.startsWith(head) || !id.endsWith(tail)) return false;
  const end = id.length - tail.length;
  let position = head.length;
  for (const part of rest) {
    const found = id.indexOf(part, position);
    if (found < 0) return false;
    position = found + part.length;
  }
  return position <= end;
}

type Report = (path: SettingPath, text: string) => void;

/** Reports every fault between settings. */
export function crossCheck(draft: SettingsDraft, report: Report): void {
  checkModelNames(draft.models, report);
  checkPlanNames(draft.plans, report);
  checkPlanModels(draft, report);
  checkSources(draft, report);
  checkPorts(draft, report);
  checkSharing(draft, report);
}

/** No two models share a name, be it an id or an alias: a caller may use either. */
function checkModelNames(models: SettingsDraft['models'], report: Report): void {
  const owners = new Map<string, string>();
  const take = (name: string | undefined, path: SettingPath, owner: string): void => {
    if (name === undefined) return;
    const first = owners.get(name);
    if (first === undefined) owners.set(name, owner);
    else report(path, `got "${name}", which is already ${first}`);
  };
  // Ids first: where an id and an alias are the same, it is the alias that is to be changed.
  models?.forEach((model, index) => take(model?.id, ['models', index, 'id'], `the id of models[${index}]`));
  models?.forEach((model, index) =>
    model?.aliases?.forEach((alias, aliasIndex) =>
      take(alias, ['models', index, 'aliases', aliasIndex], `an alias of models[${index}]`),
    ),
  );
}

function checkPlanNames(plans: SettingsDraft['plans'], report: Report): void {
  const firstIndices = new Map<string, number>();
  plans?.forEach((plan, index) => {
    if (plan?.id === undefined) return;
    const first = firstIndices.get(plan.id);
    if (first === undefined) firstIndices.set(plan.id, index);
    else report(['plans', index, 'id'], `got "${plan.id}", which is already the id of plans[${first}]`);
  });
}

function checkPlanModels(draft: SettingsDraft, report: Report): void {
  const models = draft.models;
  const ids = (models ?? []).flatMap((model) => (model?.id === undefined ? [] : [model.id]));
  // With a model whose id was refused, a plan that names it would be called wrong without reason.
  if (models === undefined || ids.length < models.length) return;
  draft.plans?.forEach((plan, planIndex) => {
    plan?.models?.forEach((pattern, index) => {
      if (pattern === undefined || ids.some((id) => matchesModel(pattern, id))) return;
      const aliased = models.find((model) => model?.aliases?.includes(pattern) === true)?.id;
      const nearest = nearestName(pattern, ids, (id) => id) ?? '';
      report(
        ['plans', planIndex, 'models', index],
        aliased === undefined
          ? `got "${pattern}", which names no model, the nearest known one is ${nearest}`
          : `got "${pattern}", which is an alias, want the id of its model: ${aliased}`,
      );
    });
  });
}

function checkSources(draft: SettingsDraft, report: Report): void {
  draft.models?.forEach((model, modelIndex) => {
    model?.upstreams?.forEach((upstream, index) => {
      for (const name of ['key', 'ca'] as const) {
        if (upstream?.[name] === undefined || upstream[`${name}_file`] === undefined) continue;
        report(
          ['models', modelIndex, 'upstreams', index, `${name}_file`],
          `given besides ${name}, want one of the two`,
        );
      }
    });
  });
}

/** Both sockets would open, because listeners share their port, and callers would meet the admin interface by chance. */
function checkPorts(draft: SettingsDraft, report: Report): void {
  const port = draft.admin?.port;
  if (port === undefined || port === 0 || port !== draft.listen?.port) return;
  report(['admin', 'port'], `got ${port}, which is listen.port too, want another one`);
}
