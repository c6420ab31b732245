/**
 * All scenarios, in the order of measuring.
 */
import { REFUSALS } from './refusals.js';
import type { Scenario } from './scenario.js';
import { STREAMS } from './streams.js';
import { WHOLE } from './whole.js';

export const SCENARIOS: readonly Scenario[] = [...REFUSALS, ...WHOLE, ...STREAMS];
