/**
 * Makes one model of Tollgate with several upstreams from the entries of LiteLLM's file that have the same
 * `model_name`: its price, its upstreams' weights and priorities, its aliases. import.ts calls it.
 */
import { IDENTIFIER_PATTERN } from '../annotations.js';
import { ALIASES_MAX, UPSTREAMS_MAX } from '../catalog-schema.js';
import {
  type Deployment,
  higherPrice,
  type ImportedPrice,
  PRICE_NAMES,
  type PriceName,
  type Upstream,
} from './deployment.js';
import type { ImportMap } from './remarks.js';

export interface ImportedModel {
  readonly id: string;
  readonly aliases?: readonly string[];
  readonly owned_by: string;
  readonly price?: Readonly<Partial<Record<PriceName, string>>>;
  readonly max_output_tokens?: number;
  readonly upstreams: readonly (Upstream & { readonly weight?: number; readonly priority?: number })[];
}

/** The highest weight and the highest priority in Tollgate's file. */
const SHARE_MAX = 1_000;

/** LiteLLM chooses an upstream by the first of these that an entry has. */
const SHARES = ['weight', 'rpm', 'tpm'] as const;

/** `deployments` has at least one entry. */
export function importModel(id: string, deployments: readonly Deployment[]): ImportedModel {
  const kept = deployments.slice(0, UPSTREAMS_MAX);
  for (const { entry } of deployments.slice(UPSTREAMS_MAX)) {
    entry.remark('model_name', `left out: a model has at most ${UPSTREAMS_MAX} upstreams`);
  }
  const weights = weightsOf(kept);
  const priorities = prioritiesOf(kept);
  const price = priceOf(kept);
  const outputTokensMax = outputTokensOf(kept);
  return {
    id,
    owned_by: kept[0]!.provider,
    ...(price === undefined ? {} : { price }),
    ...(outputTokensMax === undefined ? {} : { max_output_tokens: outputTokensMax }),
    upstreams: kept.map(({ upstream }, index) => ({
      ...upstream,
      ...(weights === undefined ? {} : { weight: weights[index]! }),
      ...(priorities === undefined ? {} : { priority: priorities[index]! }),
    })),
  };
}

/** Whole numbers from 1 in the proportion of the shares; undefined if all shares are the same. */
function weightsOf(deployments: readonly Deployment[]): number[] | undefined {
  const by = SHARES.find((share) => deployments.some((deployment) => deployment[share] !== undefined));
  for (const share of ['rpm', 'tpm'] as const) {
    for (const deployment of deployments) {
      if (deployment[share] === undefined) continue;
      const used = share === by && deployments.length > 1 ? 'became its weight; ' : '';
      remarkParameter(deployment, share, `${used}no limit of one upstream: plans limit accounts`);
    }
  }
  if (by === undefined) return undefined;
  const shares = deployments.map((deployment) => Math.max(deployment[by] ?? 0, 0));
  const largest = Math.max(...shares);
  if (shares.every((share) => share === largest)) return undefined;
  const divisor = shares.every(Number.isSafeInteger) ? shares.reduce(greatestDivisor) : 0;
  const whole = divisor > 0 && largest / divisor <= SHARE_MAX;
  return shares.map((share, index) => {
    if (share === 0)
      remarkParameter(deployments[index]!, by, 'has no share in LiteLLM; here it has the smallest');
    const weight = whole ? share / divisor : Math.round((share / largest) * SHARE_MAX);
    return Math.max(weight, 1);
  });
}

function greatestDivisor(left: number, right: number): number {
  return right === 0 ? left : greatestDivisor(right, left % right);
}

/** LiteLLM uses `order` 1 first, and entries without one last. Undefined if no entry has one. */
function prioritiesOf(deployments: readonly Deployment[]): number[] | undefined {
  const orders = [...new Set(deployments.flatMap(({ order }) => (order === undefined ? [] : [order])))];
  if (orders.length === 0) return undefined;
  orders.sort((left, right) => left - right);
  return deployments.map(({ order }) => (order === undefined ? orders.length : orders.indexOf(order)) + 1);
}

/** A model has one price, whichever upstream responds: the highest, so that no call is sold below cost. */
function priceOf(deployments: readonly Deployment[]): Partial<Record<PriceName, string>> | undefined {
  const highest: Partial<Record<PriceName, ImportedPrice>> = {};
  for (const deployment of deployments) {
    for (const name of PRICE_NAMES) {
      const price = deployment.prices[name];
      const known = highest[name];
      if (price === undefined) continue;
      if (known !== undefined && known.text !== price.text) {
        deployment.entry.remark(
          'litellm_params',
          `the ${name} price differs from another entry's; a model has one price: the higher was taken`,
        );
      }
      highest[name] = known === undefined ? price : higherPrice(known, price);
    }
  }
  const { input, output, ...parts } = highest;
  const first = deployments[0]!.entry;
  if (input === undefined || output === undefined) {
    const found = input === undefined && output === undefined ? 'no price' : 'only one of the two prices';
    first.remark(
      'model_name',
      `${found} in the file (LiteLLM has a table of its own): calls cost nothing until price is set`,
    );
    return undefined;
  }
  return {
    input: input.text,
    output: output.text,
    ...Object.fromEntries(Object.entries(parts).map(([name, { text }]) => [name, text])),
  };
}

function outputTokensOf(deployments: readonly Deployment[]): number | undefined {
  const given = deployments.flatMap(({ outputTokensMax }) => outputTokensMax ?? []);
  return given.length === 0 ? undefined : Math.max(...given);
}

function remarkParameter({ entry }: Deployment, name: string, text: string): void {
  entry.map('litellm_params').remark(name, text);
}

/** A name that callers can use. */
export const MODEL_NAME = new RegExp(IDENTIFIER_PATTERN);
export const MODEL_NAME_RULE = 'want a name of 1 to 128 visible ASCII characters without *';

/** Reads `model_group_alias`: aliases by the id of their model. Adds remarks on those that cannot be used. */
export function importAliases(router: ImportMap, modelIds: readonly string[]): Map<string, string[]> {
  const aliases = new Map<string, string[]>();
  const section = router.map('model_group_alias');
  for (const alias of section.rest) {
    const value = section.take(alias);
    const target = typeof value === 'string' ? value : section.map(alias).text('model');
    if (!MODEL_NAME.test(alias)) {
      section.remark(alias, MODEL_NAME_RULE);
    } else if (modelIds.includes(alias)) {
      section.remark(alias, 'a model has this name');
    } else if (target === undefined || !modelIds.includes(target)) {
      section.remark(alias, 'its model is not among those carried over');
    } else {
      const own = aliases.get(target) ?? [];
      if (own.length < ALIASES_MAX) aliases.set(target, [...own, alias]);
      else section.remark(alias, `a model has at most ${ALIASES_MAX} aliases`);
    }
  }
  return aliases;
}
