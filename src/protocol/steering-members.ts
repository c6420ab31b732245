/**
 * Members by which a caller would get another call than the one that is admitted and held, as the scan finds them. Pure; any thread.
 */
import { ROUTING_MEMBERS, type RoutingMember } from '../core/routing-members.js';
import { foldedName } from './known-members.js';

/**
 * They make more output than the hold covers, and each has a name in the specification or here that does the same. llama.cpp
 * takes `n_predict` over `max_tokens` and `n_cmpl` over `n` (tools/server: `oaicompat_chat_params_parse` and its task's parameters);
 * `best_of` makes responses that no usage reports (vLLM up to 0.8).
 */
const OUTPUT_MEMBERS: Readonly<Record<string, string>> = {
  n_predict: 'max_tokens',
  n_cmpl: 'n',
  best_of: 'n',
};

/** What becomes of a member. */
export type Steering =
  | { readonly kind: 'routing'; readonly name: RoutingMember }
  | { readonly kind: 'output'; readonly name: string; readonly instead: string };

const BY_FOLDED_NAME: ReadonlyMap<string, Steering> = new Map<string, Steering>([
  ...ROUTING_MEMBERS.map((name) => [foldedName(name), { kind: 'routing', name }] as const),
  ...Object.entries(OUTPUT_MEMBERS).map(
    ([name, instead]) => [name, { kind: 'output', name, instead }] as const,
  ),
]);

/** Undefined of every other name. */
export function steeringOf(folded: string): Steering | undefined {
  return BY_FOLDED_NAME.get(folded);
}
