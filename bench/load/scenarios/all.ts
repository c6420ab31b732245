/**
 * All scenarios, in the order of measuring.
 */
import { REJECTIONS } from './refusals.js';
import type { Scenario } from './scenario.js';
import { STREAMS } from './streams.js';
import { WHOLE } from './whole.js';

export const SCENARIOS: readonly Scenario[] = [...REJECTIONS, ...WHOLE, ...STREAMS];
