/**
 * What single declarations cannot say: names that must be unique or must exist, settings that exclude each other, and what
 * this version does not have yet. Works on the sound parts of settings with faults. Pure; any thread.
 */
import { matchesModel } from './model-pattern.js';
import { nearestName } from './nearest-name.js';
import type { SettingPath } from './problems.js';
import type { SettingsDraft } from './schema.js';

type Report = (path: SettingPath, text: string) => void;

/** Reports every fault between settings. */
export function crossCheck(draft: SettingsDraft, report: Report): void {
  checkUnique('models', draft.models, report);
  checkUnique('plans', draft.plans, report);
  checkPlanModels(draft, report);
  checkSources(draft, report);
  checkPorts(draft, report);
  checkAvailable(draft, report);
}

function checkUnique(
  list: 'models' | 'plans',
  entries: readonly ({ id?: string | undefined } | undefined)[] | undefined,
  report: Report,
): void {
  const firstIndices = new Map<string, number>();
  entries?.forEach((entry, index) => {
    if (entry?.id === undefined) return;
    const first = firstIndices.get(entry.id);
    if (first === undefined) firstIndices.set(entry.id, index);
    else report([list, index, 'id'], `got "${entry.id}", which is already the id of ${list}[${first}]`);
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
      const nearest = nearestName(pattern, ids, (id) => id) ?? '';
      report(
        ['plans', planIndex, 'models', index],
        `got "${pattern}", which names no model, the nearest known one is ${nearest}`,
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

function checkAvailable(draft: SettingsDraft, report: Report): void {
  if (draft.processes !== undefined && draft.processes !== 1) {
    report(
      ['processes'],
      `got ${draft.processes}; more than one process is not available in this version; use 1 and raise listen.listeners and workers`,
    );
  }
}
